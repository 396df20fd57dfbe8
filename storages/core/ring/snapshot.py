"""Spans of a ring's rows, with all data that belongs to them, for writing to disk and restoring."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey
from storages.transition import Array

ROWS = "rows"
"""(rows, E, ...): the rows of every leaf."""
FOLLOWING = "following"
"""(E, ...): the newest step's next values, of leaves with a successor."""
ENDED = "ended"
"""(E,) bool: whether each episode ended with the newest step."""
HAS_FINAL = "has final"
"""(rows, E) bool: whether a row has a final observation; one row more if the row before is included."""
CUT_BEFORE = "cut before"
"""(0 or 1, E) bool: TRUNC2 of the row before, if included: its episode may have been truncated since."""
FINAL = "final"
"""(final observations, bytes): their values, of leaves with a successor."""
BEFORE = "before"
"""(rows, E) uint8: of frame stacks, how many rows before each belong to its stream."""
PADDING = "padding"
"""(rows, E) int32: of frame stacks, the kind of padding of the first stack of a stream."""
PADDING_FRAMES = "padding frames"
"""(non-negative entries of PADDING, bytes): the padding frames."""
NEWEST = "newest"
"""(E, depth, ...): of frame stacks, the next stacks of the newest step."""
ERRORS = "errors"
"""(rows, E) float32: of prioritised storages, the TD errors."""


class ArrayKey(NamedTuple):
    """Key of an array in a span: its role, and its leaf, () for none."""

    role: str
    leaf: FieldKey = ()


Fragments: TypeAlias = tuple[Array, ...]
"""An array in one piece or, where it wraps around the end of the ring, in two."""


@dataclass(frozen=True)
class RowSpan:
    """Consecutive rows of a ring.

    Args:
        first: number of the first row.
        steps: number after the last row.
        begins: whether no row before the first one is needed any more.
        since: number of the first row after the ring's last reset or drop.
        arrays: the arrays by key.
    """

    first: int
    steps: int
    begins: bool
    since: int
    arrays: dict[ArrayKey, Fragments]

    def __len__(self) -> int:
        """Number of rows."""
        return self.steps - self.first

    def array(self, role: str, leaf: FieldKey = ()) -> Array:
        """Return an array in one piece."""
        pieces = self.arrays[ArrayKey(role, leaf)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def first_whole(self, since: int) -> int:
        """Return the number of the row from which on no frame stack needs rows before ``since``."""
        numbers = np.arange(self.first, self.steps)[:, None]
        reach = (numbers - since < self.array(*name) for name in self.arrays if name.role == BEFORE)
        return max(
            (self.first + int(np.flatnonzero(rows.any(axis=1)).max(initial=-1)) + 1 for rows in reach),
            default=self.first,
        )

    def numbered(self, first: int, since: int) -> "RowSpan":
        """Return the span with other row numbers."""
        return replace(self, first=first, steps=first + len(self), since=since)


def spans(first: int, end: int, rows: int) -> Iterator[slice]:
    """Yield the slices of rows [first, end) in a ring of ``rows`` slots: none, one, or two where they wrap around."""
    if first < end:
        begin, last = first % rows, (end - 1) % rows + 1
        if begin < last:
            yield slice(begin, last)
        else:
            yield slice(begin, rows)
            yield slice(0, last)


def fill(target: Array, places: list[slice], values: Array) -> None:
    """Write consecutive rows to slices of a target."""
    done = 0
    for place in places:
        count = place.stop - place.start
        target[place] = values[done : done + count]
        done += count


def slots(first: int, end: int, rows: int) -> NDArray[np.int64]:
    """Return the slots of rows [first, end), as indices."""
    return np.arange(first, max(first, end)) % rows
