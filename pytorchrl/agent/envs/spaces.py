"""Supported spaces, and the layout of their observations and actions in arrays.

Scalars keep a trailing axis of one, so a Discrete observation or action is (E, 1) here and (E,) in gymnasium.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray


class UnsupportedSpaceError(ValueError):
    """Raised for a space that the environments, the actor or the algorithm cannot handle."""


_MOST_NUMBERS = 10_000_000
"""Maximum size of an observation that a file describes."""

Flat = spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete


def check_observation_space(space: gym.Space[Any], owner: str) -> None:
    """Refuse observation spaces that cannot be stored as arrays.

    Raises:
        UnsupportedSpaceError: neither an array space nor a Dict of array spaces, or without any number.
    """
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    for name, part in parts.items():
        if not isinstance(part, Flat):
            where = f"key {name!r} of the observation space" if name else "the observation space"
            raise UnsupportedSpaceError(
                f"{owner}: {where} is {part}; Box, Discrete, MultiBinary, MultiDiscrete, and Dicts and Tuples of "
                f"these are handled. gymnasium.wrappers.FlattenObservation turns a Text or a OneOf into a Box, "
                f"TransformObservation any other by a function of one's own"
            )
    if not any(math.prod(part.shape or ()) for part in parts.values()):
        raise UnsupportedSpaceError(
            f"{owner}: the observation space {space} has no numbers, of which a network could be made; observe one "
            f"constant, Box(0, 0, (1,))"
        )


def check_widths(space: spaces.Box, owner: str) -> None:
    """Check that no action of a bounded Box has equal bounds, to which [-1, 1] cannot be scaled.

    Raises:
        UnsupportedSpaceError: one has.
    """
    equal = np.argwhere(space.low == space.high)
    if len(equal):
        index = tuple(equal[0].tolist())
        raise UnsupportedSpaceError(
            f"{owner} scales actions from [-1, 1], but both bounds of action {list(index)} are {space.low[index]} in "
            f"{space}; leave this action out, as by gymnasium.wrappers.TransformAction"
        )


def check_action_space(space: gym.Space[Any], owner: str, joining: str = "wrappers=['JoinActions']") -> None:
    """Refuse action spaces whose actions are not arrays.

    Args:
        space: of the actions.
        owner: of the space, for the message.
        joining: what joins the parts of a Dict or a Tuple, for the message.

    Raises:
        UnsupportedSpaceError: it is a Dict, a Tuple, or another structure, or has no numbers.
    """
    if not isinstance(space, Flat):
        raise UnsupportedSpaceError(
            f"{owner}: the action space is {space}; Discrete, MultiDiscrete, MultiBinary and Box are handled. "
            f"{joining} joins the parts of a Dict or a Tuple, and others are made from one of these by "
            f"gymnasium.wrappers.TransformAction"
        )
    if not math.prod(space.shape or ()):
        raise UnsupportedSpaceError(
            f"{owner}: the action space {space} has no numbers, so that there is nothing to learn"
        )


def check_real_actions(space: spaces.Box, owner: str) -> None:
    """Refuse a Box of integers, for an algorithm whose actions are real numbers.

    Raises:
        UnsupportedSpaceError: its dtype is not one of floating-point numbers.
    """
    if not np.issubdtype(space.dtype, np.floating):
        raise UnsupportedSpaceError(
            f"{owner} has continuous actions, the environments have {space}; wrappers=['RoundAction'] rounds them"
        )


def with_trailing_axis(observation: Any, space: gym.Space[Any]) -> Any:
    """Convert a batch of gymnasium's observations to our layout, with an axis of one for scalars."""
    if isinstance(space, spaces.Dict):
        return {name: with_trailing_axis(part, space[name]) for name, part in observation.items()}
    return observation[:, None] if not space.shape else observation


