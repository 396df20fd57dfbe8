"""Transitions with which a row of a batch may begin."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TransitionRange:
    """Transitions of consecutive steps, or of those whose number is a multiple of a stride."""

    first: int
    """Number of the first one; with a stride above 1, that of the first environment."""
    end: int
    """Number after the last one."""
    envs: int = 1
    stride: int = 1

    @property
    def count(self) -> int:
        """How many there are."""
        if self.stride == 1:
            return self.end - self.first
        return -(-(self.end - self.first) // (self.envs * self.stride)) * self.envs

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,): those at some positions (N,), in rising order."""
        if self.stride > 1:
            positions = positions + positions // self.envs * ((self.stride - 1) * self.envs)
        return self.first + positions

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,): whether each of some transitions (N,) is one of them."""
        found: NDArray[np.bool_] = (self.first <= transitions) & (transitions < self.end)
        return found if self.stride == 1 else found & (transitions // self.envs % self.stride == 0)


@dataclass(frozen=True, slots=True)
class TransitionList:
    """Transitions by their numbers."""

    numbers: NDArray[np.int64]
    """(N,), N at least 1, in rising order."""

    @property
    def first(self) -> int:
        """Number of the first one."""
        return int(self.numbers[0])

    @property
    def end(self) -> int:
        """Number after the last one."""
        return int(self.numbers[-1]) + 1

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.numbers)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,): those at some positions (N,)."""
        return self.numbers[positions]

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,): whether each of some transitions (N,) is one of them."""
        places = np.minimum(np.searchsorted(self.numbers, transitions), len(self.numbers) - 1)
        found: NDArray[np.bool_] = self.numbers[places] == transitions
        return found


Candidates: TypeAlias = TransitionRange | TransitionList
"""Transitions with which a row may begin."""
