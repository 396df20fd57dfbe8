"""Data sets with arrays of their own for each episode."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.answers import Answers
from storages.datasets.columns import as_columns, check_actions, read_actions
from storages.datasets.dataset import About, Dataset
from storages.datasets.episode_bounds import last_steps_left_out
from storages.datasets.flat import as_observations
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, REW, Array


@dataclass(frozen=True)
class EpisodeArrays:
    """The arrays of an episode of L steps, which are read when they are sliced.

    Args:
        where: the place in the file, for errors.
        observations: by the name of their part, (L, ...), or (L + 1, ...) with the final one.
        following: the observations after each step (L, ...); None if they are not recorded.
        actions: (L, ...).
        rewards: (L,) or (L, 1); None if there are none.
        terminated: whether it terminated.
        truncated: whether it was truncated.
        facts: further facts about it.
        fields: further fields of the steps (L, ...), by their names in a transition.
    """

    where: str
    observations: Mapping[str, Any]
    following: Mapping[str, Any] | None
    actions: Any
    rewards: Any | None
    terminated: bool
    truncated: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_final(self) -> bool:
        """Whether the final observation is recorded."""
        return self.following is not None or len(next(iter(self.observations.values()))) == len(self.actions) + 1

    def __len__(self) -> int:
        """Number of steps that are read: without the last one, if its next observation is unknown and matters."""
        return max(0, len(self.actions) - (not self.has_final and not self.terminated))

    def check(self) -> None:
        """Check the lengths of the arrays.

        Raises:
            DatasetError: they differ.
        """
        steps = len(self.actions)
        rows = {f"observations {name}".rstrip(): len(part) for name, part in self.observations.items()}
        expected = steps if self.following is not None else steps + self.has_final
        lengths = {"actions": steps, **rows}
        if self.following is not None:
            if self.following.keys() != self.observations.keys():
                raise DatasetError(
                    f"{self.where}: next observations have the parts {sorted(self.following)}, observations "
                    f"{sorted(self.observations)}"
                )
            further = {f"next observations {name}".rstrip(): len(part) for name, part in self.following.items()}
            rows, lengths = rows | further, lengths | further
        if self.rewards is not None:
            lengths["rewards"] = len(self.rewards)
        of_fields = {name: len(array) for name, array in self.fields.items()}
        lengths |= of_fields
        is_wrong = set(rows.values()) != {expected} or {lengths.get("rewards", steps), *of_fields.values()} != {steps}
        if is_wrong or (self.rewards is not None and self.rewards.shape not in ((steps,), (steps, 1))):
            raise DatasetError(f"{self.where} holds arrays of different lengths: {lengths}")


class DividedDataset(Dataset):
    """A data set with arrays of its own for each episode; each is read when its turn comes.

    Args:
        path: the file.
        episodes: the arrays of all episodes.
        answers: what the user says.

    Raises:
        DatasetError: arrays of an episode have different lengths, or actions are not counted from 0.
    """

    def __init__(self, path: Path, episodes: Sequence[EpisodeArrays], answers: Answers) -> None:
        super().__init__(path, About())
        for one in episodes:
            one.check()
            check_actions(one.actions, answers, path)
        self.left_out = last_steps_left_out(
            np.array([len(one.actions) for one in episodes], np.int64),
            np.array([one.terminated for one in episodes], np.bool_),
            np.array([not one.has_final for one in episodes], np.bool_),
        )
        cut = self.left_out.of_terminated
        read = [
            replace(one, terminated=False, truncated=True) if is_cut else one
            for one, is_cut in zip(episodes, cut, strict=True)
        ]
        self._arrays, self._answers = [one for one in read if len(one)], answers
        self._lengths = [len(one) for one in self._arrays]

    def _episodes(self) -> Iterator[Episode]:
        for number, one in enumerate(self._arrays):
            steps, facts = len(one), {"number": number, **one.facts}
            observations: dict[str, Array] = {}
            for name, part in one.observations.items():
                before = as_columns(part[: steps + 1])
                if one.following is not None:
                    before = np.concatenate([before, as_columns(one.following[name][steps - 1 : steps])])
                elif len(before) == steps:
                    before = np.concatenate([before, before[-1:]])
                    facts["last_observation"] = "not recorded"
                observations[name] = before
            rewards = np.zeros(steps, np.float32) if one.rewards is None else one.rewards[:steps]
            yield Episode(
                as_observations(observations),
                {
                    ACT: read_actions(one.actions[:steps], self._answers),
                    REW: np.asarray(rewards).reshape(-1, 1),
                    **{
                        name: np.asarray(array[:steps], np.float64).reshape(steps, -1)
                        for name, array in one.fields.items()
                    },
                },
                terminated=one.terminated,
                truncated=one.truncated,
                facts=facts,
            )
