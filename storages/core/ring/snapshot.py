"""A part of a ring: rows one after the other, and all that belongs to them, to be kept elsewhere and put back."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey
from storages.transition import Array

ROWS = "rows"
"""(rows, E, ...): what lies in the rows, of every leaf."""
FOLLOWING = "following"
"""(E, ...): what the newest step led to, of leaves whose next row is what followed."""
ENDED = "ended"
"""(E,) bool: whose episodes ended with the newest step."""
HAS_FINAL = "has final"
"""(rows, E) bool: the row has a final observation; one row more if the row before is included."""
CUT_BEFORE = "cut before"
"""(0 or 1, E) bool: TRUNC2 of the row before, if it is included: its episode may have been ended since."""
FINAL = "final"
"""(final observations, bytes): their values, of leaves whose next row is what followed."""
BEFORE = "before"
"""(rows, E) uint8: of stacked frames, how many rows before belong to the stream."""
PADDING = "padding"
"""(rows, E) int32: of stacked frames, what the first stack of a stream is filled up with."""
PADDING_FRAMES = "padding frames"
"""(numbers of PADDING that are not negative, bytes): the frames that it is filled up with."""
NEWEST = "newest"
"""(E, depth, ...): of stacked frames, what the newest step led to."""
ERRORS = "errors"
"""(rows, E) float32: of storages that have priorities, the errors that they follow from."""


class ArrayKey(NamedTuple):
    """Which array of a part: what it is, and of which leaf, () where it is of none."""

    role: str
    leaf: FieldKey = ()


Fragments: TypeAlias = tuple[Array, ...]
"""An array in one piece or, where it goes round the end of a ring, in two."""


@dataclass(frozen=True)
class RowSpan:
    """Rows of a ring.

    Args:
        first: number of the first.
        steps: number after the last.
        begins: whether nothing before the first row counts any more.
        since: number of the oldest row since the ring was last emptied.
        arrays: by name.
    """

    first: int
    steps: int
    begins: bool
    since: int
    arrays: dict[ArrayKey, Fragments]

    def __len__(self) -> int:
        """Rows."""
        return self.steps - self.first

    def array(self, role: str, leaf: FieldKey = ()) -> Array:
        """An array in one piece."""
        pieces = self.arrays[ArrayKey(role, leaf)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def first_whole(self, since: int) -> int:
        """Number of the row from which on no stack of frames reaches to rows before ``since``."""
        numbers = np.arange(self.first, self.steps)[:, None]
        reach = (numbers - since < self.array(*name) for name in self.arrays if name.role == BEFORE)
        return max(
            (self.first + int(np.flatnonzero(rows.any(axis=1)).max(initial=-1)) + 1 for rows in reach),
            default=self.first,
        )

    def numbered(self, first: int, since: int) -> "RowSpan":
        """The part under other numbers."""
        return replace(self, first=first, steps=first + len(self), since=since)


def spans(first: int, end: int, rows: int) -> Iterator[slice]:
    """Where rows [first, end) lie in a ring of so many, fewer than there are: one slice, or two, or none."""
    if first < end:
        begin, last = first % rows, (end - 1) % rows + 1
        if begin < last:
            yield slice(begin, last)
        else:
            yield slice(begin, rows)
            yield slice(0, last)


def fill(target: Array, places: list[slice], values: Array) -> None:
    """Write rows where they lie."""
    done = 0
    for place in places:
        count = place.stop - place.start
        target[place] = values[done : done + count]
        done += count


def slots(first: int, end: int, rows: int) -> NDArray[np.int64]:
    """As :func:`spans`, as numbers."""
    return np.arange(first, max(first, end)) % rows
