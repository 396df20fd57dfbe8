"""Which steps a sequence has: those around the one it begins with, of the same environment, one after the other."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel


@kernel
def lay_out(
    first: NDArray[np.int64],
    before: int,
    begin: int,
    end: int,
    num_envs: int,
    across_episodes: bool,
    final_numbers: NDArray[np.int32],
    transitions: NDArray[np.int64],
    real: NDArray[np.float32],
    anew: NDArray[np.float32],
) -> None:
    """Find the ``before`` steps before, and all that fit from there on.

    Where there is no further step (an episode has ended, a stream broke off, nothing newer or older is stored), the
    last real one is repeated.

    Args:
        first: (B,) int64, numbers of the transitions that the sequences begin with.
        before: steps before them.
        begin: number of the oldest live transition.
        end: number after the newest.
        num_envs: environments in a step.
        across_episodes: whether a sequence goes on with the environment's next episode.
        final_numbers: (rows, 1) int32, negative where the next row of the environment continues a row.
        transitions: (steps, B) int64, written.
        real: (steps, B), written: 1 where a step is not a repetition.
        anew: (steps, B), written: 1 where a step does not continue the one before it, so that memory starts anew.
    """
    rows = final_numbers.shape[0]
    for b in range(first.shape[0]):
        number, goes_on = first[b], True
        for t in range(before, transitions.shape[0]):
            anew[t, b] = 0.0
            if t > before and goes_on:
                ended = final_numbers[number % rows, 0] >= 0
                goes_on = number + num_envs < end and (across_episodes or not ended)
                if goes_on:
                    number += num_envs
                    anew[t, b] = 1.0 if ended else 0.0
            transitions[t, b] = number
            real[t, b] = 1.0 if goes_on else 0.0
        number, goes_on = first[b], True
        for t in range(before - 1, -1, -1):
            if goes_on:
                earlier = number - num_envs
                goes_on = earlier >= begin and final_numbers[earlier % rows, 0] < 0
                # What comes after repetitions must not remember them.
                anew[t + 1, b] = 0.0 if goes_on else 1.0
                if goes_on:
                    number = earlier
            transitions[t, b] = number
            real[t, b] = 1.0 if goes_on else 0.0
            anew[t, b] = 0.0 if goes_on else 1.0


@kernel
def sequence_errors(errors: NDArray[np.floating], mask: NDArray[np.float32], eta: float) -> NDArray[np.float32]:
    """(B,): ``eta * max + (1 - eta) * mean`` of the magnitudes of each sequence's errors (T, B) where mask is not 0.

    Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section 2.3.
    """
    out = np.empty(errors.shape[1], np.float32)
    for b in range(errors.shape[1]):
        largest, total, steps = 0.0, 0.0, 0
        for t in range(errors.shape[0]):
            if mask[t, b] > 0:
                magnitude = abs(float(errors[t, b]))
                largest = max(largest, magnitude)
                total += magnitude
                steps += 1
        out[b] = eta * largest + (1 - eta) * (total / max(1, steps))
    return out


@kernel
def packed_sequence_errors(
    errors: NDArray[np.floating], of: NDArray[np.int64], num_sequences: int, eta: float
) -> NDArray[np.float32]:
    """(B,): as :func:`sequence_errors`, of errors (N,) of steps that are each of one of the sequences, ``of`` (N,).

    Raises:
        IndexError: a step is of none of the sequences.
    """
    largest, totals = np.zeros(num_sequences), np.zeros(num_sequences)
    steps = np.zeros(num_sequences, np.int64)
    for i in range(errors.shape[0]):
        if not 0 <= of[i] < num_sequences:
            raise IndexError("the batch has more episodes in EPISODE than in INDICES; no priority was changed")
        magnitude = abs(float(errors[i]))
        largest[of[i]] = max(largest[of[i]], magnitude)
        totals[of[i]] += magnitude
        steps[of[i]] += 1
    out = np.empty(num_sequences, np.float32)
    for b in range(num_sequences):
        out[b] = eta * largest[b] + (1 - eta) * (totals[b] / max(1, steps[b]))
    return out
