"""Changes of the capacity of a replay buffer: growth without a bound, and reduction within one of memory."""

import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from storages.core.parts import RingObserver
from storages.core.ring.memory_limit import power_of_two_from
from storages.core.ring.ring import Ring
from storages.transition import Sample

if TYPE_CHECKING:
    from storages.off_policy.replay_buffer import ReplayBuffer

_SHARES = (16, 8, 4, 2)
"""The capacity is reconsidered when the ring is filled to one of these fractions."""


class RingGrowth(RingObserver):
    """Doubles the capacity of a full ring, so that an insertion takes amortised constant time.

    Args:
        storage: owner of the ring, weakly referenced.
    """

    def __init__(self, storage: "ReplayBuffer") -> None:
        self._storage = weakref.ref(storage)

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Double the capacity if the ring is full.

        Raises:
            MemoryError: there is not enough memory; the step is refused.
        """
        if ring.live_steps == ring.size:
            storage = self._storage()
            assert storage is not None
            try:
                storage.resize(2 * ring.size)
            except MemoryError as error:
                held = ring.columns.nbytes
                raise MemoryError(
                    f"{ring.owner}: size=None keeps all steps, and there is no memory to double the capacity of "
                    f"{ring.size:,} steps, which take {held:,} bytes: {error}. Nothing that was stored is lost, and "
                    f"nothing more can be stored here. Make it with size= or max_bytes=, which drop the oldest steps, "
                    f"or go on where there is more memory"
                ) from error

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many more steps fit."""
        return ring.size - ring.live_steps

    def __reduce__(self) -> tuple[Any, ...]:
        return RingGrowth, (self._storage(),)


class MemoryBound(RingObserver):
    """Reduces the capacity of a ring where its side tables need more than the memory left for them.

    The capacity is estimated from the episodes so far while the ring is filled, when few rows have to be copied, and
    reduced later where episodes become shorter. It depends on what is stored alone, so that a resumed run has the same.

    Args:
        storage: owner of the ring, weakly referenced.
    """

    def __init__(self, storage: "ReplayBuffer") -> None:
        self._storage = weakref.ref(storage)
        self._next_look = 0
        """Number of steps before which the tables cannot need more than they may, and nothing is to be estimated."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Make room for the entries of one step, and of the end of the one before it."""
        if ring.steps >= self._next_look and ring.layout:
            self._check_tables(ring)

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many steps may be inserted before the next look."""
        return max(1, self._next_look - ring.steps)

    def after_change(self, ring: Ring) -> None:
        """Look again before the next insertion."""
        self._next_look = 0

    def after_resize(self, ring: Ring) -> None:
        """Look again before the next insertion."""
        self._next_look = 0

    def _check_tables(self, ring: Ring) -> None:
        live, more = ring.live_steps, 2 * ring.envs
        is_due = any(live == ring.size // share for share in _SHARES)
        assert ring.limit is not None
        fits = sum(self._bytes_needed(ring, more)) <= ring.limit.bytes_of_tables
        if not fits or is_due:
            self._make_room(ring, more, fits)
        # A step adds at most an entry for each environment, and ends the step before it.
        free = min(power_of_two_from(table.live + more) - table.live for table in ring.columns.tables)
        until_due = min((due for share in _SHARES if (due := ring.size // share - live) > 0), default=sys.maxsize)
        self._next_look = ring.steps + max(1, min(free // ring.envs - 3, until_due))

    def _bytes_needed(self, ring: Ring, more: int) -> list[int]:
        return [table.bytes_of_an_entry * power_of_two_from(table.live + more) for table in ring.columns.tables]

    def _make_room(self, ring: Ring, more: int, fits: bool) -> None:
        live, slots = ring.live_steps, np.arange(ring.oldest, ring.steps)[::-1] % ring.rows
        # Entries of the newest row, of the newest two, ...
        of_newest = [np.cumsum((table.numbers[slots] >= 0).sum(1)) for table in ring.columns.tables]

        def entries(size: int) -> list[int]:
            """Estimate how many entries a ring of this capacity needs."""
            kept = min(size, live)
            return [-(-int(counts[kept - 1]) * size // kept) + more if kept else more for counts in of_newest]

        limit = ring.limit
        assert limit is not None
        size = limit.size_for_tables(ring.columns.tables, entries, ring.size if fits else limit.smaller(ring.size))
        if size < ring.size:
            storage = self._storage()
            assert storage is not None
            storage.shrink(size)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryBound, (self._storage(),)
