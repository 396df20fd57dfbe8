"""Copying transitions out of a ring, whatever their dtypes.

Transition ``n`` lies in row ``n % rows``, and what the same environment did next ``num_envs`` rows further, round the
ring. What followed it stands aside where that row begins something else: see
:mod:`storages.core.ring.side_table`.

Rows chosen at random lie where no cache holds them, so a kernel asks for all that it will read before it reads it:
see :mod:`storages.core.kernels.memory_prefetch`.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel
from storages.core.kernels.memory import (
    address_of,
    copy_bytes,
    copy_row,
    load_byte,
    load_int32,
    load_int64,
    prefetch_at,
    store_byte,
    store_float32,
    store_int32,
    store_int64,
)

HERE, HERE_FLAG, LAST, LAST_FLAG, FOLLOWING = range(5)
"""What a field is of: the transition itself (a flag becomes a float32), the last of its window, what followed that."""

ADDRESS, STRIDE, WIDTH, KIND, ASIDE_ADDRESS, ASIDE_MASK = range(6)
"""Columns of ``fields``: where row 0 lies, bytes from row to row, bytes of a value, what it is of; where place 0 aside
lies and the number of places less one, which is a power of two."""

ALIGNMENT_BYTES = 64
"""Each field's values begin at a multiple of it."""

REPEAT, ZERO = -1, -2
"""How a stack of frames is filled up before its stream's first frame: with that frame, with zeros, or else (from 0 on)
with the frames of that number that stand aside."""

_CACHE_LINE_BYTES = 64
_ROWS_AT_A_TIME = 512
"""What was asked for must still be there when it is read."""


