"""Stacks of frames, put together again; :mod:`storages.core.kernels.stack_slices` stores them.

Rows are those of :mod:`storages.core.kernels.gather`.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.memory import address_of, copy_bytes, int64s_at, load_byte, store_byte

REPEAT, ZERO = -1, -2
"""How a stack is filled up before its stream's first frame: with that frame, with zeros, or else (from 0 on) with the
padding frames of that number."""


@parallel_kernel
def gather_stacks(
    frames: NDArray[np.uint8],
    depth: int,
    finals: NDArray[np.uint8],
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
        finals: (capacity, bytes), newest frames of final observations; entry ``a`` lies in ``a % capacity``.
        final_numbers: (rows, 1), for each row its entry in the side table, negative for none.
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
                address_of(finals) + (number & (finals.shape[0] - 1)) * width
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


@kernel
def stack_places(
    transitions: NDArray[np.int64],
    newer: int,
    num_envs: int,
    before: NDArray[np.uint8],
    padding: NDArray[np.int32],
    padding_mask: int,
    padding_begin: int,
    places: NDArray[np.int64],
) -> None:
    """Write where the frames up to those of some transitions are, in front of the ``newer`` ones of their stacks.

    Args:
        transitions: (B,).
        newer: how many frames of a stack are newer than the transition's own; these are not written.
        num_envs: environments in a step.
        before: (rows, 1), how many rows before this one belong to its stream.
        padding: (rows, 1), what fills a stack up whose stream begins in a row: see
            :data:`REPEAT`.
        padding_mask: the number of places of padding less one, which is a power of two.
        padding_begin: where the first of them is.
        places: (B, depth), written.
    """
    num_rows, depth = before.shape[0], places.shape[1]
    for i in range(transitions.shape[0]):
        row = transitions[i] % num_rows
        stored = np.int64(before[row, 0])
        begin = (row - stored * num_envs) % num_rows
        for age in range(depth - newer):
            if age <= stored:
                place = (row - age * num_envs) % num_rows
            else:
                kind = np.int64(padding[begin, 0])
                if kind == REPEAT:
                    place = begin
                elif kind == ZERO:
                    place = num_rows
                else:
                    older = depth - 1 - (age - stored)
                    place = padding_begin + (kind & padding_mask) * (depth - 1) + older
            places[i, depth - 1 - newer - age] = place


@inlined_kernel
def equal_bytes(first: int, second: int, size_bytes: int) -> bool:
    """Return whether two pieces of memory hold the same."""
    words, different = size_bytes // 8, np.int64(0)
    ours, theirs = int64s_at(first, words), int64s_at(second, words)
    for k in range(words):
        different |= ours[k] ^ theirs[k]
    for k in range(8 * words, size_bytes):
        different |= np.int64(load_byte(first + k) ^ load_byte(second + k))
    return bool(different == 0)
