"""Which rows belong to one episode, kept up to date step by step.

``first[row]`` is the number of the step in which a row's episode began, ``last[row]`` that of the step which it ended
or broke off with, :data:`OPEN` while it goes on. Both are (slots, E); step ``t`` lies in slot ``t % slots``.
"""

import numba
import numpy as np
from numpy.typing import NDArray

OPEN = -1


@numba.njit(cache=True, nogil=True)
def add_step(
    aside_numbers: NDArray[np.int32],
    step: int,
    oldest: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Take up a step that was just inserted.

    Args:
        aside_numbers: (slots, E) int32, not negative where an episode ended or broke off.
        step: the step's number.
        oldest: number of the oldest live step.
        first: written.
        last: written.
    """
    slots, num_envs = first.shape
    slot, before = step % slots, (step - 1) % slots
    for env in range(num_envs):
        last[slot, env] = OPEN
        if step == oldest:
            first[slot, env] = step
        elif aside_numbers[before, env] < 0:
            first[slot, env] = first[before, env]
        else:
            first[slot, env] = step
            for member in range(max(first[before, env], oldest), step):
                last[member % slots, env] = step - 1


@numba.njit(cache=True, nogil=True)
def add_steps(
    aside_numbers: NDArray[np.int32],
    oldest: int,
    end: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Take up the steps from ``oldest`` to before ``end``, as if they were inserted one by one."""
    for step in range(oldest, end):
        add_step(aside_numbers, step, oldest, first, last)
