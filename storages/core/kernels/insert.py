"""Insertion of steps into a ring: one call compares a step with the ring, validates it, and copies all of its fields.

numba unpacks the arrays, in a function compiled for the types of a layout (:func:`compiled_append`), once per machine.
Reading NumPy's structs by offset would be a little faster, and is not worth the risk.
"""

import functools
import math
from typing import Any, Protocol, cast

import numpy as np
from numba import types
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel
from storages.core.kernels.memory import (
    copy_bytes,
    int32s_at,
    int64s_at,
    load_byte,
    load_int32,
    load_int64,
    pointer,
    prefetch_at,
    read_arrays,
    store_byte,
    store_int32,
    store_int64,
)

FIELD = np.dtype(
    [
        ("target", np.int64),  # address of row 0
        ("stride", np.int64),  # bytes from row to row
        ("width", np.int64),  # bytes of one row of one environment
        ("source", np.int64),  # which source holds the step's values
        ("follower", np.int64),  # which source holds the values of the next row, -1 for none
        ("float_bytes", np.int64),  # bytes of each number that must be finite, 0 if none must
        ("final", np.int64),  # address of entry 0 in the side table, for fields with a follower
    ]
)
"""A column of the ring, for insertion."""

QUEUE = np.dtype([("oldest", np.int64), ("next", np.int64)])
"""Numbers of a side table's oldest entry and of the next one."""

CONTEXT = np.dtype(
    [
        ("fields", np.int64),  # address of (F,) FIELD
        ("field_count", np.int64),
        ("sources", np.int64),  # address of (S,) int64: where the arrays of the current step begin
        ("step_bytes", np.int64),  # address of (S,) int64: bytes of a step in each source
        ("source_count", np.int64),
        ("lengths", np.int64),  # address of int64: the shapes of all sources, one after the other
        ("done", np.int64),  # which source is DONE
        ("terminated", np.int64),  # which source is DONE2
        ("truncated", np.int64),  # which source is TRUNC2
        ("rows", np.int64),  # rows of each environment
        ("envs", np.int64),
        ("ended", np.int64),  # address of (E,) bool: whose episodes ended in the newest step
        ("final_numbers", np.int64),  # address of the int32 of row 0: its entry in the side table, negative for none
        ("final_stride", np.int64),  # bytes from row to row of these
        ("queue", np.int64),  # address of one QUEUE
        ("capacity", np.int64),  # entries of the side table, a power of two
        ("status", np.int64),  # written: see STORED
    ]
)
"""The ring, for insertion; passed as one address, because many arguments take longer to unpack."""

STORED, NEEDS_SLOW_PATH = range(2)
"""Status of a step. If negative, nothing was stored, and its absolute value is the entries to reserve."""

LARGEST_NUMBER = 2**31 - 1
"""Entry numbers wrap after it; because capacities are powers of two, their places stay the same."""

_LARGEST_PREFETCHED_BYTES = 2**16
_CACHE_LINE_BYTES = 64
_ONE_STEP: Any = np.int64(1)
_CONTINUES: Any = np.bool_(True)
"""Not Python's numbers, for which as literals numba would compile a function a second time."""
_EXPONENT_16 = np.int32(0x7C00)
_EXPONENT_32, _EXPONENT_64 = np.int32(0x7F800000), np.int64(0x7FF0000000000000)


class ArrayReader(Protocol):
    """A kernel compiled for a tuple of arrays of certain types; other types raise TypeError."""

    def __call__(self, context: int, step: int, check: bool, arrays: tuple[Any, ...]) -> bool:
        """Return whether the step was stored (or, of :func:`compiled_reader`, whether the shapes fit)."""


@functools.cache
def compiled_append(array_types: types.BaseTuple) -> ArrayReader:
    """Return a kernel that reads a tuple of arrays and stores the step, if it continues the one before it."""
    return _compiled_for(_append, array_types)


@functools.cache
def compiled_reader(array_types: types.BaseTuple) -> ArrayReader:
    """Return a kernel that writes the addresses of a tuple of arrays to ``sources`` of a context."""
    return _compiled_for(_read, array_types)


