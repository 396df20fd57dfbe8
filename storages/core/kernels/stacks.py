"""Frame stacks: validated and stored as single frames by one call, and assembled when they are gathered.

Rows are those of :mod:`storages.core.kernels.gather`.
"""

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.insert import CONTEXT, NEEDS_SLOW_PATH, QUEUE, STORED, all_bytes_finite, insert_step
from storages.core.kernels.memory import (
    address_of,
    copy_bytes,
    int64s_at,
    load_byte,
    load_int32,
    pointer,
    store_byte,
    store_int32,
)

REPEAT, ZERO = -1, -2
"""Padding of a stack before the first frame of its stream: that frame, zeros, or (from 0 on) the number of an entry of
padding frames."""


STACK = np.dtype(
    [
        ("frames", np.int64),  # address of the newest frame of row 0
        ("width", np.int64),  # bytes of a frame
        ("depth", np.int64),  # frames in a stack
        ("newest", np.int64),  # address of the newest step's next stacks (E, depth * width)
        ("before", np.int64),  # address of (rows,) uint8: rows before each that belong to its stream
        ("padding", np.int64),  # address of (rows,) int32: padding of streams that begin in a row, see REPEAT
        ("padding_queue", np.int64),  # address of one QUEUE of padding frames
        ("source", np.int64),  # which source holds the stacks of a step; the one after it holds the next stacks
        ("float_bytes", np.int64),  # bytes of each number that must be finite, 0 if none must
        ("final", np.int64),  # address of entry 0 in the side table of final observations
    ]
)
"""A column of stacks, for insertion."""


@parallel_kernel
def insert_steps_with_stacks(context: int, stacks: NDArray[np.void], step: int, check: bool, steps: int) -> int:
    """Store consecutive steps, up to the first that the slow path must validate.

    That is a step that does not continue the one before it, is not finite, holds an invalid stack, or begins a stream
    with padding that is neither zeros nor its first frame.

    Args:
        context: as of :func:`storages.core.kernels.insert.insert_steps`.
        stacks: (K,) STACK.
        step: number of the first step.
        check: refuse NaN and infinity.
        steps: number of steps.

    Returns:
        Number of stored steps; the context's ``status`` says why they are fewer.
    """
    ring = carray(pointer(context), 1, CONTEXT)[0]
    sources, step_bytes = int64s_at(ring.sources, ring.source_count), int64s_at(ring.step_bytes, ring.source_count)
    ended = carray(pointer(ring.ended), ring.envs, np.bool_)
    starts = np.empty(ring.envs, np.bool_)
    newest = np.empty(stacks.shape[0], np.int64)
    for k in range(stacks.shape[0]):
        newest[k] = stacks[k].newest
    stored = 0
    while stored < steps:
        if stored > 0:
            for k in range(stacks.shape[0]):
                newest[k] = sources[stacks[k].source + 1]
            for source in range(ring.source_count):
                sources[source] += step_bytes[source]
        starts[:] = ended
        ring.status = STORED
        for k in range(stacks.shape[0]):
            if not _continues(stacks[k], sources, newest[k], starts, check):
                ring.status = NEEDS_SLOW_PATH
                break
        if ring.status == STORED:
            ring.status = insert_step(ring, sources, step + stored, True, check)
        if ring.status != STORED:
            break
        for k in range(stacks.shape[0]):
            _store(ring, stacks[k], sources, step + stored, starts, ended)
        stored += 1
    for k in range(stacks.shape[0]):
        # The newest stacks may be in the caller's memory; keep a copy.
        if newest[k] != stacks[k].newest or stored == steps:
            at = sources[stacks[k].source + 1] if stored == steps else newest[k]
            copy_bytes(stacks[k].newest, at, ring.envs * stacks[k].depth * stacks[k].width)
    return stored


@inlined_kernel
def _continues(stack: Any, sources: NDArray[np.int64], newest: int, starts: NDArray[np.bool_], check: bool) -> bool:
    begins, follows = sources[stack.source], sources[stack.source + 1]
    width, older = stack.width, (stack.depth - 1) * stack.width
    size = older + width
    for env in range(starts.shape[0]):
        offset = env * size
        if not equal_bytes(begins + offset + width, follows + offset, older):
            return False
        if not starts[env]:
            if not equal_bytes(begins + offset, newest + offset, size):
                return False
            # A stack that continues was checked as the next stack of the step before.
            continue
        if _padding_of(begins + offset, stack.depth, width) > REPEAT:
            return False
        if check and not all_bytes_finite(begins + offset, size, stack.float_bytes):
            return False
    return not check or all_bytes_finite(follows, starts.shape[0] * size, stack.float_bytes)


