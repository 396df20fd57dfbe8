"""The action space of discrete choices and continuous numbers that are joined to one array."""

from collections.abc import Iterable
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray


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
