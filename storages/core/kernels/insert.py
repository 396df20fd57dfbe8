"""Putting steps into a ring, whatever their dtypes, in one call: compared with what is there, checked, and copied."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel
from storages.core.kernels.memory import (
    ADDRESS,
    DESCRIBED,
    KIND,
    copy_bytes,
    describe,
    flags_at,
    int32s_at,
    int64s_at,
    load_byte,
    load_int32,
    load_int64,
    prefetch_at,
    store_byte,
    store_int32,
    store_int64,
    table_at,
)

TARGET, STRIDE, WIDTH, SOURCE, FOLLOWER, FLOAT_BYTES, ASIDE = range(7)
"""Columns of ``fields``: where row 0 lies, bytes from row to row, bytes of a value; which source has the values of the
step and which, or -1, those of the row after it; how long its floating-point numbers are, 0 where it has none that must
be finite; where place 0 aside lies, for those with a follower."""
FIELD_COLUMNS = ASIDE + 1

OLDEST, NEXT = range(2)
"""Of a queue of places: numbers of the oldest that is taken, and of the next to be taken."""

STORED, NOT_AS_USUAL, NO_ARRAYS = range(3)
"""What became of a step. Where it is less, nothing was stored, and it is minus the number of ends that lack a place."""

(
    FIELDS,
    FIELD_COUNT,
    SOURCES,
    EXPECTED,
    SOURCE_COUNT,
    ARRAY_TYPE,
    DONE_SOURCE,
    TERMINATED_SOURCE,
    TRUNCATED_SOURCE,
    ROWS,
    ENVS,
    ENDED,
    NUMBERS,
    NUMBERS_STRIDE,
    QUEUE,
    PLACES,
    SAID,
) = range(17)
"""Of a way in: addresses of ``fields``, (F, 7), see :data:`TARGET`; of ``sources`` and ``expected``, (S, DESCRIBED);
``id(numpy.ndarray)``; which sources are flags; rows of each environment, environments; the address of ``ended``, (E,);
where the int32 lies that says what stands aside for row 0, negative where nothing does, and bytes from row to row of
these; the address of ``queue``, see :data:`OLDEST`, and how many can stand aside, a power of two. Written: what became
of the first step that was not stored, or of the last."""
WAY_IN = SAID + 1

LARGEST_NUMBER = 2**31 - 1
"""Numbers of places go round after it; places are a power of two, so the place is the same."""

_LARGEST_ASKED_FOR_BYTES = 2**16
_CACHE_LINE_BYTES = 64
_EXPONENT_32, _EXPONENT_64 = np.int32(0x7F800000), np.int64(0x7FF0000000000000)


@kernel
def insert_steps(way_in: int, arrays: int, steps: int, step: int, continues: bool, check: bool) -> int:
    """Store steps, one after the other, up to the first that :func:`_insert_step` does not store.

    All that is the same from call to call is passed as one address: unpacking as many arrays would take longer than
    what is done with them.

    Args:
        way_in: address of (WAY_IN,) int64, see :data:`FIELDS`; the arrays meant there are those of the caller.

            ``sources`` is what :func:`storages.core.kernels.memory.describe` says of arrays (E, ...), of each the first
            of ``steps`` that follow each other; addresses are left at the step that was not stored, or at the last.
            ``expected`` is what that has to say, but in place of addresses the bytes from a step to the next.
            ``ended`` says which environments' episodes ended in the step before; written: in the last that was stored.
        arrays: ``id`` of a tuple of the arrays, of which ``sources`` is made; 0 where it is made already.
        steps: how many there are.
        step: number of the first; step ``t`` lies in row ``t % rows`` of each environment.
        continues: whether the first has to begin with what the step before led to: with what lies in its row.
        check: whether NaN and infinity are refused. What continues was checked when it was led to.

    Returns:
        How many were stored.
    """
    way = int64s_at(way_in, WAY_IN)
    fields = table_at(way[FIELDS], way[FIELD_COUNT], FIELD_COLUMNS)
    sources = table_at(way[SOURCES], way[SOURCE_COUNT], DESCRIBED)
    expected = table_at(way[EXPECTED], way[SOURCE_COUNT], DESCRIBED)
    ended, queue = flags_at(way[ENDED], way[ENVS]), int64s_at(way[QUEUE], 2)
    if arrays != 0 and not describe(sources, arrays, way[ARRAY_TYPE]):
        way[SAID] = NO_ARRAYS
        return 0
    way[SAID] = NOT_AS_USUAL
    for source in range(sources.shape[0]):
        for column in range(KIND, DESCRIBED):
            if sources[source, column] != expected[source, column]:
                return 0
    for number in range(steps):
        if number > 0:
            for source in range(sources.shape[0]):
                sources[source, ADDRESS] += expected[source, ADDRESS]
        said = _insert_step(way, fields, sources, ended, queue, step + number, continues or number > 0, check)
        way[SAID] = said
        if said != STORED:
            return number
    return steps


@kernel
def _insert_step(
    way: NDArray[np.int64],
    fields: NDArray[np.int64],
    sources: NDArray[np.int64],
    ended: NDArray[np.bool_],
    queue: NDArray[np.int64],
    step: int,
    continues: bool,
    check: bool,
) -> int:
    """Store a step unless it does not continue the one before it, or holds what is not finite, or there is no place.

    What the step led to, where an episode ended with it, is put aside; the following row's places are taken back.

    Args are those of :func:`insert_steps`.

    Returns:
        See :data:`STORED`.
    """
    num_envs, rows = way[ENVS], way[ROWS]
    row, following_row = step % rows * num_envs, (step + 1) % rows * num_envs
    numbers, numbers_stride, places = way[NUMBERS], way[NUMBERS_STRIDE], way[PLACES]
    done = sources[way[DONE_SOURCE], ADDRESS]
    terminated, truncated = sources[way[TERMINATED_SOURCE], ADDRESS], sources[way[TRUNCATED_SOURCE], ADDRESS]
    something_ended, ends = False, 0
    for env in range(num_envs):
        if continues and load_byte(done + env) != ended[env]:
            return NOT_AS_USUAL
        something_ended |= ended[env]
        ends += load_byte(terminated + env) | load_byte(truncated + env)
    for field in range(fields.shape[0]):
        follower, source = fields[field, FOLLOWER], sources[fields[field, SOURCE], ADDRESS]
        size = num_envs * fields[field, WIDTH]
        if follower >= 0:
            if continues and not _equal(fields, field, source, row, ended):
                return NOT_AS_USUAL
            if check and not _finite(sources[follower, ADDRESS], size, fields[field, FLOAT_BYTES]):
                return NOT_AS_USUAL
        known = continues and follower >= 0 and not something_ended
        if check and not known and not _finite(source, size, fields[field, FLOAT_BYTES]):
            return NOT_AS_USUAL
    freed = 0
    if queue[NEXT] > queue[OLDEST]:
        for env in range(num_envs):
            freed += load_int32(numbers + (following_row + env) * numbers_stride) >= 0
    if queue[NEXT] - queue[OLDEST] - freed + ends > places:
        return -ends

    for field in range(fields.shape[0]):
        source = sources[fields[field, SOURCE], ADDRESS]
        if fields[field, FOLLOWER] < 0:
            _write(fields, field, source, row, num_envs)
            continue
        if not continues:
            _write(fields, field, source, row, num_envs)
        elif something_ended:
            width = fields[field, WIDTH]
            for env in range(num_envs):
                if ended[env]:
                    target = fields[field, TARGET] + (row + env) * fields[field, STRIDE]
                    copy_bytes(target, source + env * width, width)
        _write(fields, field, sources[fields[field, FOLLOWER], ADDRESS], following_row, num_envs)
    if freed:
        for env in range(num_envs):
            store_int32(numbers + (following_row + env) * numbers_stride, np.int32(-1))
        queue[OLDEST] += freed
    for env in range(num_envs):
        ended[env] = (load_byte(terminated + env) | load_byte(truncated + env)) != 0
        if ended[env]:
            _put_aside(fields, sources, env, queue[NEXT] & (places - 1))
            store_int32(numbers + (row + env) * numbers_stride, np.int32(queue[NEXT] & LARGEST_NUMBER))
            queue[NEXT] += 1
    next_records = numbers + (following_row + num_envs) * numbers_stride
    for offset in range(0, min(num_envs * numbers_stride, _LARGEST_ASKED_FOR_BYTES), _CACHE_LINE_BYTES):
        prefetch_at(next_records + offset)
    return STORED


@kernel
def _put_aside(fields: NDArray[np.int64], sources: NDArray[np.int64], env: int, place: int) -> None:
    for field in range(fields.shape[0]):
        if fields[field, FOLLOWER] >= 0:
            width = fields[field, WIDTH]
            follower = sources[fields[field, FOLLOWER], ADDRESS]
            copy_bytes(fields[field, ASIDE] + place * width, follower + env * width, width)


@kernel
def _equal(fields: NDArray[np.int64], field: int, source: int, row: int, ended: NDArray[np.bool_]) -> bool:
    width, stride = fields[field, WIDTH], fields[field, STRIDE]
    target, words = fields[field, TARGET] + row * stride, width // 4
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
def _finite(source: int, size_bytes: int, float_bytes: int) -> bool:
    # All bits of the exponent are set in NaN and infinity, and in nothing else.
    exponent_32, exponent_64 = np.int32(0), np.int64(0)
    if float_bytes == 4:
        for number in int32s_at(source, size_bytes // 4):
            # numba computes with 64 bits unless it is converted, which takes three times as long.
            exponent_32 = max(exponent_32, np.int32(number & _EXPONENT_32))
    elif float_bytes == 8:
        for number in int64s_at(source, size_bytes // 8):
            exponent_64 = max(exponent_64, number & _EXPONENT_64)
    return bool(exponent_32 != _EXPONENT_32 and exponent_64 != _EXPONENT_64)


@kernel
def _write(fields: NDArray[np.int64], field: int, source: int, row: int, num_envs: int) -> None:
    width, stride = fields[field, WIDTH], fields[field, STRIDE]
    target = fields[field, TARGET] + row * stride
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