@kernel
def _store(
    ring: Any, stack: Any, sources: NDArray[np.int64], step: int, starts: NDArray[np.bool_], ended: NDArray[np.bool_]
) -> None:
    num_envs, width, depth = ring.envs, stack.width, stack.depth
    row, following_row = step % ring.rows * num_envs, (step + 1) % ring.rows * num_envs
    row_before = (step - 1) % ring.rows * num_envs
    begins, follows = sources[stack.source], sources[stack.source + 1]
    queue = carray(pointer(stack.padding_queue), 1, QUEUE)[0]
    if queue.next > queue.oldest:
        for env in range(num_envs):
            entry = stack.padding + (following_row + env) * 4
            queue.oldest += load_int32(entry) >= 0
            store_int32(entry, np.int32(-1))
    for env in range(num_envs):
        offset, newest_frame = env * depth * width, (env * depth + depth - 1) * width
        before = stack.before + row + env
        if starts[env]:
            store_byte(before, 0)
            copy_bytes(stack.frames + (row + env) * width, begins + newest_frame, width)
            store_int32(stack.padding + (row + env) * 4, np.int32(_padding_of(begins + offset, depth, width)))
        else:
            store_byte(before, min(load_byte(stack.before + row_before + env) + 1, depth - 1))
        copy_bytes(stack.frames + (following_row + env) * width, follows + newest_frame, width)
        if ended[env]:
            number = load_int32(ring.final_numbers + (row + env) * ring.final_stride)
            copy_bytes(stack.final + (number & (ring.capacity - 1)) * width, follows + newest_frame, width)


@kernel
def _padding_of(stack: int, depth: int, width: int) -> int:
    """Return the kind of padding before a stack's newest frame: REPEAT, ZERO, or 0 for any other frames."""
    newest, kind = stack + (depth - 1) * width, REPEAT
    for older in range(depth - 1):
        if not equal_bytes(stack + older * width, newest, width):
            kind = ZERO
            break
    if kind == ZERO:
        for k in range((depth - 1) * width):
            if load_byte(stack + k) != 0:
                return 0
    return kind


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
    """Assemble stacks of the last ``depth`` frames, the newest last.

    Args:
        frames: (rows, bytes), the newest frame of each observation.
        depth: frames in a stack.
        finals: (capacity, bytes), newest frames of final observations; entry ``a`` lies in ``a % capacity``.
        final_numbers: (rows, 1), for each row its entry in the side table, negative for none.
        before: (rows, 1), how many rows before this one belong to its stream, at most ``depth - 1``.
        padding: (rows, 1), padding of streams that begin in a row, see :data:`REPEAT`.
        padding_frames: (places, (depth - 1) * bytes).
        num_envs: environments in a step.
        first: (B,) transitions whose stacks are wanted.
        last: (B,) transitions whose next stacks are wanted.
        own: (B, depth * bytes), written: the stacks of ``first``; (0, ...) if not wanted.
        following: (B, depth * bytes), written: the next stacks of ``last``; (0, ...) if not wanted.
    """
    num_rows, width = frames.shape
    # Both in one loop, because they share most of their frames, which are then in the cache.
    for i in range(first.shape[0]):
        if own.shape[0]:
            row = first[i] % num_rows
            _older_frames(
                frames, depth, 0, before, padding, padding_frames, num_envs, row, address_of(own) + i * depth * width
            )
        if following.shape[0]:
            row = last[i] % num_rows
            stack = address_of(following) + i * depth * width
            if final_numbers[row, 0] < 0 and row + 1 < num_rows and _are_contiguous(before, depth - 2, num_envs, row):
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
    """Write a stack's frames up to that of a row, before its ``newer`` last ones."""
    num_rows, width = frames.shape
    older = depth - 1 - newer
    if _are_contiguous(before, older, num_envs, row):
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
def _are_contiguous(before: NDArray[np.uint8], older: int, num_envs: int, row: int) -> bool:
    """Return whether the ``older`` frames of a row's stack are contiguous with it, so that one copy suffices."""
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
    """Write the device table's rows of stacks' frames, up to the frame of each transition.

    Args:
        transitions: (B,).
        newer: frames of a stack that are newer than the transition's own; these are not written.
        num_envs: environments in a step.
        before: (rows, 1), how many rows before this one belong to its stream.
        padding: (rows, 1), padding of streams that begin in a row, see :data:`REPEAT`.
        padding_mask: capacity of the padding side table, a power of two, minus one.
        padding_begin: first row of padding frames in the table.
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
    """Return whether two blocks of memory are equal."""
    words, different = size_bytes // 8, np.int64(0)
    ours, theirs = int64s_at(first, words), int64s_at(second, words)
    for k in range(words):
        different |= ours[k] ^ theirs[k]
    for k in range(8 * words, size_bytes):
        different |= np.int64(load_byte(first + k) ^ load_byte(second + k))
    return bool(different == 0)