@kernel
def insert_steps(context: int, step: int, check: bool, steps: int, continues: bool) -> int:
    """Store consecutive steps, up to the first that does not continue the one before it or is not finite.

    Args:
        context: address of one CONTEXT; ``sources`` point at the first step, and are left at the step that was not
            stored, or at the last one.
        step: number of the first step; step ``t`` lies in row ``t % rows`` of each environment.
        check: refuse NaN and infinity. Observations that continue the previous step were checked as its next ones.
        steps: number of steps.
        continues: the observations of the first step must equal its row, written by the step before it.

    Returns:
        Number of stored steps.
    """
    ring = carray(pointer(context), 1, CONTEXT)[0]
    sources, step_bytes = int64s_at(ring.sources, ring.source_count), int64s_at(ring.step_bytes, ring.source_count)
    for number in range(steps):
        if number > 0:
            for source in range(ring.source_count):
                sources[source] += step_bytes[source]
        ring.status = insert_step(ring, sources, step + number, continues or number > 0, check)
        if ring.status != STORED:
            return number
    return steps


@kernel
def all_finite(values: NDArray[np.floating]) -> bool:
    """Return whether a one-dimensional array holds neither NaN nor infinity, in one pass where NumPy takes two."""
    for i in range(values.shape[0]):  # noqa: SIM110 - numba compiles the loop, not all()
        if not math.isfinite(values[i]):
            return False
    return True


def _append(context: int, step: int, check: bool, arrays: tuple[NDArray[Any], ...]) -> bool:
    ring = carray(pointer(context), 1, CONTEXT)[0]
    if not read_arrays(arrays, ring.sources, ring.lengths):
        return False
    return bool(insert_steps(context, step, check, _ONE_STEP, _CONTINUES) == 1)


def _read(context: int, step: int, check: bool, arrays: tuple[NDArray[Any], ...]) -> bool:
    ring = carray(pointer(context), 1, CONTEXT)[0]
    return read_arrays(arrays, ring.sources, ring.lengths)


def _compiled_for(function: Any, array_types: types.BaseTuple) -> ArrayReader:
    compiled: Any = kernel(function)
    compiled.compile((types.int64, types.int64, types.boolean, array_types))
    # Arrays of other types must be refused instead of compiled for.
    compiled.disable_compile()
    return cast("ArrayReader", compiled)


@kernel
def insert_step(ring: Any, sources: NDArray[np.int64], step: int, continues: bool, check: bool) -> int:
    """Store a step as a whole or not at all; return its status.

    Final observations of ended episodes are copied to the side table; entries of the row overwritten next are freed.
    """
    fields = carray(pointer(ring.fields), ring.field_count, FIELD)
    queue = carray(pointer(ring.queue), 1, QUEUE)[0]
    ended = carray(pointer(ring.ended), ring.envs, np.bool_)
    num_envs = ring.envs
    row, following_row = step % ring.rows * num_envs, (step + 1) % ring.rows * num_envs
    numbers, stride = ring.final_numbers, ring.final_stride
    done, terminated, truncated = sources[ring.done], sources[ring.terminated], sources[ring.truncated]
    any_ended, ends = False, 0
    for env in range(num_envs):
        if continues and load_byte(done + env) != ended[env]:
            return NEEDS_SLOW_PATH
        any_ended |= ended[env]
        ends += load_byte(terminated + env) | load_byte(truncated + env)
    for k in range(fields.shape[0]):
        field = fields[k]
        source, size = sources[field.source], num_envs * field.width
        if field.follower >= 0:
            if continues and not _equal(field, source, row, ended):
                return NEEDS_SLOW_PATH
            if check and not all_bytes_finite(sources[field.follower], size, field.float_bytes):
                return NEEDS_SLOW_PATH
        known = continues and field.follower >= 0 and not any_ended
        if check and not known and not all_bytes_finite(source, size, field.float_bytes):
            return NEEDS_SLOW_PATH
    freed = 0
    if queue.next > queue.oldest:
        for env in range(num_envs):
            freed += load_int32(numbers + (following_row + env) * stride) >= 0
    if queue.next - queue.oldest - freed + ends > ring.capacity:
        return -ends

    for k in range(fields.shape[0]):
        field = fields[k]
        source = sources[field.source]
        if field.follower < 0 or not continues:
            _write(field, source, row, num_envs)
        elif any_ended:
            for env in range(num_envs):
                if ended[env]:
                    target = field.target + (row + env) * field.stride
                    copy_bytes(target, source + env * field.width, field.width)
        if field.follower >= 0:
            _write(field, sources[field.follower], following_row, num_envs)
    if freed:
        for env in range(num_envs):
            store_int32(numbers + (following_row + env) * stride, np.int32(-1))
        queue.oldest += freed
    for env in range(num_envs):
        ended[env] = (load_byte(terminated + env) | load_byte(truncated + env)) != 0
        if ended[env]:
            _store_final(fields, sources, env, queue.next & (ring.capacity - 1))
            store_int32(numbers + (row + env) * stride, np.int32(queue.next & LARGEST_NUMBER))
            queue.next += 1
    next_records = numbers + (following_row + num_envs) * stride
    for offset in range(0, min(num_envs * stride, _LARGEST_PREFETCHED_BYTES), _CACHE_LINE_BYTES):
        prefetch_at(next_records + offset)
    return STORED


