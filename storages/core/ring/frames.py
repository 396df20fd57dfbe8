"""Frame stacks: each frame is stored once, and stacks are assembled when a batch is made.

A stack of ``depth`` frames shares all but its newest with the one before it in its stream (an episode, or the stored
part of one). So a row holds its newest frame, and the number of rows before it that belong to its stream. The first
stack of a stream is padded with its first frame, with zeros, or with arbitrary frames, which are kept in a side table;
one number encodes which. Assembled stacks are bitwise equal to those inserted.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.kernels.memory import data_address
from storages.core.kernels.stacks import REPEAT, ZERO, gather_stacks
from storages.core.ring.column import Column, bytes_of
from storages.core.ring.layout import FieldKey, LeafLayout
from storages.core.ring.side_table import SideTable
from storages.core.ring.snapshot import (
    BEFORE,
    NEWEST,
    PADDING,
    PADDING_FRAMES,
    ROWS,
    Fragments,
    RowSpan,
    fill,
    slots,
    spans,
)
from storages.transition import Array

FRAMES = "frames"
"""Name of the padding frames in their side table."""


class FrameColumn(Column):
    """The column of a leaf whose values are frame stacks, the newest frame last.

    Args:
        layout: shape (depth, *frame) and dtype of a stack.
        rows: rows of the memory, ``depth`` more than live steps.
        num_envs: environments in a step.
        successor: the leaf of the next values, as OBS2 for OBS.
    """

    def __init__(self, layout: LeafLayout, rows: int, num_envs: int, successor: FieldKey | None) -> None:
        depth, *frame = layout.shape
        super().__init__(layout, np.zeros((rows, num_envs, *frame), layout.dtype), successor, own=True)
        self.depth = depth
        self.before = np.zeros((rows, num_envs), np.uint8)
        """(rows, E): how many rows before each belong to its stream, at most ``depth - 1``; read-only."""
        self.padding = SideTable(np.empty((rows, num_envs), np.int32))
        """Padding frames, ``depth - 1`` per stream, where they are neither the first frame nor zeros."""
        self.padding.add(FRAMES, (self.depth - 1) * self.width)
        self._newest = np.zeros((num_envs, *layout.shape), layout.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        padding = self.padding.nbytes + self.padding.numbers.nbytes
        return super().nbytes + self.before.nbytes + padding + self._newest.nbytes

    def addresses(self) -> tuple[int, ...]:
        """Return addresses for the first fields of a STACK; only the padding frames, not among them, ever move."""
        arrays = (self._newest, self.before, self.padding.numbers, self.padding.queue)
        return (data_address(self.data), self.width, self.depth, *map(data_address, arrays))

    def differs(self, slot: int, begins: Array) -> NDArray[np.bool_] | None:
        """Return (E,), where a step's stack differs from the next stack of the step before; None for nowhere."""
        if self._newest.tobytes() == begins.tobytes():
            return None
        different: NDArray[np.bool_] = (bytes_of(self._newest) != bytes_of(begins)).any(axis=1)
        return different

    def insert(self, slot: int, following: int, begins: Array, follows: Array, starts: NDArray[np.bool_]) -> None:
        """Store the newest frames of a step and, where a stream starts, all frames.

        Args:
            slot: the step's row.
            following: the row after it.
            begins: (E, depth, *frame), the stacks.
            follows: (E, depth, *frame), the next stacks.
            starts: (E,), where the step does not continue the previous one.
        """
        self.padding.free(following)
        earlier = self.before[(slot - 1) % len(self.before)]
        self.before[slot] = np.where(starts, 0, np.minimum(earlier, self.depth - 2) + 1)
        self.data[following], self._newest[...] = follows[:, -1], follows
        if starts.any():
            self._start(slot, begins, np.flatnonzero(starts))

    def _start(self, slot: int, begins: Array, envs: NDArray[np.int64]) -> None:
        stacks = bytes_of(begins[envs]).reshape(len(envs), self.depth, -1)
        older, newest = stacks[:, :-1], stacks[:, -1:]
        repeated, zero = (older == newest).all(axis=(1, 2)), ~older.any(axis=(1, 2))
        self.data[slot, envs] = begins[envs, -1]
        self.padding.numbers[slot, envs] = np.where(repeated, REPEAT, ZERO)
        others = ~repeated & ~zero
        if others.any():
            places = self.padding.append(slot, envs[others])
            self.padding.values(FRAMES)[places] = older[others].reshape(len(places), -1)

    def gather(
        self,
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        finals: SideTable,
        name: str,
        own: bool,
        following: bool,
    ) -> tuple[Array, Array]:
        """Assemble stacks.

        Args:
            first: (B,), transitions whose stacks are wanted.
            last: (B,), transitions whose next stacks are wanted.
            finals: the side table of final observations.
            name: name of this column in it.
            own: whether the stacks of ``first`` are wanted.
            following: whether the next stacks of ``last`` are wanted.

        Returns:
            Both, (B, depth, *frame), or (0, depth, *frame) where they are not wanted.
        """
        stacks, followers = (
            np.empty((len(first) if wanted else 0, *self.layout.shape), self.layout.dtype)
            for wanted in (own, following)
        )
        rows = self.data.shape[0] * self.data.shape[1]
        gather_stacks(
            self.data.reshape(rows, -1).view(np.uint8),
            self.depth,
            finals.values(name),
            finals.numbers.reshape(rows, 1),
            self.before.reshape(rows, 1),
            self.padding.numbers.reshape(rows, 1),
            self.padding.values(FRAMES),
            self.data.shape[1],
            first,
            last,
            bytes_of(stacks),
            bytes_of(followers),
        )
        return stacks, followers

    def reset(self) -> None:
        """Drop all rows."""
        self.padding.clear()

    def drop(self, slots: NDArray[np.int64]) -> None:
        """Drop the oldest rows."""
        self.padding.free_all(slots)

    def saved(self, rows: NDArray[np.int64], view: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the contents of some rows, as :meth:`Column.saved`."""
        numbers, padding = self.padding.saved(rows)
        return super().saved(rows, view) | {
            "before": torch.from_numpy(self.before[rows]),
            "padding": torch.from_numpy(numbers),
            "padding_frames": torch.from_numpy(padding[FRAMES]),
            "newest": torch.from_numpy(self._newest.copy()),
        }

    def restore(self, rows: NDArray[np.int64], saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`saved` returned."""
        super().restore(rows, saved)
        self.before[rows] = saved["before"].numpy()
        self.padding.extend(rows, saved["padding"].numpy(), {FRAMES: saved["padding_frames"].numpy()})
        self._newest[...] = saved["newest"].numpy()

    def snapshot(self, first: int, end: int) -> dict[str, Fragments]:
        """Return rows [first, end) as views, and the next stacks of the last one."""
        rows = len(self.data)
        numbers, frames = self.padding.saved(slots(first, end, rows))
        places = list(spans(first, end, rows))
        return {
            ROWS: tuple(self.data[place] for place in places) or (self.data[:0],),
            BEFORE: tuple(self.before[place] for place in places) or (self.before[:0],),
            PADDING: (numbers,),
            PADDING_FRAMES: (frames[FRAMES],),
            NEWEST: (self._newest.copy(),),
        }

    def append_span(self, key: FieldKey, part: RowSpan) -> None:
        """Append a span's rows of the leaf ``key``."""
        rows, first, end = len(self.data), part.first, part.steps
        places = list(spans(first, end, rows))
        self.padding.free_all(slots(first + 1, end + 1, rows))
        fill(self.data, places, part.array(ROWS, key))
        fill(self.before, places, part.array(BEFORE, key))
        frames = {FRAMES: part.array(PADDING_FRAMES, key)}
        self.padding.extend(slots(first, end, rows), part.array(PADDING, key), frames)
        self._newest[...] = part.array(NEWEST, key)
        self.data[end % rows] = self._newest[:, -1]