def space_as_data(space: gym.Space[Any]) -> dict[str, Any]:
    """Serialise a space to plain data, in the format of data sets (that of Minari).

    Choices of a :class:`HybridBox` are added to it, which other readers skip.

    Raises:
        UnsupportedSpaceError: its elements are not numbers.
    """
    match space:
        case spaces.Box():
            shape, bounds = list(space.shape), (space.low.tolist(), space.high.tolist())
            data = {"type": "Box", "dtype": str(space.dtype), "shape": shape, "low": bounds[0], "high": bounds[1]}
            return data | {"choices": [list(one) for one in space.choices]} if isinstance(space, HybridBox) else data
        case spaces.Discrete():
            return {"type": "Discrete", "dtype": "int64", "start": int(space.start), "n": int(space.n)}
        case spaces.MultiDiscrete():
            numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
            return {"type": "MultiDiscrete", "dtype": str(space.dtype), **numbers}
        case spaces.MultiBinary():
            return {
                "type": "MultiBinary",
                "n": int(space.n) if isinstance(space.n, int | np.integer) else list(space.n),
            }
        case spaces.Dict():
            return {"type": "Dict", "subspaces": {name: space_as_data(part) for name, part in space.items()}}
        case _:
            raise UnsupportedSpaceError(f"observations and actions of the space {space} cannot be stored")


def compact(data: dict[str, Any]) -> dict[str, Any]:
    """Shorten the data of :func:`space_as_data`: bounds that are all equal become one number."""
    if data["type"] == "Dict":
        return data | {"subspaces": {name: compact(part) for name, part in data["subspaces"].items()}}
    if data["type"] != "Box":
        return data
    bounds = {name: np.unique(np.asarray(data[name])) for name in ("low", "high")}
    return data | {name: values.item() for name, values in bounds.items() if values.size == 1}


def space_from_data(data: Mapping[str, Any]) -> gym.Space[Any]:
    """Deserialise the data of :func:`space_as_data`, compact or not.

    Raises:
        UnsupportedSpaceError: the data do not describe such a space, or one of too many numbers.
    """
    if _size(data) > _MOST_NUMBERS:
        size = {name: data[name] for name in ("type", "shape", "n") if name in data}
        raise UnsupportedSpaceError(f"a space may have at most {_MOST_NUMBERS:,} numbers, got {size}")
    match data.get("type"):
        case "Box":
            shape = tuple(data.get("shape", ()))
            dtype = np.dtype(data["dtype"])
            low, high = (np.broadcast_to(np.asarray(data[bound], dtype), shape) for bound in ("low", "high"))
            if "choices" in data:
                return HybridBox(low, high, dtype.type, data["choices"])
            return spaces.Box(low, high, shape, dtype.type)
        case "Discrete":
            return spaces.Discrete(data["n"], start=data.get("start", 0))
        case "MultiDiscrete":
            start = None if data.get("start") is None else np.asarray(data["start"])
            return spaces.MultiDiscrete(np.asarray(data["nvec"]), _integers(data.get("dtype", "int64")), start=start)
        case "MultiBinary":
            return spaces.MultiBinary(data["n"])
        case "Dict":
            # Pairs, which gymnasium does not sort as it does a dict: networks read parts in the order of the space.
            return spaces.Dict([(name, space_from_data(part)) for name, part in data["subspaces"].items()])
        case _:
            raise UnsupportedSpaceError(f"unknown type of space: {dict(data)}")


def _size(data: Mapping[str, Any]) -> int:
    """Return how many numbers a network would read, or choose from; 0 for a Dict, whose parts are checked apart."""
    match data.get("type"):
        case "Discrete":
            return int(data["n"])
        case "MultiDiscrete":
            return sum(int(n) for n in np.asarray(data["nvec"]).ravel())
        case "MultiBinary":
            return math.prod(int(n) for n in np.atleast_1d(data["n"]))
        case _:
            return math.prod(data.get("shape", ()))


def _integers(name: str) -> type[np.integer[Any]]:
    dtype = np.dtype(name)
    if dtype.kind not in "iu":
        raise UnsupportedSpaceError(f"a MultiDiscrete space must have an integer dtype, got {name!r}")
    scalar: type[np.integer[Any]] = dtype.type
    return scalar


