"""How a bound on memory is shared between the rows of a ring and its side tables.

The rows take the same memory however long episodes are. A side table, of final observations or padding frames, has an
entry for each episode, and doubles when it is full. So a power of two of entries of final observations is left free:
about one for each 16 to 32 transitions, which suffices for episodes of that length. Where they are shorter, the rows
become fewer.
"""

from collections.abc import Sequence
from typing import NamedTuple

_TRANSITIONS_OF_AN_ENTRY = 16


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
