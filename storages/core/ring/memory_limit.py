"""How a bound on memory is shared between the rows of a ring and its side tables.

The rows take the same memory however long episodes are. A side table, of final observations or padding frames, has an
entry for each episode, and doubles when it is full. So a power of two of entries of final observations is left free:
about one for each 16 to 32 transitions, which suffices for episodes of that length. Where they are shorter, the rows
become fewer.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from storages.core.ring.columns import Columns
from storages.core.ring.layout import SampleError
from storages.core.ring.side_table import SideTable

_TRANSITIONS_OF_AN_ENTRY = 16


class MemoryLimit:
    """Bound on the memory of a ring, from which its capacity follows.

    A part is left for the side tables, of final observations and of padding frames, which grow as episodes end; the
    ring is shrunk where they would need more.

    Args:
        max_bytes: memory bound of the steps.
        bytes_beside: bytes that observers keep for each transition, which count towards the bound.
        bytes_apart: bytes that they keep however many transitions there are.
        least_size: steps that must fit.
        most: largest capacity.
    """

    def __init__(self, max_bytes: int, bytes_beside: int, bytes_apart: int, least_size: int, most: int) -> None:
        self.max_bytes, self.most = max_bytes, most
        self._bytes_beside, self._bytes_apart, self._least_size = bytes_beside, bytes_apart, least_size
        self._share: MemoryShare | None = None
        self.bytes_of_tables = 0
        """Most bytes of the side tables; known with the layout."""

    def size_of(
        self, one: Columns, two: Columns, num_envs: int, rows_beside: int, known: int | None, owner: str
    ) -> int:
        """Return how many steps fit.

        Args:
            one: columns for one row.
            two: columns for two rows.
            num_envs: environments in a step.
            rows_beside: rows of the columns beside those of steps.
            known: the capacity of a ring to be restored, which is taken if it fits; earlier versions left nothing for
                side tables.
            owner: the storage's name.

        Raises:
            SampleError: the least number of steps does not fit.
        """
        self._share = share = share_of(
            self.max_bytes,
            columns=(one.nbytes, two.nbytes),
            tables=[table.bytes_of_an_entry for table in one.tables],
            rows_beside=rows_beside,
            bytes_beside=self._bytes_beside * num_envs,
            bytes_apart=self._bytes_apart,
            num_envs=num_envs,
            least=self._least_size,
        )
        if share.size < self._least_size:
            raise SampleError(
                f"{owner}: max_bytes must be at least {share.least_bytes:,} to hold {self._least_size} steps of "
                f"{num_envs} environments, got {self.max_bytes:,}"
            )
        size = min(self.most, share.size)
        return known if known is not None and size <= known <= min(self.most, share.size_without_tables) else size

    def leave_for_tables(self, size: int) -> None:
        """Leave to the side tables what ``size`` steps do not take."""
        if self._share is not None:
            self.bytes_of_tables = self._share.bytes_of_tables(size, self.max_bytes)

    def size_for_tables(self, tables: Sequence[SideTable], needed: Callable[[int], list[int]], size: int) -> int:
        """Return the largest of some capacities, at most ``size``, at which the side tables fit into the bound.

        Args:
            tables: the side tables.
            needed: returns how many entries of each table are needed for a number of steps.
            size: the largest capacity to try.
        """
        assert self._share is not None
        widths = [table.bytes_of_an_entry for table in tables]
        while size > self._least_size:
            entries = zip(widths, needed(size), strict=True)
            of_tables = sum(width * power_of_two_from(count) for width, count in entries)
            if of_tables <= self._share.bytes_of_tables(size, self.max_bytes):
                break
            size = self.smaller(size)
        return size

    def smaller(self, size: int) -> int:
        """Return the next smaller capacity; in large steps, so that a ring is seldom shrunk."""
        return max(self._least_size, size * 15 // 16)


class MemoryShare(NamedTuple):
    """The result of :func:`share_of`."""

    size: int
    """Steps that fit beside the side tables."""
    size_without_tables: int
    """Steps that fit if no episode ends."""
    least_bytes: int
    """Bytes that the least number of steps takes."""
    least_bytes_of_tables: int
    """Bytes of the side tables for the least number of steps, of which each ends an episode."""
    bytes_without_steps: int
    bytes_of_a_step: int

    def bytes_of(self, size: int) -> int:
        """Return the bytes of so many steps, without side tables."""
        return self.bytes_without_steps + size * self.bytes_of_a_step

    def bytes_of_tables(self, size: int, max_bytes: int) -> int:
        """Return the bytes that are left for side tables beside so many steps."""
        return max(self.least_bytes_of_tables, max_bytes - self.bytes_of(size))


def share_of(
    max_bytes: int,
    *,
    columns: tuple[int, int],
    tables: Sequence[int],
    rows_beside: int,
    bytes_beside: int,
    bytes_apart: int,
    num_envs: int,
    least: int,
) -> MemoryShare:
    """Share memory between rows and side tables.

    Args:
        max_bytes: the bound.
        columns: bytes of the columns for one row and for two, with one entry in each side table.
        tables: bytes of an entry of each side table, that of final observations first.
        rows_beside: rows of the columns beside those of steps.
        bytes_beside: bytes that observers keep for each step.
        bytes_apart: bytes that they keep however many steps there are.
        num_envs: environments in a step.
        least: steps that must fit.
    """
    one, two = columns
    of_a_step = two - one + bytes_beside
    without_steps = one - (two - one) - sum(tables) + rows_beside * of_a_step + bytes_apart
    # Of the newest step and of the one to be inserted, every transition may have an entry.
    least_entries = power_of_two_from((least + 2) * num_envs)
    least_of_tables = least_entries * sum(tables)
    free = max_bytes - without_steps
    of_an_entry = tables[0] * num_envs
    in_ratio = free * _TRANSITIONS_OF_AN_ENTRY // (of_a_step * _TRANSITIONS_OF_AN_ENTRY + of_an_entry)
    entries = power_of_two_up_to(in_ratio * num_envs // _TRANSITIONS_OF_AN_ENTRY)
    of_tables = max(least_of_tables, entries * tables[0] + least_entries * sum(tables[1:]))
    return MemoryShare(
        (free - of_tables) // of_a_step,
        (free - sum(tables)) // of_a_step,
        without_steps + least_of_tables + least * of_a_step,
        least_of_tables,
        without_steps,
        of_a_step,
    )


def power_of_two_from(count: int) -> int:
    """Return the smallest power of two of at least ``count``."""
    return 1 << max(0, count - 1).bit_length()


def power_of_two_up_to(count: int) -> int:
    """Return the largest power of two of at most ``count``; 1 where there is none."""
    return 1 << max(0, count.bit_length() - 1)