def have_other_bounds(first: gym.Space[Any], second: gym.Space[Any]) -> bool:
    """Return whether two spaces are Boxes of the same shape with different bounds, beyond float32's precision."""
    if not (isinstance(first, spaces.Box) and isinstance(second, spaces.Box)) or first.shape != second.shape:
        return False
    pairs = (first.low, second.low), (first.high, second.high)
    return not all(np.array_equal(one.astype(np.float32), other.astype(np.float32)) for one, other in pairs)


class EnvActions:
    """Convert actions of actors to those of gymnasium's environments.

    Args:
        space: action space of one environment.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        self._start: Any = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else None
        self._counts_from_elsewhere = self._start is not None and bool(np.any(self._start))
        self._is_number = not space.shape
        self._dtype = np.dtype(space.dtype)

    def __call__(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Convert (E, 1) or (E, *action) integers from 0, or numbers within a Box, to the space's (E, *action)."""
        if self._is_number:
            actions = actions[:, 0]
        if self._counts_from_elsewhere:
            actions = actions + self._start
        # In one dtype, so that a replay gives exactly the same.
        return actions if actions.dtype is self._dtype else actions.astype(self._dtype)

    def of_tensors(self, actions: torch.Tensor) -> torch.Tensor:
        """Convert tensors, on their device."""
        actions = actions[:, 0] if self._is_number else actions
        if self._counts_from_elsewhere:
            actions = actions + torch.as_tensor(self._start, device=actions.device)
        return actions.to(torch.from_numpy(np.empty(0, self._dtype)).dtype)


def choices_of(space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> list[int]:
    """Return the number of choices of each component, in the order of flattened ones."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * math.prod(space.shape)
    counts: list[int] = [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.ravel().tolist()
    return counts


def random_actions(space: gym.Space[Any], num_envs: int, generator: np.random.Generator) -> NDArray[Any]:
    """Draw uniformly random actions, (E, 1) int64 or (E, *action); standard normal where a Box has no bounds.

    They are as :meth:`VecEnv.step` takes them: integers count from 0, numbers of a Box are of its dtype.
    """
    if isinstance(space, spaces.Discrete):
        if num_envs == 1:
            # Faster than the general way, with the same numbers.
            return np.array([[generator.integers(int(space.n))]])
        return generator.integers(0, int(space.n), (num_envs, 1), np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return generator.integers(0, space.nvec, (num_envs, *space.shape), np.int64)
    if isinstance(space, spaces.MultiBinary):
        return generator.integers(0, 2, (num_envs, *space.shape), np.int8)
    assert isinstance(space, spaces.Box)
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, 0.0), np.where(bounded, space.high, 1.0)
    shape = (num_envs, *(space.shape or (1,)))
    drawn = np.where(bounded, generator.uniform(low, high, shape), generator.standard_normal(shape))
    return np.clip(drawn, space.low, space.high).astype(space.dtype)


class HybridBox(spaces.Box):
    """A Box of scores of discrete choices, the largest of which is made, beside real numbers.

    Args:
        low: (A,), lower bounds; those of scores are -1.
        high: (A,), upper bounds; those of scores are 1.
        dtype: of actions, a floating-point one.
        choices: for each choice, the first column of its scores, and how many these are.
    """

    def __init__(self, low: NDArray[Any], high: NDArray[Any], dtype: Any, choices: Iterable[Iterable[int]]) -> None:
        super().__init__(low, high, dtype=dtype)
        self.choices = [(int(first), int(count)) for first, count in choices]


def with_bounds(space: spaces.Box, low: NDArray[Any], high: NDArray[Any]) -> spaces.Box:
    """Return a Box of other bounds, of the same choices if it has any."""
    dtype = space.dtype.type
    if isinstance(space, HybridBox):
        return HybridBox(low, high, dtype, space.choices)
    return spaces.Box(low, high, dtype=dtype)
