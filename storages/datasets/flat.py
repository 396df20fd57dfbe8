"""Flat arrays: the concatenated steps of all episodes, as in the files of D4RL and stable-baselines3.

Such data sets mark the ends of episodes, but may lack their final observations. The last step of an episode without a
final observation is left out, unless it is terminal: then nothing is bootstrapped from the final observation, so that
the one before it takes its place, and ``facts`` have "last_observation": "not recorded".
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.answers import Answers
from storages.datasets.columns import as_columns, check_actions, find_array, parts_of, read_actions
from storages.datasets.dataset import About, Dataset
from storages.datasets.episode_bounds import FLAGS, EpisodeBounds
from storages.datasets.known_names import flags_in, names_in, with_dones
from storages.episode import Episode, Observations
from storages.errors import DatasetError
from storages.transition import ACT, REW, Array

FLAT_ANSWERS = frozenset(
    {"names", "ends", "timeouts", "max_episode_steps", "episode", "rewards", "first_action", "leave_out"}
)


class FlatDataset(Dataset):
    """A data set of flat arrays.

    Args:
        path: the file.
        arrays: its arrays by name, whose first axis can be sliced like that of a NumPy array; groups are mappings.
        answers: what the user says about them.

    Raises:
        AmbiguousDataError: it is unknown what the arrays mean, or where episodes end.
        DatasetError: an array is missing, or has another length or shape than the others.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Any], answers: Answers) -> None:
        super().__init__(path, About())
        names = with_dones(names_in(arrays, answers, path), arrays, answers)
        named = names.named()
        texts = getattr(arrays, "texts", ())
        if wrong := [name for key, name in named.items() if key != "episode" and set(name.split(",")) & set(texts)]:
            raise DatasetError(f"{path}: {', '.join(wrong)} is text; only numbers are read, and texts for episodes")
        found = {key: find_array(arrays, name, path) for key, name in named.items()}
        self._observations = parts_of(found.pop("observations"), answers.leave_out, path)
        following = found.pop("next_observations", None)
        self._following = None if following is None else parts_of(following, answers.leave_out, path)
        self._actions, self._rewards = found["actions"], found.get("rewards")
        self._answers = answers
        self._check_lengths(found, named)
        check_actions(self._actions, answers, path)
        flags = {key: array for key, array in found.items() if key in (*FLAGS, "episode")}
        self._bounds = EpisodeBounds(path, flags, self._observations, self._following, names, answers, arrays)
        self._lengths = (self._bounds.end - self._bounds.first).tolist()
        self.unused_flags = flags_in(arrays, named.values(), len(self._actions))
        """Names of arrays that look like flags, and say nothing here."""

    def _check_lengths(self, found: Mapping[str, Any], named: Mapping[str, str]) -> None:
        parts = {named["observations"]: self._observations, named.get("next_observations", ""): self._following or {}}
        lengths = {
            "/".join(filter(None, (name, part))): len(array) for name, of in parts.items() for part, array in of.items()
        }
        lengths |= {named[key]: len(array) for key, array in found.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(f"{self.path} holds arrays of different lengths: {lengths}")
        if self._following is not None and self._following.keys() != self._observations.keys():
            raise DatasetError(
                f"{self.path}: next observations have the parts {sorted(self._following)}, observations "
                f"{sorted(self._observations)}"
            )
        rewards = self._rewards
        if rewards is not None and math.prod(rewards.shape) != len(rewards):
            raise DatasetError(
                f"{self.path}: {named['rewards']} has shape {tuple(rewards.shape)}, not one number per step"
            )

    def _episodes(self) -> Iterator[Episode]:
        bounds = self._bounds
        for number, (first, end) in enumerate(zip(bounds.first.tolist(), bounds.end.tolist(), strict=True)):
            facts: dict[str, Any] = {"number": number}
            observations: dict[str, Array] = {}
            for name, part in self._observations.items():
                before = as_columns(part[first:end])
                if bounds.recorded_further[number]:
                    after = as_columns(part[end : end + 1])
                elif self._following is not None:
                    after = as_columns(self._following[name][end - 1 : end])
                else:
                    after = before[-1:]
                    facts["last_observation"] = "not recorded"
                observations[name] = np.concatenate([before, after])
            rewards = np.zeros(end - first, np.float32) if self._rewards is None else self._rewards[first:end]
            yield Episode(
                as_observations(observations),
                {
                    ACT: read_actions(self._actions[first:end], self._answers),
                    REW: np.asarray(rewards).reshape(-1, 1),
                },
                terminated=bool(bounds.terminated[number]),
                truncated=bool(bounds.truncated[number]),
                facts=facts,
            )


def as_observations(parts: dict[str, Array]) -> Observations:
    """Return one array, or a dict of the parts."""
    return parts[""] if list(parts) == [""] else parts
