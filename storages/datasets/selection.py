"""Choose the episodes of a data set that are learnt from: by their returns, successes, at random, and in two parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
"""A part greater than 0 and less than 1."""
_SPLIT, _DRAW = range(2)


@dataclass(frozen=True)
class SelectEpisodes(Setting):
    """Which episodes of a data set are used: those that pass all of these, applied in this order.

    Args:
        part: "train" or "validation", two parts that have no episode in common and make up the data set; None for all.
        validation_share: of the episodes, how many are those of "validation"; at least one is, and one is not.
        successes: only episodes that succeeded, which the data must say.
        min_return: only episodes whose rewards add up to this at least.
        max_return: only episodes whose rewards add up to this at most.
        max_episodes: only so many, those with the highest returns.
        best_share: only this share of the episodes, those with the highest returns.
        random_share: only this share of the episodes, drawn at random.
        seed: of the parts and of the draw.

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

    def numbers(self, returns: Sequence[float], succeeded: Sequence[bool | None]) -> NDArray[np.int64]:
        """The numbers of the episodes that are used, in their order.

        Args:
            returns: of all episodes.
            succeeded: whether each succeeded; None where the data does not say so.

        Raises:
            DatasetError: successes are asked for, and an episode does not say whether it is one.
        """
        values = np.asarray(returns, np.float64)
        kept = self._in_part(len(values))
        if self.successes:
            if any(succeeded[number] is None for number in kept):
                raise DatasetError(
                    f"successes are asked for, and the episodes do not all say whether they succeeded: they need a "
                    f"fact {' or '.join(SUCCESS_FACTS)}; choose by min_return instead"
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
            raise DatasetError(f"{episodes} episodes cannot be divided into a part to train on and one to validate on")
        order = self._random(_SPLIT).permutation(episodes)
        held_out = min(_share_of(episodes, self.validation_share), episodes - 1)
        return np.sort(order[:held_out] if self.part == "validation" else order[held_out:])

    def _random(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(purpose,)))


class SelectedDataset(Dataset):
    """Some episodes of a data set, which is gone through once to choose them.

    Args:
        dataset: all of them.
        selection: which.

    Raises:
        DatasetError: none is left.
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
        """Lengths of the episodes that are used, by their numbers."""
        facts = [(return_of(one), succeeded(one), len(one)) for one in self._dataset]
        returns, successes, lengths = (list(column) for column in zip(*facts, strict=True)) if facts else ([], [], [])
        numbers = self._selection.numbers(returns, successes)
        if not len(numbers):
            told = f"returned {min(returns):g} to {max(returns):g}" if returns else "are none"
            raise DatasetError(
                f"none of the {len(returns)} episodes of {self.path} is left by {self._selection}; they {told}"
            )
        return {int(number): lengths[number] for number in numbers}


def succeeded(episode: Episode) -> bool | None:
    """Whether an episode succeeded; None where it does not say so."""
    said = [bool(episode.facts[name]) for name in SUCCESS_FACTS if name in episode.facts]
    return any(said) if said else None


def _share_of(episodes: int, share: float) -> int:
    """How many episodes a share is; one at least, where there are any."""
    return min(episodes, max(1, round(episodes * share)))
