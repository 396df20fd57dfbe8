"""Copying rows out of a ring, whatever their dtype: all arrays here are two-dimensional bytes, a transition a row.

Transition ``n`` lies in row ``n % len(source)``, and what the same environment did next ``num_envs`` rows further,
round the ring. A kernel asks for what it will read before it reads it: see :mod:`storages.core.kernels.prefetch`.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.prefetch import prefetch, prefetch_row

_LARGEST_PREFETCHED_BYTES = 1024
"""Of a longer row the processor itself sees what comes next."""


@numba.njit(cache=True, nogil=True)
def gather_rows(source: NDArray[np.uint8], rows: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Copy rows into ``out``.

    Args:
        source: (rows, bytes).
        rows: (B,) int64.
        out: (B, bytes).
    """
    width = source.shape[1]
    if width <= _LARGEST_PREFETCHED_BYTES:
        for i in range(rows.shape[0]):
            prefetch_row(source, rows[i])
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(width):
            out[i, k] = source[row, k]


@numba.njit(cache=True, nogil=True)
def gather_successors(
    source: NDArray[np.uint8],
    aside: NDArray[np.uint8],
    aside_numbers: NDArray[np.int64],
    rows: NDArray[np.int64],
    num_envs: int,
    out: NDArray[np.uint8],
) -> None:
    """Copy what followed the transition in each row: its environment's next row, or what stands aside for it.

    Args:
        source: (rows, bytes), what each step began with.
        aside: (places, bytes), what episodes ended with; number ``a`` lies in place ``a % places``.
        aside_numbers: (rows, 1) int64, for each row the number of what stands aside for it, -1 where nothing does.
        rows: (B,) int64.
        num_envs: how many environments a step has.
        out: (B, bytes).
    """
    batch, width = rows.shape[0], source.shape[1]
    for i in range(batch):
        prefetch(aside_numbers, rows[i], 0)
    # Where to copy from: a row of the source from 0 on, a place aside below.
    places = np.empty(batch, np.int64)
    for i in range(batch):
        number = aside_numbers[rows[i], 0]
        if number >= 0:
            places[i] = -1 - number % aside.shape[0]
        else:
            following = rows[i] + num_envs
            places[i] = following if following < source.shape[0] else following - source.shape[0]
            if width <= _LARGEST_PREFETCHED_BYTES:
                prefetch_row(source, places[i])
    for i in range(batch):
        place = places[i]
        if place >= 0:
            for k in range(width):
                out[i, k] = source[place, k]
        else:
            for k in range(width):
                out[i, k] = aside[-1 - place, k]
