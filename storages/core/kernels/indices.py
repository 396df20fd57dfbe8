"""Where, in a table of rows and of what stands aside of them, the values of transitions are; the copying is another's.

A table has a row for each transition, then one of zeros, then the places aside, then (for stacks of frames) those of
the frames that streams begin with. Transitions and stacks are those of :mod:`storages.core.kernels.gather`.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel
from storages.core.kernels.gather import REPEAT, ZERO


@kernel
def following_places(
    last: NDArray[np.int64],
    num_envs: int,
    final_numbers: NDArray[np.int32],
    aside_mask: int,
    places: NDArray[np.int64],
) -> None:
    """Write where what followed some transitions is.

    Args:
        last: (B,) transitions.
        num_envs: environments in a step.
        final_numbers: (rows, 1), for each row the number of what stands aside for it, negative where nothing does.
        aside_mask: the number of places aside less one, which is a power of two.
        places: (B,), written.
    """
    num_rows = final_numbers.shape[0]
    for i in range(last.shape[0]):
        row = last[i] % num_rows
        number = np.int64(final_numbers[row, 0])
        places[i] = num_rows + 1 + (number & aside_mask) if number >= 0 else (row + num_envs) % num_rows


@kernel
def stack_places(
    transitions: NDArray[np.int64],
    newer: int,
    num_envs: int,
    before: NDArray[np.uint8],
    padding: NDArray[np.int32],
    padding_mask: int,
    padding_begin: int,
    places: NDArray[np.int64],
) -> None:
    """Write where the frames up to those of some transitions are, in front of the ``newer`` ones of their stacks.

    Args:
        transitions: (B,).
        newer: how many frames of a stack are newer than the transition's own; these are not written.
        num_envs: environments in a step.
        before: (rows, 1), how many rows before this one belong to its stream.
        padding: (rows, 1), what fills a stack up whose stream begins in a row: see
            :data:`storages.core.kernels.gather.REPEAT`.
        padding_mask: the number of places of padding less one, which is a power of two.
        padding_begin: where the first of them is.
        places: (B, depth), written.
    """
    num_rows, depth = before.shape[0], places.shape[1]
    for i in range(transitions.shape[0]):
        row = transitions[i] % num_rows
        stored = np.int64(before[row, 0])
        begin = (row - stored * num_envs) % num_rows
        for age in range(depth - newer):
            if age <= stored:
                place = (row - age * num_envs) % num_rows
            else:
                kind = np.int64(padding[begin, 0])
                if kind == REPEAT:
                    place = begin
                elif kind == ZERO:
                    place = num_rows
                else:
                    older = depth - 1 - (age - stored)
                    place = padding_begin + (kind & padding_mask) * (depth - 1) + older
            places[i, depth - 1 - newer - age] = place
