"""Flat arrays: the concatenated steps of all episodes, as in the files of D4RL and stable-baselines3.

Such data sets mark the ends of episodes, but may lack their final observations. The last step of an episode without a
final observation is left out, unless it is terminal: then nothing is bootstrapped from the final observation, so that
the one before it takes its place, and ``facts`` have "last_observation": "not recorded".
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.datasets.dataset import About, Dataset
from storages.datasets.untrusted import MemoryBudget, child_node, is_numeric, nbytes_of, numbers, open_hdf5
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, REW, Array

Ends: TypeAlias = Literal["unknown", "terminated", "truncated"]
"""How episodes ended, for files that do not distinguish termination from truncation."""
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class FlatNames:
    """The names of the arrays (N, ...) of N steps in a file.

    Args:
        observations: the observation before each step.
        actions: the action of each step.
        rewards: the reward of each step.
        terminals: true where the environment terminated an episode.
        timeouts: true where a time limit truncated an episode.
        episode_starts: true at the first step of an episode.
        next_observations: the observation after each step.
    """

    observations: str = "observations"
    actions: str = "actions"
    rewards: str = "rewards"
    terminals: str | None = None
    timeouts: str | None = None
    episode_starts: str | None = None
    next_observations: str | None = None

    def named(self) -> dict[str, str]:
        """Return the names that are not None, by argument name."""
        return {key: name for key, name in asdict(self).items() if name is not None}


D4RL = FlatNames(terminals="terminals", timeouts="timeouts", next_observations="next_observations")
STABLE_BASELINES3 = FlatNames(observations="obs", episode_starts="episode_starts")


def names_in(arrays: Mapping[str, Any], path: Path) -> FlatNames:
    """Recognise the array names of a known library in a file.

    Raises:
        DatasetError: the names are those of no known library.
    """
    for known in (D4RL, STABLE_BASELINES3):
        there = {key: name for key, name in known.named().items() if name in arrays}
        if {"observations", "actions", "rewards"} <= there.keys() and {"terminals", "episode_starts"} & there.keys():
            return FlatNames(**there)
    raise DatasetError(
        f"{path} has arrays of unknown names, {', '.join(arrays)}; specify their meaning: "
        f"names=FlatNames(observations=..., actions=..., rewards=..., terminals=..., ...)"
    )


class FlatDataset(Dataset):
    """A data set of flat arrays.

    Args:
        path: the file.
        arrays: its arrays by name, whose first axis can be sliced like that of a NumPy array.
        names: the names of the arrays to use.
        ends: how episodes ended, if the file does not say so.

    Raises:
        DatasetError: an array is missing, or has another length or shape than the others.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Any], names: FlatNames, ends: Ends) -> None:
        super().__init__(path, About())
        named = names.named()
        missing = [name for name in named.values() if name not in arrays]
        if missing:
            raise DatasetError(f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays)}")
        self._arrays = {key: arrays[name] for key, name in named.items()}
        lengths = {named[key]: len(array) for key, array in self._arrays.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(f"{path} holds arrays of different lengths: {lengths}")
        for key in ("rewards", "terminals", "timeouts", "episode_starts"):
            array = self._arrays.get(key)
            if array is not None and math.prod(array.shape) != len(array):
                raise DatasetError(f"{path}: {named[key]} has shape {tuple(array.shape)}, not one number per step")
        self._bounds = _Bounds(self._arrays, ends)
        self._lengths = (self._bounds.end - self._bounds.first).tolist()

    def _episodes(self) -> Iterator[Episode]:
        bounds = self._bounds
        for number, (first, end) in enumerate(zip(bounds.first, bounds.end, strict=True)):
            observations = _of_columns(self._arrays["observations"][first:end])
            facts: dict[str, Any] = {"number": number}
            if "next_observations" in self._arrays:
                last = _of_columns(self._arrays["next_observations"][end - 1 : end])
            elif bounds.recorded_further[number]:
                last = _of_columns(self._arrays["observations"][end : end + 1])
            else:
                last = observations[-1:]
                facts["last_observation"] = "not recorded"
            actions = _of_columns(self._arrays["actions"][first:end])
            yield Episode(
                np.concatenate([observations, last]),
                {
                    ACT: actions.astype(np.int64) if actions.dtype.kind in "iu" else actions,
                    REW: np.asarray(self._arrays["rewards"][first:end]).reshape(-1, 1),
                },
                terminated=bool(bounds.terminated[number]),
                truncated=bool(bounds.truncated[number]),
                facts=facts,
            )


class D4rlDataset(FlatDataset):
    """Flat arrays in an HDF5 file, such as D4RL's, read episode by episode.

    Args:
        path: the file.
        names: the names of the arrays; if None, those of a known library are recognised.
        ends: how episodes ended, if the file does not say so.

    Raises:
        DatasetError: an array is missing.
    """

    format: ClassVar[str] = "d4rl"

    def __init__(self, path: Path, names: FlatNames | None = None, ends: Ends = "unknown") -> None:
        file = open_hdf5(path)
        self._file = file
        names = names or names_in(file, path)
        named = names.named().values()
        nodes = {name: child_node(file, name, str(path)) for name in file}
        arrays = {name: node for name, node in nodes.items() if name in named or is_numeric(node)}
        budget = MemoryBudget(path)
        for name in set(named).intersection(arrays):
            budget.take(nbytes_of(numbers(arrays[name], str(path))), name)
        super().__init__(path, arrays, names, ends)


class _Bounds:
    """Bounds of the episodes, arrays (episodes,).

    Args:
        arrays: the arrays, by argument name of :class:`FlatNames`.
        ends: how episodes ended, if no array says so.
    """

    def __init__(self, arrays: Mapping[str, Any], ends: Ends) -> None:
        count = len(arrays["rewards"])
        terminals, timeouts = (_flags(arrays.get(key), count) for key in ("terminals", "timeouts"))
        last = terminals | timeouts
        if "episode_starts" in arrays:
            last[:-1] |= _flags(arrays["episode_starts"], count)[1:]
        if "next_observations" in arrays:
            last |= _breaks(arrays)
        last[-1:] = True
        ending = np.flatnonzero(last)
        first = np.concatenate([[0], ending[:-1] + 1]).astype(np.int64)[: len(ending)]
        terminated, truncated = terminals[ending], timeouts[ending]
        if "terminals" not in arrays and ends != "unknown":
            terminated, truncated = (np.full(len(ending), ends == way) for way in ("terminated", "truncated"))
        # A step without its next observation is of no use, unless it is terminal.
        shortened = ~terminated if "next_observations" not in arrays else np.zeros_like(terminated)
        kept = ending + 1 - shortened - first > 0
        self.first: NDArray[np.int64] = first[kept]
        self.end: NDArray[np.int64] = (ending + 1 - shortened)[kept]
        self.terminated, self.truncated = terminated[kept], truncated[kept]
        self.recorded_further = shortened[kept]
        """Whether the last step was left out, whose observation is then the final one."""


def _flags(array: Any, count: int) -> NDArray[np.bool_]:
    return np.zeros(count, np.bool_) if array is None else np.asarray(array[:]).reshape(-1) != 0


def _breaks(arrays: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return whether the next observation of each step (N,) differs from the observation of the following step."""
    observations, following = arrays["observations"], arrays["next_observations"]
    breaks = np.zeros(len(observations), np.bool_)
    for begin in range(0, len(breaks) - 1, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, len(breaks) - 1)
        here, there = np.asarray(following[begin:end]), np.asarray(observations[begin + 1 : end + 1])
        # NaN counts as equal to itself.
        differs = (here != there) & ~((here != here) & (there != there))
        breaks[begin:end] = differs.reshape(end - begin, -1).any(axis=1)
    return breaks


def _of_columns(array: Any) -> Array:
    """Return an array (L, ...); one number per step becomes (L, 1)."""
    values: Array = np.asarray(array)
    return values[:, None] if values.ndim == 1 else values
