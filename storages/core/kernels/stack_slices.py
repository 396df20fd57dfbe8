"""Insertion of steps with stacks of frames: one call compares, checks and stores all of their fields."""

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.insert import CONTEXT, NEEDS_SLOW_PATH, QUEUE, STORED, all_bytes_finite, insert_step
from storages.core.kernels.memory import copy_bytes, int64s_at, load_byte, load_int32, pointer, store_byte, store_int32
from storages.core.kernels.stacks import REPEAT, ZERO, equal_bytes

STACK = np.dtype(
    [
        ("frames", np.int64),  # address of the newest frame of row 0
        ("width", np.int64),  # bytes of a frame
        ("depth", np.int64),  # frames in a stack
        ("newest", np.int64),  # address of the stacks (E, depth * width) that the newest step led to
        ("before", np.int64),  # address of (rows,) uint8: rows before each that belong to its stream
        ("padding", np.int64),  # address of (rows,) int32: what fills up the stack whose stream begins in a row
        ("padding_queue", np.int64),  # address of one QUEUE of padding frames
        ("source", np.int64),  # which source holds the stacks that a step begins with; the next one, those that follow
        ("float_bytes", np.int64),  # bytes of each number that must be finite, 0 if none must
        ("final", np.int64),  # address of entry 0 in the side table of final observations
    ]
)
"""One column of stacks, as steps are inserted into it."""


@parallel_kernel
def insert_steps_with_stacks(context: int, stacks: NDArray[np.void], step: int, check: bool, steps: int) -> int:
    """Store consecutive steps, up to the first that has to be validated.

    That is one that does not continue the step before it, holds NaN or infinity or what is no stack, or begins a stream
    with frames that are neither zeros nor its first frame.

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
        # It lies in memory that is not the ring's.
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
            # What continues was checked as what followed.
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
    """What fills a stack up before its newest frame: REPEAT, ZERO, or 0 for any other frames."""
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
