"""The sample of a data set that is plotted, and warnings of suspicious data."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.datasets import Dataset, return_of
from storages.episode import Episode, Observations
from storages.transition import ACT, REW, Array

_MOST_STEPS = 20_000
_AT_A_BOUND = 0.5
"""Share of actions at a bound of the space from which on there is a warning."""
_MOST_SHOWN = 8
"""Numbers that a warning lists."""
_UNFINISHED = 0.2
"""Share of unfinished episodes from which on there is a warning."""


@dataclass(frozen=True)
class DatasetSample:
    """Figures of all episodes of a data set, and a subsample of its steps."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    observations: NDArray[np.float64]
    """(steps, numbers): steps at equal distances, with all parts of an observation concatenated."""
    places: tuple[str, ...]
    """Of each of these numbers, its part and its place in that; an empty text for a pixel of an image."""
    actions: Array
    """(steps, *action): of the same steps."""
    rewards: NDArray[np.float64]
    """(steps,): of the same steps."""
    equal_episodes: tuple[tuple[int, int], ...]
    """Numbers of the episodes that repeat an earlier one in all of its values, and of the earlier ones."""
    bad_numbers: int
    """Numbers of observations, actions and rewards of all steps that are NaN or infinite."""


def sample_of(dataset: Dataset, episodes: Iterable[Episode]) -> DatasetSample:
    """Read a data set once, and return the sample.

    Raises:
        ValueError: it has no step.
    """
    stride = max(1, -(-dataset.steps // _MOST_STEPS))
    of_episodes, steps, seen, bad, offset = [], [], dict[int, int](), 0, 0
    equal = list[tuple[int, int]]()
    for number, episode in enumerate(episodes):
        actions, rewards = episode.fields[ACT], episode.fields[REW]
        of_episodes.append((return_of(episode), len(episode), episode.terminated, episode.truncated))
        seen_there = tuple(np.asarray(part).tobytes() for part in _parts(episode.observations))
        content = hash((seen_there, actions.tobytes(), rewards.tobytes()))
        earlier = seen.setdefault(content, number)
        if earlier != number:
            equal.append((number, earlier))
        bad += sum(_bad(part) for part in (*_parts(episode.observations), actions, rewards))
        rows = slice(offset, None, stride)
        steps.append((_flat(episode.observations, len(episode))[rows], actions[rows], rewards[rows, 0]))
        # The stride goes on across episodes.
        offset = -(len(episode) - offset) % stride
    if not sum(len(one[2]) for one in steps):
        raise ValueError(f"{dataset.path} contains no steps to plot")
    returns, lengths, terminated, truncated = (np.array(column) for column in zip(*of_episodes, strict=True))
    observations, kept_actions, kept_rewards = (np.concatenate(column) for column in zip(*steps, strict=True))
    places = _places(episode.observations)
    ends = returns, lengths, terminated, truncated
    return DatasetSample(*ends, observations, places, kept_actions, kept_rewards, tuple(equal), int(bad))


def data_warnings(
    sample: DatasetSample, action_space: Mapping[str, Any] | None, action_names: Sequence[str] = ()
) -> list[str]:
    """Return warnings of data that may be hard to learn from, a sentence each.

    Args:
        sample: of the data.
        action_space: as plain data; None if unknown.
        action_names: of discrete actions, in the order of their numbers; empty where they have none.
    """
    found = []
    if sample.bad_numbers:
        found.append(f"{sample.bad_numbers:,} numbers are NaN or infinite.")
    constant = [
        place for place, deviation in zip(sample.places, sample.observations.std(0), strict=True) if not deviation
    ]
    if named := list(filter(None, constant)):
        found.append(f"Constant observation dimensions (of {len(sample.places)}): {_listed(named)}.")
    if pixels := constant.count(""):
        found.append(f"{pixels:,} of {sample.places.count(''):,} pixels are constant.")
    if len(sample.returns) > 1 and np.ptp(sample.returns) == 0:
        found.append(f"All episodes return {sample.returns[0]:g}.")
    elif np.ptp(sample.rewards) == 0 and len(sample.rewards) > 1:
        found.append(f"All rewards are {sample.rewards[0]:g}; returns differ only by the lengths of episodes.")
    if sample.equal_episodes:
        pairs = sample.equal_episodes
        shown = ", ".join(f"{number} that of {earlier}" for number, earlier in pairs[:_MOST_SHOWN])
        more = f" and {len(pairs) - _MOST_SHOWN:,} more" if len(pairs) > _MOST_SHOWN else ""
        repeat = "episode repeats" if len(pairs) == 1 else "episodes repeat"
        found.append(f"{len(pairs):,} {repeat} all values of an earlier one (counted from 0): {shown}{more}.")
    unfinished = float(np.mean(~sample.terminated & ~sample.truncated))
    if unfinished >= _UNFINISHED:
        found.append(f"{unfinished:.0%} of the episodes break off: they are neither terminated nor truncated.")
    found += _data_warnings_actions(sample.actions, action_space, action_names)
    return found


def _data_warnings_actions(actions: Array, space: Mapping[str, Any] | None, names: Sequence[str]) -> Iterator[str]:
    flat = actions.reshape(len(actions), -1)
    if space is not None and space["type"] == "Discrete":
        missing = np.setdiff1d(np.arange(space["n"]), flat)
        if len(missing):
            named = [names[number] for number in missing] if len(names) == space["n"] else missing
            yield f"Actions {_listed(named)} of {space['n']} are never taken."
        outside = float(np.mean((flat < 0) | (flat >= space["n"]) | (flat != np.floor(flat))))
        if outside:
            yield f"{outside:.1%} of the actions are none of the {space['n']} of their space, counted from 0."
        return
    constant = np.flatnonzero(flat.std(0) == 0)
    if len(constant):
        yield f"Constant action dimensions (of {flat.shape[1]}): {_listed(constant)}."
    if space is not None and space["type"] == "Box":
        bounds = (np.asarray(space[side], np.float64) for side in ("low", "high"))
        low, high = (np.broadcast_to(bound, actions.shape[1:]).ravel() for bound in bounds)
        at_a_bound = float(np.mean((flat <= low) | (flat >= high)))
        if at_a_bound >= _AT_A_BOUND:
            yield f"{at_a_bound:.0%} of the actions are at a bound of their space."
        outside = float(np.mean((flat < low) | (flat > high)))
        if outside:
            yield f"{outside:.1%} of the actions are outside their space."


def _listed(numbers: Sequence[Any] | NDArray[np.int64]) -> str:
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN]))
    return f"{shown} and {len(numbers) - _MOST_SHOWN:,} more" if len(numbers) > _MOST_SHOWN else shown


def _parts(observations: Observations) -> list[Array]:
    return [observations] if isinstance(observations, np.ndarray) else list(observations.values())


def _flat(observations: Observations, steps: int) -> NDArray[np.float64]:
    parts = [np.asarray(part[:steps]).reshape(steps, -1) for part in _parts(observations)]
    return np.concatenate(parts, axis=1).astype(np.float64)


def _places(observations: Observations) -> tuple[str, ...]:
    """Return the place of each number of an observation; see :attr:`DatasetSample.places`."""
    named = {"": observations} if isinstance(observations, np.ndarray) else observations
    places: list[str] = []
    for name, part in named.items():
        count, is_image = math.prod(part.shape[1:]), part.dtype == np.uint8 and part.ndim > _OF_VECTORS
        places += [""] * count if is_image else [f"{name}{f'[{at}]' if name else at}" for at in range(count)]
    return tuple(places)


_OF_VECTORS = 2
"""Axes of steps of vectors; images have more."""


def _bad(values: Array) -> int:
    return int(np.count_nonzero(~np.isfinite(values))) if values.dtype.kind == "f" else 0
