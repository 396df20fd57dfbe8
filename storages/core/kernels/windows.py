"""What lies around a row: how far a window of steps reaches before its episode ends, and what was paid in it.

Transitions are numbered as in :mod:`storages.core.kernels.gather`: those of one environment lie ``num_envs`` apart.
"""

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def last_of_windows(
    first: NDArray[np.int64],
    longest: int,
    end: int,
    num_envs: int,
    aside_numbers: NDArray[np.int64],
    last: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> None:
    """Follow each transition's environment for ``longest`` steps, no further than an end or the newest step.

    Args:
        first: (B,) int64, transitions that windows begin with.
        longest: steps in a window that nothing ends before.
        end: number of the next transition to be inserted.
        num_envs: how many environments a step has.
        aside_numbers: (rows,) int64, -1 where the next row of the environment continues a row.
        last: (B,) int64, written: the transitions that the windows end with.
        lengths: (B,) int64, written: steps in each window.
    """
    rows = aside_numbers.shape[0]
    for i in range(first.shape[0]):
        number = first[i]
        length = 1
        while length < longest and number + num_envs < end and aside_numbers[number % rows] < 0:
            number += num_envs
            length += 1
        last[i] = number
        lengths[i] = length


@numba.njit(cache=True, nogil=True)
def discounted_sums(
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rewards: NDArray[np.floating],
    gamma: float,
    num_envs: int,
    sums: NDArray[np.floating],
) -> None:
    """Write ``sum_i gamma**i * r_i`` over each window into ``sums``, kept in float64 on the way.

    Args:
        first: (B,) int64, transitions that windows begin with.
        lengths: (B,) int64, steps in each window.
        rewards: (rows,), the reward in each row.
        gamma: discount factor of one step.
        num_envs: how many environments a step has.
        sums: (B,), written.
    """
    rows = rewards.shape[0]
    for i in range(first.shape[0]):
        total = 0.0
        # Backwards, so that no power is needed.
        for step in range(lengths[i] - 1, -1, -1):
            total = rewards[(first[i] + step * num_envs) % rows] + gamma * total
        sums[i] = total
