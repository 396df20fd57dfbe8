"""Storing stacks of frames: seen to be stacks, seen to continue, and their newest frames kept."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel
from storages.core.kernels.memory import address_of, copy_bytes, int64s_at, load_byte


@kernel
def compare_stacks(begins: int, follows: int, newest: NDArray[np.uint8], depth: int, differs: NDArray[np.bool_]) -> int:
    """Where what follows is no stack moved on by a frame, and which stacks do not begin with the newest ones.

    Args:
        begins: where the stacks (E, depth, frame) lie that a step begins with.
        follows: where those lie that it led to.
        newest: (E, depth * frame), bytes: what the step before led to.
        depth: frames in a stack.
        differs: (E,), written: where a step begins with something else than that.

    Returns:
        The first environment whose stack is no stack, or -1.
    """
    size = newest.shape[1]
    width = size // depth
    for env in range(newest.shape[0]):
        offset = env * size
        if not _equal(begins + offset + width, follows + offset, size - width):
            return env
        differs[env] = not _equal(begins + offset, address_of(newest) + offset, size)
    return -1


@kernel
def store_newest(
    follows: int,
    depth: int,
    row: int,
    following_row: int,
    row_before: int,
    starts: NDArray[np.bool_],
    frames: NDArray[np.uint8],
    before: NDArray[np.uint8],
    newest: NDArray[np.uint8],
) -> None:
    """Store the newest frames of stacks.

    Args:
        follows: where the stacks (E, depth, frame) lie that a step led to.
        depth: frames in a stack.
        row: of the step's first environment.
        following_row: that of the step after it.
        row_before: that of the step before it.
        starts: (E,), where a stream of frames begins with the step.
        frames: (rows, frame), bytes; written.
        before: (rows,), how many rows before this one belong to its stream, at most ``depth - 1``; written.
        newest: (E, depth * frame), bytes; written: the stacks.
    """
    width = frames.shape[1]
    for env in range(starts.shape[0]):
        before[row + env] = 0 if starts[env] else min(before[row_before + env] + np.uint8(1), np.uint8(depth - 1))
        stack = follows + env * depth * width
        copy_bytes(address_of(frames) + (following_row + env) * width, stack + (depth - 1) * width, width)
        copy_bytes(address_of(newest) + env * depth * width, stack, depth * width)


@inlined_kernel
def _equal(first: int, second: int, size_bytes: int) -> bool:
    words, different = size_bytes // 8, np.int64(0)
    ours, theirs = int64s_at(first, words), int64s_at(second, words)
    for k in range(words):
        different |= ours[k] ^ theirs[k]
    for k in range(8 * words, size_bytes):
        different |= np.int64(load_byte(first + k) ^ load_byte(second + k))
    return bool(different == 0)