@kernel
def gather_fields(
    fields: NDArray[np.int64],
    here: NDArray[np.int64],
    following: NDArray[np.int64],
    aside_address: int,
    aside_stride: int,
    num_rows: int,
    num_envs: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy fields of windows into ``out``, one field after the other, each from a multiple of 64 bytes on.

    Args:
        fields: (F, 6), see :data:`ADDRESS`.
        here: (regions, 3), address, stride and bytes of what will be read in the rows of the windows.
        following: (regions, 3), as ``here``, in the rows after the windows.
        aside_address: where the int32 lies that says what stands aside for row 0, negative where nothing does.
        aside_stride: bytes from row to row of these.
        num_rows: rows in the ring.
        num_envs: environments in a step.
        first: (B,) transitions that the windows begin with.
        last: (B,) transitions that they end with; ``first`` itself where they have one step.
        out: (bytes,), written.
    """
    windows, out_address = first.shape[0], address_of(out)
    first_rows, last_rows = np.empty(_ROWS_AT_A_TIME, np.int64), np.empty(_ROWS_AT_A_TIME, np.int64)
    following_rows = np.empty(_ROWS_AT_A_TIME, np.int64)
    for begin in range(0, windows, _ROWS_AT_A_TIME):
        count = min(_ROWS_AT_A_TIME, windows - begin)
        for i in range(count):
            first_rows[i] = first[begin + i] % num_rows
            _prefetch(here, first_rows[i])
        if address_of(first) == address_of(last):
            # A slice assigned to a slice takes two seconds to compile.
            for i in range(count):
                last_rows[i] = first_rows[i]
        else:
            for i in range(count):
                # What is read there says how a window ends, and was read to find the end.
                last_rows[i] = last[begin + i] % num_rows
        for i in range(count):
            row = last_rows[i] + num_envs
            following_rows[i] = row if row < num_rows else row - num_rows
            _prefetch(following, following_rows[i])
        target = out_address
        for field in range(fields.shape[0]):
            address, stride, width = fields[field, ADDRESS], fields[field, STRIDE], fields[field, WIDTH]
            kind = fields[field, KIND]
            if kind in (HERE, LAST):
                _copy(address, stride, width, first_rows if kind == HERE else last_rows, count, target + begin * width)
            elif kind == FOLLOWING:
                aside, mask = fields[field, ASIDE_ADDRESS], fields[field, ASIDE_MASK]
                to = target + begin * width
                for i in range(count):
                    number = load_int32(aside_address + last_rows[i] * aside_stride)
                    if number >= 0:
                        copy_row(to, aside + (number & mask) * width, width)
                    else:
                        copy_row(to, address + following_rows[i] * stride, width)
                    to += width
            else:
                width = 4
                rows = first_rows if kind == HERE_FLAG else last_rows
                for i in range(count):
                    store_float32(target + (begin + i) * 4, load_byte(address + rows[i] * stride))
            target += _aligned(width * windows)


@kernel
def gather_stacks(
    frames: NDArray[np.uint8],
    depth: int,
    aside: NDArray[np.uint8],
    final_numbers: NDArray[np.int32],
    before: NDArray[np.uint8],
    padding: NDArray[np.int32],
    padding_frames: NDArray[np.uint8],
    num_envs: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    own: NDArray[np.uint8],
    following: NDArray[np.uint8],
) -> None:
    """Put stacks of the last ``depth`` frames together, the newest last.

    Args:
        frames: (rows, bytes), the newest frame of each observation.
        depth: frames in a stack.
        aside: (places, bytes), newest frames of what episodes ended with; number ``a`` lies in ``a % places``.
        final_numbers: (rows, 1), for each row the number of what stands aside for it, negative where nothing does.
        before: (rows, 1), how many rows before this one belong to its stream, at most ``depth - 1``.
        padding: (rows, 1), what fills a stack up whose stream begins in a row: see :data:`REPEAT`.
        padding_frames: (places, (depth - 1) * bytes).
        num_envs: environments in a step.
        first: (B,) transitions.
        last: (B,) those of which is wanted what followed.
        own: (B, depth * bytes), written: the stacks of ``first``; (0, ...) where they are not wanted.
        following: (B, depth * bytes), written: the stacks of what followed ``last``; (0, ...) where not wanted.
    """
    num_rows, width = frames.shape
    # One after the other, as the two share most of their frames, which are then at hand.
    for i in range(first.shape[0]):
        if own.shape[0]:
            row = first[i] % num_rows
            _older_frames(
                frames, depth, 0, before, padding, padding_frames, num_envs, row, address_of(own) + i * depth * width
            )
        if following.shape[0]:
            row = last[i] % num_rows
            stack = address_of(following) + i * depth * width
            if final_numbers[row, 0] < 0 and row + 1 < num_rows and _lie_together(before, depth - 2, num_envs, row):
                copy_bytes(stack, address_of(frames) + (row - (depth - 2)) * width, depth * width)
                continue
            _older_frames(frames, depth, 1, before, padding, padding_frames, num_envs, row, stack)
            number = final_numbers[row, 0]
            newest = (
                address_of(aside) + (number & (aside.shape[0] - 1)) * width
                if number >= 0
                else address_of(frames) + (row + num_envs) % num_rows * width
            )
            copy_bytes(stack + (depth - 1) * width, newest, width)


@kernel
def _older_frames(
    frames: NDArray[np.uint8],
    depth: int,
    newer: int,
    before: NDArray[np.uint8],
    padding: NDArray[np.int32],
    padding_frames: NDArray[np.uint8],
    num_envs: int,
    row: int,
    stack: int,
) -> None:
    """Write the frames up to that of a row, in front of the ``newer`` ones of a stack."""
    num_rows, width = frames.shape
    older = depth - 1 - newer
    if _lie_together(before, older, num_envs, row):
        copy_bytes(stack, address_of(frames) + (row - older) * width, (older + 1) * width)
        return
    stored = np.int64(before[row, 0])
    for age in range(older + 1):
        target = stack + (older - age) * width
        if age <= stored:
            copy_bytes(target, address_of(frames) + (row - age * num_envs) % num_rows * width, width)
            continue
        begin = (row - stored * num_envs) % num_rows
        kind = np.int64(padding[begin, 0])
        if kind == REPEAT:
            copy_bytes(target, address_of(frames) + begin * width, width)
        elif kind == ZERO:
            for k in range(width):
                store_byte(target + k, 0)
        else:
            place = kind & (padding_frames.shape[0] - 1)
            filling = depth - 1 - (age - stored)
            copy_bytes(target, address_of(padding_frames) + (place * (depth - 1) + filling) * width, width)


@inlined_kernel
def _lie_together(before: NDArray[np.uint8], older: int, num_envs: int, row: int) -> bool:
    """Whether so many frames before a row's belong to its stream, and lie in the rows before: then one copy will do."""
    return bool(num_envs == 1 and row >= older and before[row, 0] >= older)


@inlined_kernel
def _prefetch(regions: NDArray[np.int64], row: int) -> None:
    for region in range(regions.shape[0]):
        address, width = regions[region, 0] + row * regions[region, 1], regions[region, 2]
        for offset in range(0, width, _CACHE_LINE_BYTES):
            prefetch_at(address + offset)
        # What begins within a line ends in one more.
        prefetch_at(address + width - 1)


@inlined_kernel
def _copy(address: int, stride: int, width: int, rows: NDArray[np.int64], count: int, target: int) -> None:
    if width == 4:
        for i in range(count):
            store_int32(target + i * 4, load_int32(address + rows[i] * stride))
    elif width == 8:
        for i in range(count):
            store_int64(target + i * 8, load_int64(address + rows[i] * stride))
    elif width == 1:
        for i in range(count):
            store_byte(target + i, load_byte(address + rows[i] * stride))
    else:
        for i in range(count):
            copy_row(target + i * width, address + rows[i] * stride, width)


@inlined_kernel
def _aligned(size_bytes: int) -> int:
    return (size_bytes + ALIGNMENT_BYTES - 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
