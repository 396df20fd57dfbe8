"""Flat arrays: the steps of all episodes one after the other, as D4RL and stable-baselines3 keep them.

Such data sets say where episodes end, and not always what was seen last. Where that is not there, the last step of an
episode is of no use unless the environment ended it, when what followed has no value: then the observation before
stands in for it, and ``facts`` say "last_observation": "not recorded". Other last steps are left out.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.datasets.dataset import About, Dataset
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, REW, Array

Ends: TypeAlias = Literal["unknown", "terminated", "truncated"]
"""How episodes ended of which nobody said."""
_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class FlatNames:
    """What arrays (N, ...) of N steps are called in a file.

    Args:
        observations: what was seen before each step.
        actions: what was done.
        rewards: what was paid.
        terminals: where the environment ended an episode.
        timeouts: where a limit cut one.
        episode_starts: where one begins.
        next_observations: what was seen after each step.
    """

    observations: str = "observations"
    actions: str = "actions"
    rewards: str = "rewards"
    terminals: str | None = None
    timeouts: str | None = None
    episode_starts: str | None = None
    next_observations: str | None = None

    def named(self) -> dict[str, str]:
        """The names that are there, by what they are of."""
        return {key: name for key, name in asdict(self).items() if name is not None}


D4RL = FlatNames(terminals="terminals", timeouts="timeouts", next_observations="next_observations")
STABLE_BASELINES3 = FlatNames(observations="obs", episode_starts="episode_starts")


def names_in(arrays: Mapping[str, Any]) -> FlatNames | None:
    """Whose names a file has; None where they are nobody's."""
    for known in (D4RL, STABLE_BASELINES3):
        there = {key: name for key, name in known.named().items() if name in arrays}
        if {"observations", "actions", "rewards"} <= there.keys() and {"terminals", "episode_starts"} & there.keys():
            return FlatNames(**there)
    return None


class FlatDataset(Dataset):
    """A data set of flat arrays.

    Args:
        path: the file.
        arrays: what is in it; each is indexed by steps, as numpy's arrays are.
        names: what they are called.
        ends: how episodes ended where the file says that they did, and not how.

    Raises:
        DatasetError: there are no such arrays, or they do not belong together.
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
                raise DatasetError(f"{path}: {named[key]} has shape {tuple(array.shape)}, and not a number a step")
        self._bounds = _Bounds(self._arrays, ends)

    def __len__(self) -> int:
        """Episodes."""
        return len(self._bounds.first)

    @property
    def steps(self) -> int:
        """Transitions of all episodes."""
        return int((self._bounds.end - self._bounds.first).sum())

    def _episodes(self) -> Iterator[Episode]:
        bounds = self._bounds
        for number, (first, end, follows) in enumerate(zip(bounds.first, bounds.end, bounds.follows, strict=True)):
            observations = _of_columns(self._arrays["observations"][first:end])
            if follows:
                last = _of_columns(self._arrays["next_observations"][end - 1 : end])
            elif bounds.recorded_further[number]:
                last = _of_columns(self._arrays["observations"][end : end + 1])
            else:
                last = observations[-1:]
            facts: dict[str, Any] = {"number": number}
            if not follows and not bounds.recorded_further[number]:
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


class _Bounds:
    """Where episodes begin and end, (episodes,) each.

    Args:
        arrays: by what they are.
        ends: how episodes ended of which nobody says.
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
        follows = np.full(len(ending), "next_observations" in arrays)
        # Without what followed it, a step that was not the environment's last is of no use.
        shortened = ~follows & ~terminated
        kept = ending + 1 - shortened - first > 0
        self.first: NDArray[np.int64] = first[kept]
        self.end: NDArray[np.int64] = (ending + 1 - shortened)[kept]
        self.terminated, self.truncated = terminated[kept], truncated[kept]
        self.follows = follows[kept]
        """Where what followed the last step is among the next observations."""
        self.recorded_further = shortened[kept]
        """Where it is what was seen before the step that is left out."""


def _flags(array: Any, count: int) -> NDArray[np.bool_]:
    return np.zeros(count, np.bool_) if array is None else np.asarray(array[:]).reshape(-1) != 0


def _breaks(arrays: Mapping[str, Any]) -> NDArray[np.bool_]:
    """(N,): where the next step begins with something else than what followed."""
    observations, following = arrays["observations"], arrays["next_observations"]
    breaks = np.zeros(len(observations), np.bool_)
    for begin in range(0, len(breaks) - 1, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, len(breaks) - 1)
        here, there = np.asarray(following[begin:end]), np.asarray(observations[begin + 1 : end + 1])
        # NaN follows itself.
        differs = (here != there) & ~((here != here) & (there != there))
        breaks[begin:end] = differs.reshape(end - begin, -1).any(axis=1)
    return breaks


def _of_columns(array: Any) -> Array:
    """(L, ...), with an axis of one where a step has one number."""
    values: Array = np.asarray(array)
    return values[:, None] if values.ndim == 1 else values
