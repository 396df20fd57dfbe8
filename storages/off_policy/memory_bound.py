"""Bound on the memory of a ring's side tables, which grow as episodes end."""

import weakref
from typing import Any, Protocol

import numpy as np

from storages.core.parts import RingObserver
from storages.core.ring.memory_share import power_of_two_from
from storages.core.ring.ring import Ring
from storages.transition import Sample

_SHARES = (16, 8, 4, 2)
"""The capacity is reconsidered when the ring is filled to one of these fractions."""


class Shrinkable(Protocol):
    """A storage whose capacity can be reduced."""

    def shrink(self, size: int) -> None:
        """Reduce the capacity to ``size`` steps, and drop older ones."""


class MemoryBound(RingObserver):
    """Reduces the capacity of a ring where its side tables need more than the memory left for them.

    The capacity is estimated from the episodes so far while the ring is filled, when few rows have to be copied, and
    reduced later where episodes become shorter. It depends on what is stored alone, so that a resumed run has the same.

    Args:
        storage: owner of the ring, weakly referenced.
    """

    def __init__(self, storage: Shrinkable) -> None:
        self._storage = weakref.ref(storage)
        self._fitting: list[int] = []
        """Entries of each table up to which they fit together."""
        self._bytes_of_tables = 0
        """Bytes that were left for the tables then."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Make room for the entries of one step, and of the end of the one before it."""
        if not ring.layout:
            return
        tables, more, live = ring.columns.tables, 2 * ring.envs, ring.live_steps
        if self._bytes_of_tables != ring.bytes_of_tables:
            self._fitting, self._bytes_of_tables = [0] * len(tables), ring.bytes_of_tables
        for table, fitting in zip(tables, self._fitting, strict=True):
            if table.next_number - table.oldest + more > fitting:
                break
        else:
            if live * _SHARES[0] < ring.size or not _is_due(ring, live):
                return
        self._make_room(ring, more, _is_due(ring, live))

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many steps surely fit, up to the number at which the capacity is reconsidered."""
        if not ring.layout or self._bytes_of_tables != ring.bytes_of_tables:
            return 1
        live = ring.live_steps
        free = min(
            fitting - (table.next_number - table.oldest)
            for table, fitting in zip(ring.columns.tables, self._fitting, strict=True)
        )
        until = min((ring.size // share - live for share in _SHARES if ring.size // share > live), default=ring.size)
        return max(1, min(free // ring.envs - 1, until))

    def _make_room(self, ring: Ring, more: int, is_due: bool) -> None:
        tables, live = ring.columns.tables, ring.live_steps
        slots = np.arange(ring.oldest, ring.steps)[::-1] % ring.rows
        # Entries of the newest row, of the newest two, ...
        of_newest = [np.cumsum((table.numbers[slots] >= 0).sum(1)) for table in tables]

        def entries(size: int) -> list[int]:
            """Estimate how many entries a ring of this capacity needs."""
            kept = min(size, live)
            return [-(-int(counts[kept - 1]) * size // kept) + more if kept else more for counts in of_newest]

        needed = [power_of_two_from(table.next_number - table.oldest + more) for table in tables]
        widths = [table.bytes_of_an_entry for table in tables]
        fits = sum(width * count for width, count in zip(widths, needed, strict=True)) <= ring.bytes_of_tables
        if not fits or is_due:
            size = ring.size_for_tables(entries, smaller=not fits)
            if size < ring.size:
                storage = self._storage()
                assert storage is not None
                storage.shrink(size)
                needed = [power_of_two_from(table.next_number - table.oldest + more) for table in ring.columns.tables]
        self._fitting, self._bytes_of_tables = needed, ring.bytes_of_tables

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryBound, (self._storage(),)


def _is_due(ring: Ring, live: int) -> bool:
    return any(live == ring.size // share for share in _SHARES)