@kernel
def _store_final(fields: Any, sources: NDArray[np.int64], env: int, entry: int) -> None:
    for k in range(fields.shape[0]):
        field = fields[k]
        if field.follower >= 0:
            copy_bytes(field.final + entry * field.width, sources[field.follower] + env * field.width, field.width)


@kernel
def _equal(field: Any, source: int, row: int, ended: NDArray[np.bool_]) -> bool:
    width, stride = field.width, field.stride
    target, words = field.target + row * stride, width // 4
    for env in range(ended.shape[0]):
        begins, stored, different = int32s_at(source, words), int32s_at(target, words), np.int32(0)
        for k in range(words):
            different |= np.int32(begins[k] ^ stored[k])
        for k in range(4 * words, width):
            different |= np.int32(load_byte(source + k) ^ load_byte(target + k))
        if different != 0 and not ended[env]:
            return False
        source, target = source + width, target + stride
    return True


@kernel
def all_bytes_finite(source: int, size_bytes: int, float_bytes: int) -> bool:
    """Return whether no float of ``float_bytes`` bytes is NaN or infinity; with 0, nothing is checked."""
    # All bits of the exponent are set in NaN and infinity only.
    exponent_16, exponent_32, exponent_64 = np.int32(0), np.int32(0), np.int64(0)
    if float_bytes == 4:
        for number in int32s_at(source, size_bytes // 4):
            # Without the conversion, numba computes with 64 bits.
            exponent_32 = max(exponent_32, np.int32(number & _EXPONENT_32))
    elif float_bytes == 8:
        for number in int64s_at(source, size_bytes // 8):
            exponent_64 = max(exponent_64, number & _EXPONENT_64)
    elif float_bytes == 2:
        for half in carray(pointer(source), size_bytes // 2, np.int16):
            exponent_16 = max(exponent_16, np.int32(half & _EXPONENT_16))
    return bool(exponent_16 != _EXPONENT_16 and exponent_32 != _EXPONENT_32 and exponent_64 != _EXPONENT_64)


@kernel
def _write(field: Any, source: int, row: int, num_envs: int) -> None:
    width, stride = field.width, field.stride
    target = field.target + row * stride
    if stride == width:
        copy_bytes(target, source, num_envs * width)
    elif width == 1:
        for env in range(num_envs):
            store_byte(target + env * stride, load_byte(source + env))
    elif width == 4:
        for env in range(num_envs):
            store_int32(target + env * stride, load_int32(source + env * 4))
    elif width == 8:
        for env in range(num_envs):
            store_int64(target + env * stride, load_int64(source + env * 8))
    else:
        for _ in range(num_envs):
            copy_bytes(target, source, width)
            source, target = source + width, target + stride
