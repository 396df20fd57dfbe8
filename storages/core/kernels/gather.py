"""Copies of transitions out of a ring, for any dtypes.

Transition ``n`` lies in row ``n % rows``, the next one of the same environment ``num_envs`` rows further, modulo
``rows``. Its next observation is the observation of that row, or a final observation in
:mod:`storages.core.ring.side_table`.

Random rows are not in the cache, so the kernel prefetches everything that it reads: see
:func:`storages.core.kernels.memory.prefetch`.
"""

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.memory import (
    address_of,
    copy_row,
    load_byte,
    load_int32,
    load_int64,
    pointer,
    prefetch_at,
    store_byte,
    store_float32,
    store_int32,
    store_int64,
)

HERE, HERE_FLAG, LAST, LAST_FLAG, FOLLOWING = range(5)
"""Kinds of fields: of a window's first transition, of its last one, and next values; flags become float32."""

FIELD = np.dtype(
    [
        ("address", np.int64),  # of row 0
        ("stride", np.int64),  # bytes from row to row
        ("width", np.int64),  # bytes of a value
        ("kind", np.int64),  # see HERE
        ("final", np.int64),  # address of entry 0 in the side table
        ("final_mask", np.int64),  # entries of the side table, a power of two, less one
    ]
)
"""One field of a batch."""

REGION = np.dtype([("address", np.int64), ("stride", np.int64), ("width", np.int64)])
"""Contiguous bytes of every row, to be prefetched together."""

PLAN = np.dtype(
    [
        ("fields", np.int64),  # address of (F,) FIELD
        ("field_count", np.int64),
        ("here", np.int64),  # address of (R,) REGION: read in the rows of windows
        ("here_count", np.int64),
        ("following", np.int64),  # address of (R,) REGION: read in the rows after windows
        ("following_count", np.int64),
        ("final_numbers", np.int64),  # address of the int32 of row 0: its entry in the side table, negative for none
        ("final_stride", np.int64),  # bytes from row to row of these
        ("rows", np.int64),  # rows of all environments
        ("envs", np.int64),
    ]
)
"""Addresses of a batch's fields, passed as one address."""

ALIGNMENT_BYTES = 64
"""Alignment of each field's values."""

_CACHE_LINE_BYTES = 64
_ROWS_AT_A_TIME = 512
"""Block size for which prefetched rows are still in the cache when they are read."""


@parallel_kernel
def gather_fields(plan_address: int, first: NDArray[np.int64], last: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Copy fields of windows into ``out``, one field after the other, each aligned to 64 bytes.

    Args:
        plan_address: address of a PLAN.
        first: (B,) first transitions of windows.
        last: (B,) last transitions of windows; ``first`` itself for windows of one step.
        out: (bytes,), written.
    """
    plan = carray(pointer(plan_address), 1, PLAN)[0]
    fields = carray(pointer(plan.fields), plan.field_count, FIELD)
    here = carray(pointer(plan.here), plan.here_count, REGION)
    following = carray(pointer(plan.following), plan.following_count, REGION)
    num_rows, num_envs = plan.rows, plan.envs
    windows, out_address = first.shape[0], address_of(out)
    first_rows, last_rows = np.empty(_ROWS_AT_A_TIME, np.int64), np.empty(_ROWS_AT_A_TIME, np.int64)
    following_rows = np.empty(_ROWS_AT_A_TIME, np.int64)
    for begin in range(0, windows, _ROWS_AT_A_TIME):
        count = min(_ROWS_AT_A_TIME, windows - begin)
        for i in range(count):
            # An unsigned division is quicker than a signed one.
            first_rows[i] = np.int64(np.uint64(first[begin + i]) % np.uint64(num_rows))
            _prefetch(here, first_rows[i])
        if address_of(first) == address_of(last):
            # A slice assignment takes two seconds to compile.
            for i in range(count):
                last_rows[i] = first_rows[i]
        else:
            for i in range(count):
                # No prefetch: these rows were read to find the ends of windows.
                ended = first_rows[i] + last[begin + i] - first[begin + i]
                ended = ended if ended < num_rows else ended - num_rows
                # Only a window of a user's own can be longer than the ring.
                last_rows[i] = ended if 0 <= ended < num_rows else last[begin + i] % num_rows
        for i in range(count):
            row = last_rows[i] + num_envs
            following_rows[i] = row if row < num_rows else row - num_rows
            _prefetch(following, following_rows[i])
        target = out_address
        for k in range(fields.shape[0]):
            field = fields[k]
            address, stride, width, kind = field.address, field.stride, field.width, field.kind
            if kind in (HERE, LAST):
                _copy(address, stride, width, first_rows if kind == HERE else last_rows, count, target + begin * width)
            elif kind == FOLLOWING:
                to = target + begin * width
                for i in range(count):
                    number = load_int32(plan.final_numbers + last_rows[i] * plan.final_stride)
                    if number >= 0:
                        copy_row(to, field.final + (number & field.final_mask) * width, width)
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
def following_places(
    last: NDArray[np.int64],
    num_envs: int,
    final_numbers: NDArray[np.int32],
    final_mask: int,
    places: NDArray[np.int64],
) -> None:
    """Write the rows of next observations in a device table: all rows, a row of zeros, the side table's entries.

    Args:
        last: (B,) transitions.
        num_envs: environments in a step.
        final_numbers: (rows, 1), for each row its entry in the side table, negative for none.
        final_mask: the side table's capacity, a power of two, minus one.
        places: (B,), written.
    """
    num_rows = final_numbers.shape[0]
    for i in range(last.shape[0]):
        row = last[i] % num_rows
        number = np.int64(final_numbers[row, 0])
        places[i] = num_rows + 1 + (number & final_mask) if number >= 0 else (row + num_envs) % num_rows


@inlined_kernel
def _prefetch(regions: Any, row: int) -> None:
    for k in range(regions.shape[0]):
        region = regions[k]
        address, width = region.address + row * region.stride, region.width
        for offset in range(0, width, _CACHE_LINE_BYTES):
            prefetch_at(address + offset)
        # An unaligned region ends in one more cache line.
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
