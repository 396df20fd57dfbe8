"""Joining of Dict and Tuple actions to one array, which actors choose and storages keep."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.spaces import HybridBox, UnsupportedSpaceError, choices_of
from pytorchrl.agent.envs.wrappers.action_wrappers import rounded
from pytorchrl.agent.envs.wrappers.flat_observation import named_parts


class JoinedActions:
    """One array in place of a Dict or Tuple action, for a program that steps no gymnasium environment.

    The array has the numbers of the parts in the order of the space, nested ones in their place: a column for each
    number of a Box, and for each choice a column of its number, where all parts are discrete, or else one with a score
    for each of its possible values. :class:`JoinActions` is the wrapper for environments.

    Args:
        structure: the space, a Dict or a Tuple.
        owner: its name in errors.

    Raises:
        UnsupportedSpaceError: the space is another one, has no parts, or a part that is no array of numbers.
    """

    space: gym.Space[Any]
    """The space of the arrays: what an actor chooses in."""

    def __init__(self, structure: gym.Space[Any], *, owner: str = "JoinedActions") -> None:
        self._structure = structure
        if not isinstance(structure, spaces.Dict | spaces.Tuple):
            raise UnsupportedSpaceError(f"{owner}: the action space must be a Dict or a Tuple, it is {structure}")
        parts = [_joinable(name, part, owner) for name, part in named_parts(structure)]
        if not parts:
            raise UnsupportedSpaceError(f"{owner}: the action space {structure} has no parts")
        self._parts: Sequence[_Choices | _Scores | _Numbers]
        choices = [part for part in parts if isinstance(part, _Choices)]
        if len(choices) == len(parts):
            self._parts = choices
            self.space = spaces.MultiDiscrete([count for part in choices for count in part.counts])
        else:
            self._parts = numbers = [_Scores(part) if isinstance(part, _Choices) else part for part in parts]
            low, high = (np.concatenate(bounds) for bounds in zip(*(part.bounds for part in numbers), strict=True))
            self.space = HybridBox(low, high, low.dtype.type, _scored(numbers))
        self._ends = np.cumsum([part.size for part in self._parts])[:-1]

    def __call__(self, action: NDArray[Any]) -> Any:
        """Return the parts of an action of :attr:`space`, in the structure of the Dict or Tuple."""
        pieces = np.split(np.asarray(action), self._ends)
        return _structured(self._structure, (part(piece) for part, piece in zip(self._parts, pieces, strict=True)))


class JoinActions(gym.ActionWrapper[Any, Any, Any]):
    """Join the parts of Dict and Tuple actions, nested ones too, to one array.

    Discrete parts alone become a MultiDiscrete space. With continuous parts the space is a Box, in which every choice
    of a discrete part has a score in [-1, 1], and the choice with the largest score is made, as in Hausknecht and
    Stone, "Deep Reinforcement Learning in Parameterized Action Space" (arXiv 1511.04143). Numbers of a Box of integers
    are rounded. HyAR learns a representation of such actions. The order is that of the space: see
    :class:`JoinedActions`, which does the same without an environment.

    Args:
        env: with a Dict or a Tuple as action space.

    Raises:
        UnsupportedSpaceError: the action space is another one, has no parts, or a part that is no array of numbers.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._joined = JoinedActions(env.action_space, owner="JoinActions")
        self.action_space: gym.Space[Any] = self._joined.space

    def action(self, action: NDArray[Any]) -> Any:
        """Return the parts of an action, in the structure of the environment's own space."""
        return self._joined(action)


class _Choices(NamedTuple):
    """Choices of a Discrete, MultiDiscrete or MultiBinary space, counted from 0."""

    space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    counts: list[int]
    """How many choices each component has."""
    start: Any
    """The first choice as the space counts it, a number or (*shape,)."""

    @property
    def size(self) -> int:
        return len(self.counts)

    def __call__(self, chosen: NDArray[Any]) -> Any:
        """Convert choices (components,) to an element of the space."""
        return (chosen.reshape(self.space.shape) + self.start).astype(self.space.dtype)[()]


class _Scores(NamedTuple):
    """A score for every choice, of which the largest of each component is taken."""

    choices: _Choices

    @property
    def size(self) -> int:
        return sum(self.choices.counts)

    @property
    def bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.full(self.size, -1, np.float32), np.full(self.size, 1, np.float32)

    def __call__(self, scores: NDArray[Any]) -> Any:
        """Convert scores (choices of all components,) to an element of the space."""
        of_each = np.split(scores, np.cumsum(self.choices.counts)[:-1])
        return self.choices(np.array([np.argmax(each) for each in of_each]))


class _Numbers(NamedTuple):
    """Numbers of a Box."""

    space: spaces.Box

    @property
    def size(self) -> int:
        return int(np.prod(self.space.shape, dtype=np.int64))

    @property
    def bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        dtype = self.space.dtype if self._is_real else np.float32
        return self.space.low.astype(dtype).ravel(), self.space.high.astype(dtype).ravel()

    @property
    def _is_real(self) -> bool:
        return np.issubdtype(self.space.dtype, np.floating)

    def __call__(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Convert numbers (size,) to an element of the space."""
        shaped = numbers.reshape(self.space.shape)
        return shaped.astype(self.space.dtype) if self._is_real else rounded(shaped, self.space)


def _scored(parts: Sequence[_Scores | _Numbers]) -> Iterator[tuple[int, int]]:
    """Yield the first column and the number of the scores of each choice."""
    column = 0
    for part in parts:
        counts = part.choices.counts if isinstance(part, _Scores) else []
        for position, count in enumerate(counts):
            yield column + sum(counts[:position]), count
        column += part.size


def _joinable(name: str, part: gym.Space[Any], owner: str) -> _Choices | _Numbers:
    match part:
        case spaces.Box():
            return _Numbers(part)
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return _Choices(part, choices_of(part), getattr(part, "start", 0))
    raise UnsupportedSpaceError(
        f"{owner}: part {name!r} of the action space is {part}; Box, Discrete, MultiDiscrete and MultiBinary are "
        f"handled"
    )


def _structured(space: gym.Space[Any], elements: Iterator[Any]) -> Any:
    """Put the elements of the parts into the structure of a space."""
    if isinstance(space, spaces.Dict):
        return {key: _structured(part, elements) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_structured(part, elements) for part in space.spaces)
    return next(elements)
