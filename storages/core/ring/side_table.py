"""Side table for the rare rows whose successor is not stored in the next row.

It holds final observations of ended episodes, and padding frames of the first frame stacks of episodes. Entries are
added and freed in temporal order, so that the table is a circular buffer, which grows to the largest number of entries
held at once. Its capacity is a power of two: entry number ``a`` lies in place ``a % capacity``.
"""

from collections.abc import Callable
from operator import getitem
from typing import Any
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.insert import LARGEST_NUMBER, QUEUE

NOTHING = -1
_SMALLEST_CAPACITY = 1


class SideTable:
    """Growable first-in-first-out table of entries for some of a ring's transitions.

    Args:
        numbers: (rows, E) int32, the number of each transition's entry, negative for none; written by the table.
        grown: the owner's method to call after the arrays were replaced by larger ones. The reference is weak: a cycle
            would keep the ring's memory until the garbage collector runs.
    """

    def __init__(self, numbers: NDArray[np.int32], grown: WeakMethod[Callable[[], None]] | None = None) -> None:
        self.numbers = numbers
        self.numbers.fill(NOTHING)
        self.capacity = _SMALLEST_CAPACITY
        self.queue = np.zeros(1, QUEUE)
        """Numbers of the oldest entry and of the next one; these do not wrap."""
        self._values: dict[str, NDArray[np.uint8]] = {}
        self._grown = grown

    def add(self, name: str, width: int) -> None:
        """Add an array of values, of ``width`` bytes for each entry."""
        self._values[name] = np.zeros((self.capacity, width), np.uint8)

    def values(self, name: str) -> NDArray[np.uint8]:
        """Return an array of values (capacity, bytes), which is replaced when the table grows."""
        return self._values[name]

    @property
    def oldest(self) -> int:
        """Number of the oldest entry; it does not wrap."""
        return self.queue.item()[0]

    @property
    def next_number(self) -> int:
        """Number of the next entry; it does not wrap."""
        return self.queue.item()[1]

    @property
    def live(self) -> int:
        """Number of entries."""
        return self.next_number - self.oldest

    @property
    def nbytes(self) -> int:
        """Bytes of the values; ``numbers`` belong to the owner."""
        return self.capacity * self.bytes_of_an_entry

    @property
    def bytes_of_an_entry(self) -> int:
        """Bytes of the values of one entry."""
        return sum(values.shape[1] for values in self._values.values())

    def append(self, slot: int, envs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add entries for transitions of a slot; return their places."""
        self.reserve(len(envs))
        numbers: NDArray[np.int64] = self.queue["next"] + np.arange(len(envs))
        self.queue["next"] += len(envs)
        self.numbers[slot, envs] = numbers & LARGEST_NUMBER
        return numbers % self.capacity

    def free(self, slot: int) -> None:
        """Free the entries of the oldest slot that has any."""
        if self.queue["next"] > self.queue["oldest"]:
            numbers = self.numbers[slot]
            self.queue["oldest"] += np.count_nonzero(numbers >= 0)
            numbers.fill(NOTHING)

    def free_all(self, slots: NDArray[np.int64]) -> None:
        """Free the entries of the oldest slots that have any."""
        self.queue["oldest"] += np.count_nonzero(self.numbers[slots] >= 0)
        self.numbers[slots] = NOTHING

    def free_newest(self, slots: NDArray[np.int64]) -> None:
        """Free the entries of the newest slots, which were added last."""
        self.queue["next"] -= np.count_nonzero(self.numbers[slots] >= 0)
        self.numbers[slots] = NOTHING

    def clear(self) -> None:
        """Free all entries."""
        self.queue["oldest"] = self.queue["next"]
        self.numbers.fill(NOTHING)

    def saved(
        self,
        slots: NDArray[np.int64],
        entries_of: Callable[[NDArray[np.uint8], NDArray[np.int32]], NDArray[np.uint8]] = getitem,
    ) -> tuple[NDArray[np.int32], dict[str, NDArray[np.uint8]]]:
        """Return the numbers of slots, oldest first, counted from 0, and the values of their entries in that order.

        Args:
            slots: the slots.
            entries_of: returns the entries in some places of an array of values.
        """
        numbers = np.ascontiguousarray(self.numbers[slots])
        taken = np.flatnonzero(numbers >= 0)
        flat = numbers.reshape(-1)
        places = flat[taken] & (self.capacity - 1)
        flat[taken] = np.arange(len(taken), dtype=np.int32)
        return numbers, {name: entries_of(values, places) for name, values in self._values.items()}

    def extend(
        self, slots: NDArray[np.int64], numbers: NDArray[np.int32], values: dict[str, NDArray[np.uint8]]
    ) -> None:
        """Add entries that :meth:`saved` returned, for slots newer than all with entries."""
        taken = numbers >= 0
        count = int(np.count_nonzero(taken))
        self.reserve(count)
        given: NDArray[np.int64] = self.queue["next"] + np.arange(count)
        self.queue["next"] += count
        own = numbers.copy()
        own[taken] = given & LARGEST_NUMBER
        self.numbers[slots] = own
        for name, saved in values.items():
            self._values[name][given % self.capacity] = saved

    def reserve(self, more: int) -> None:
        """Grow until ``more`` entries fit."""
        oldest, following = self.oldest, self.next_number
        capacity, needed = self.capacity, following - oldest + more
        while capacity < needed:
            capacity *= 2
        if capacity == self.capacity:
            return
        held = np.arange(oldest, following)
        for name, values in self._values.items():
            grown: NDArray[Any] = np.zeros((capacity, values.shape[1]), np.uint8)
            grown[held % capacity] = values[held % self.capacity]
            self._values[name] = grown
        self.capacity = capacity
        notify = None if self._grown is None else self._grown()
        if notify is not None:
            notify()
