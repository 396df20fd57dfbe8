"""Putting a step into a ring, whatever its dtypes, in one call: compared with what is there, checked, and copied."""

import numba
import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.memory import copy_bytes, int32s_at, int64s_at, load_byte

TARGET, STRIDE, WIDTH, SOURCE, FOLLOWER, FLOAT_BYTES = range(6)
"""Columns of ``fields``: where row 0 lies, bytes from row to row, bytes of a value; which source has the values of the
step and which, or -1, those of the row after it; how long its floating-point numbers are, 0 where it has none that must
be finite."""

STORED, BROKEN_OFF, NOT_FINITE = range(3)
"""What became of a step: only the first stored it."""

_EXPONENT_32, _EXPONENT_64 = np.int32(0x7F800000), np.int64(0x7FF0000000000000)


@numba.njit(cache=True, nogil=True)
def insert_step(
    fields: NDArray[np.int64],
    sources: NDArray[np.int64],
    row: int,
    following_row: int,
    ended: NDArray[np.bool_],
    continues: bool,
    check: bool,
) -> int:
    """Store a step unless it does not continue the one before it, or holds what is not finite.

    Args:
        fields: (F, 6), see :data:`TARGET`.
        sources: addresses of arrays (E, ...), each in one piece.
        row: of the step's first environment.
        following_row: of the first environment in the step after it.
        ended: (E,), which environments' episodes ended in the step before.
        continues: whether the others have to begin with what that led to: with what lies in the step's row.
        check: whether NaN and infinity are refused. What continues was checked when it was led to.

    Returns:
        :data:`STORED`, or :data:`BROKEN_OFF` or :data:`NOT_FINITE`, and nothing was stored.
    """
    num_envs = ended.shape[0]
    something_ended = ended.any()
    for field in range(fields.shape[0]):
        follower, source = fields[field, FOLLOWER], sources[fields[field, SOURCE]]
        size = num_envs * fields[field, WIDTH]
        if follower >= 0:
            if continues and not _equal(fields, field, source, row, ended):
                return BROKEN_OFF
            if check and not _finite(sources[follower], size, fields[field, FLOAT_BYTES]):
                return NOT_FINITE
        known = continues and follower >= 0 and not something_ended
        if check and not known and not _finite(source, size, fields[field, FLOAT_BYTES]):
            return NOT_FINITE
    for field in range(fields.shape[0]):
        _write(fields, field, sources[fields[field, SOURCE]], row, num_envs)
        if fields[field, FOLLOWER] >= 0:
            _write(fields, field, sources[fields[field, FOLLOWER]], following_row, num_envs)
    return STORED


@numba.njit(cache=True, nogil=True, inline="always")
def _equal(fields: NDArray[np.int64], field: int, source: int, row: int, ended: NDArray[np.bool_]) -> bool:
    width, stride = fields[field, WIDTH], fields[field, STRIDE]
    target, words = fields[field, TARGET] + row * stride, width // 4
    for env in range(ended.shape[0]):
        begins, stored, different = int32s_at(source, words), int32s_at(target, words), np.int32(0)
        for k in range(words):
            different |= begins[k] ^ stored[k]
        for k in range(4 * words, width):
            different |= np.int32(load_byte(source + k) ^ load_byte(target + k))
        if different != 0 and not ended[env]:
            return False
        source, target = source + width, target + stride
    return True


@numba.njit(cache=True, nogil=True, inline="always")
def _finite(source: int, size_bytes: int, float_bytes: int) -> bool:
    # All bits of the exponent are set in NaN and infinity, and in nothing else.
    not_finite = np.int32(0)
    if float_bytes == 4:
        for number in int32s_at(source, size_bytes // 4):
            not_finite |= np.int32((number & _EXPONENT_32) == _EXPONENT_32)
    elif float_bytes == 8:
        for number in int64s_at(source, size_bytes // 8):
            not_finite |= np.int32((number & _EXPONENT_64) == _EXPONENT_64)
    return bool(not_finite == 0)


@numba.njit(cache=True, nogil=True, inline="always")
def _write(fields: NDArray[np.int64], field: int, source: int, row: int, num_envs: int) -> None:
    width, stride = fields[field, WIDTH], fields[field, STRIDE]
    target = fields[field, TARGET] + row * stride
    for _ in range(num_envs):
        copy_bytes(target, source, width)
        source, target = source + width, target + stride
