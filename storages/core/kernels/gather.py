"""Copying rows out of a ring, whatever their dtype: all arrays here are two-dimensional bytes, a transition a row.

Transitions are named by the number of transitions inserted before them, counted over all environments; the ring's
rows repeat, so transition ``n`` lies in row ``n % len(source)``, and what the same environment did next in row
``(n + num_envs) % len(source)``.
"""

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def gather_rows(source: NDArray[np.uint8], transitions: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    """Copy the row of each transition into ``out``.

    Args:
        source: (rows, bytes).
        transitions: (B,) int64, transition numbers.
        out: (B, bytes).
    """
    rows = source.shape[0]
    for i in range(transitions.shape[0]):
        row = transitions[i] % rows
        for k in range(source.shape[1]):
            out[i, k] = source[row, k]


@numba.njit(cache=True, nogil=True)
def gather_successors(
    source: NDArray[np.uint8],
    aside: NDArray[np.uint8],
    aside_numbers: NDArray[np.int64],
    transitions: NDArray[np.int64],
    num_envs: int,
    out: NDArray[np.uint8],
) -> None:
    """Copy what followed each transition: the next row of its environment, or what stands aside where none follows.

    Args:
        source: (rows, bytes), what each step began with.
        aside: (places, bytes), what episodes ended with; number ``a`` lies in place ``a % places``.
        aside_numbers: (rows,) int64, for each row the number of what stands aside for it, -1 where nothing does.
        transitions: (B,) int64, transition numbers.
        num_envs: how many environments a step has.
        out: (B, bytes).
    """
    rows = source.shape[0]
    for i in range(transitions.shape[0]):
        number = aside_numbers[transitions[i] % rows]
        if number >= 0:
            place = number % aside.shape[0]
            for k in range(source.shape[1]):
                out[i, k] = aside[place, k]
        else:
            row = (transitions[i] + num_envs) % rows
            for k in range(source.shape[1]):
                out[i, k] = source[row, k]
