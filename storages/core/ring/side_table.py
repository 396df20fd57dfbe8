"""Room for what stands aside of a few transitions: the true last observations of episodes, frames before a stream.

Places are handed out and freed in the order of time, so they form a queue round an array, which grows to the most that
were ever taken at once. Each transition has a number that says which place is its own: number ``a`` lies in place
``a % places``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.insert import LARGEST_NUMBER, NEXT, OLDEST

NOTHING = -1
_FEWEST_PLACES = 1


class SideTable:
    """What stands aside of the transitions of a ring.

    Args:
        numbers: (rows, E) int32, the transitions' numbers, negative where they have none; kept by this.
    """

    def __init__(self, numbers: NDArray[np.int32]) -> None:
        self.numbers = numbers
        self.numbers.fill(NOTHING)
        self.places = _FEWEST_PLACES
        self.queue = np.zeros(2, np.int64)
        """Numbers of the oldest place that is taken, and of the next to be taken."""
        self._values: dict[str, NDArray[np.uint8]] = {}

    def add(self, name: str, width: int) -> None:
        """Make room for a kind of values, of so many bytes each."""
        self._values[name] = np.zeros((self.places, width), np.uint8)

    def values(self, name: str) -> NDArray[np.uint8]:
        """(places, bytes); another array once there are more places."""
        return self._values[name]

    @property
    def oldest(self) -> int:
        """Number, counted without going round, of what has stood aside for longest."""
        return int(self.queue[OLDEST])

    @property
    def following(self) -> int:
        """Number, counted without going round, of what will be put aside next."""
        return int(self.queue[NEXT])

    @property
    def nbytes(self) -> int:
        """Bytes of the places; the numbers are their owner's."""
        return sum(values.nbytes for values in self._values.values())

    def reserve(self, slot: int, envs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give transitions of a slot numbers of their own; returns their places."""
        self.make_room_for(len(envs))
        numbers: NDArray[np.int64] = self.queue[NEXT] + np.arange(len(envs))
        self.queue[NEXT] += len(envs)
        self.numbers[slot, envs] = numbers & LARGEST_NUMBER
        return numbers % self.places

    def free(self, slot: int) -> None:
        """Take back the places of the oldest slot that has any."""
        if self.queue[NEXT] > self.queue[OLDEST]:
            numbers = self.numbers[slot]
            self.queue[OLDEST] += np.count_nonzero(numbers >= 0)
            numbers.fill(NOTHING)

    def free_all(self, slots: NDArray[np.int64]) -> None:
        """Take back the places of the oldest slots that have any."""
        self.queue[OLDEST] += np.count_nonzero(self.numbers[slots] >= 0)
        self.numbers[slots] = NOTHING

    def withdraw(self, slots: NDArray[np.int64]) -> None:
        """Take back the places of the newest slots, which were given out last."""
        self.queue[NEXT] -= np.count_nonzero(self.numbers[slots] >= 0)
        self.numbers[slots] = NOTHING

    def clear(self) -> None:
        """Take back all places."""
        self.queue[OLDEST] = self.queue[NEXT]
        self.numbers.fill(NOTHING)

    def saved(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int32], dict[str, NDArray[np.uint8]]]:
        """Numbers of slots, oldest first, counted from 0, and what stands aside for them in that order."""
        numbers = np.ascontiguousarray(self.numbers[slots])
        taken = np.flatnonzero(numbers >= 0)
        # As a rule there are few, or none.
        flat = numbers.reshape(-1)
        places = flat[taken] & (self.places - 1)
        flat[taken] = np.arange(len(taken), dtype=np.int32)
        return numbers, {name: values[places] for name, values in self._values.items()}

    def append(
        self, slots: NDArray[np.int64], numbers: NDArray[np.int32], values: dict[str, NDArray[np.uint8]]
    ) -> None:
        """Take up what was saved, of slots newer than all that have something aside."""
        taken = numbers >= 0
        count = int(np.count_nonzero(taken))
        self.make_room_for(count)
        given: NDArray[np.int64] = self.queue[NEXT] + np.arange(count)
        self.queue[NEXT] += count
        own = numbers.copy()
        own[taken] = given & LARGEST_NUMBER
        self.numbers[slots] = own
        for name, saved in values.items():
            self._values[name][given % self.places] = saved

    def make_room_for(self, more: int) -> None:
        """So many are about to be put aside; the values may lie elsewhere then."""
        oldest, following = self.queue.tolist()
        places, needed = self.places, following - oldest + more
        while places < needed:
            places *= 2
        if places == self.places:
            return
        held = np.arange(oldest, following)
        for name, values in self._values.items():
            grown: NDArray[Any] = np.zeros((places, values.shape[1]), np.uint8)
            grown[held % places] = values[held % self.places]
            self._values[name] = grown
        self.places = places
