"""Selection of the episodes of a data set: by return, success or at random, and a train-validation split."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.hyper_parameters import Count, CountOrZero, Within
from storages.component.setting import Setting
from storages.datasets.dataset import Dataset
from storages.datasets.operations import chosen, return_of
from storages.episode import Episode
from storages.errors import DatasetError

SUCCESS_FACTS = ("success", "is_success")
"""Facts of an episode that say whether it succeeded."""
Share = Annotated[float, Within(0, 1, open=True)]
"""A fraction in the open interval (0, 1)."""
_SPLIT, _DRAW = range(2)


@dataclass(frozen=True)
class SelectEpisodes(Setting):
    """Filters that select episodes of a data set, applied in this order.

    Args:
        part: "train" or "validation", a random split of the data set into two disjoint parts; None for all episodes.
        validation_share: fraction of the episodes in the validation part; at least one episode, at most all but one.
        successes: keep only episodes that succeeded, according to their facts.
        min_return: keep only episodes with at least this return (undiscounted).
        max_return: keep only episodes with at most this return (undiscounted).
        max_episodes: keep at most this many episodes, those with the highest returns.
        best_share: keep this fraction of the remaining episodes, those with the highest returns.
        random_share: keep this fraction of the remaining episodes, drawn at random.
        seed: seed of the split and of the random draw.

    Raises:
        ValueError: a number is outside its range, or ``min_return`` is above ``max_return``.
    """

    part: Literal["train", "validation"] | None = None
    validation_share: Share = 0.1
    successes: bool = False
    min_return: float | None = None
    max_return: float | None = None
    max_episodes: Count | None = None
    best_share: Share | None = None
    random_share: Share | None = None
    seed: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_return is not None and self.max_return is not None and self.min_return > self.max_return:
            raise ValueError(
                f"SelectEpisodes: min_return must not be above max_return, got {self.min_return:g} and "
                f"{self.max_return:g}"
            )

    def __repr__(self) -> str:
        """Return what is chosen: the fields that are not at their defaults."""
        chosen = [
            (each.name, getattr(self, each.name)) for each in fields(self) if getattr(self, each.name) != each.default
        ]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in chosen)})"

    def numbers(self, returns: Sequence[float], succeeded: Sequence[bool | None]) -> NDArray[np.int64]:
        """Return the numbers of the selected episodes, in order.

        Args:
            returns: returns of all episodes.
            succeeded: whether each episode succeeded; None if unknown.

        Raises:
            DatasetError: only successes are selected, but for some episode it is unknown whether it succeeded; or there
                are too few episodes to split.
        """
        values = np.asarray(returns, np.float64)
        kept = self._in_part(len(values))
        if self.successes:
            if any(succeeded[number] is None for number in kept):
                raise DatasetError(
                    f"selecting successes needs episodes that record whether they succeeded, as a fact "
                    f"{' or '.join(SUCCESS_FACTS)}, and not all do; choose by min_return instead"
                )
            kept = kept[[bool(succeeded[number]) for number in kept]]
        if self.min_return is not None:
            kept = kept[values[kept] >= self.min_return]
        if self.max_return is not None:
            kept = kept[values[kept] <= self.max_return]
        if self.max_episodes is not None:
            kept = kept[sorted(chosen(values[kept], max_episodes=self.max_episodes))]
        if self.best_share is not None:
            kept = kept[sorted(chosen(values[kept], max_episodes=_share_of(len(kept), self.best_share)))]
        if self.random_share is not None:
            count = _share_of(len(kept), self.random_share)
            kept = np.sort(self._random(_DRAW).permutation(kept)[:count])
        return kept

    def _in_part(self, episodes: int) -> NDArray[np.int64]:
        if self.part is None:
            return np.arange(episodes)
        if episodes < 2:
            raise DatasetError(f"{episodes} episodes cannot be split into a training and a validation set")
        order = self._random(_SPLIT).permutation(episodes)
        held_out = min(_share_of(episodes, self.validation_share), episodes - 1)
        return np.sort(order[:held_out] if self.part == "validation" else order[held_out:])

    def _random(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose,)))


class SelectedDataset(Dataset):
    """The selected episodes of a data set, which is read once to compute the selection.

    Args:
        dataset: the data set.
        selection: the filters.

    Raises:
        DatasetError: no episode is selected; raised by the first access.
    """

    def __init__(self, dataset: Dataset, selection: SelectEpisodes) -> None:
        super().__init__(dataset.path, dataset.about)
        self._dataset, self._selection = dataset, selection

    @cached_property
    def _lengths(self) -> list[int]:
        return list(self._chosen.values())

    def _episodes(self) -> Iterator[Episode]:
        for number, episode in enumerate(self._dataset):
            if number in self._chosen:
                yield episode

    @cached_property
    def _chosen(self) -> dict[int, int]:
        """Lengths of the selected episodes, by their numbers."""
        facts = [(return_of(one), succeeded(one), len(one)) for one in self._dataset]
        returns, successes, lengths = (list(column) for column in zip(*facts, strict=True)) if facts else ([], [], [])
        numbers = self._selection.numbers(returns, successes)
        if not len(numbers):
            span = f"; their returns lie in [{min(returns):g}, {max(returns):g}]" if returns else ""
            raise DatasetError(f"{self._selection} selects none of the {len(returns)} episodes of {self.path}{span}")
        return {int(number): lengths[number] for number in numbers}


def succeeded(episode: Episode) -> bool | None:
    """Return whether an episode succeeded, according to its facts; None if unknown."""
    said = [bool(episode.facts[name]) for name in SUCCESS_FACTS if name in episode.facts]
    return any(said) if said else None


def _share_of(episodes: int, share: float) -> int:
    """Return the number of episodes of a share; at least one, if there are any."""
    return min(episodes, max(1, round(episodes * share)))
