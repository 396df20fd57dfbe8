"""Errors that come with many steps at once, as those of the sequences and episodes that begin with these steps."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel


@kernel
def errors_of_starts(
    errors: NDArray[np.floating],
    broken: NDArray[np.bool_],
    starts: NDArray[np.int64],
    num_envs: int,
    longest: int,
    across_episodes: bool,
    eta: float,
) -> NDArray[np.float32]:
    """(K,): ``eta * max + (1 - eta) * mean`` of the magnitudes of the errors of the steps from each start on.

    Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section 2.3.

    Args:
        errors: (N,), of the newest transitions, those of a step one after the other.
        broken: (N,), where the next step does not continue a transition's episode.
        starts: (K,), positions in them.
        num_envs: environments in a step.
        longest: steps of a sequence.
        across_episodes: whether a sequence goes on with the environment's next episode.
        eta: share of the largest.
    """
    out = np.empty(starts.shape[0], np.float32)
    for k in range(starts.shape[0]):
        largest, total, steps, position = 0.0, 0.0, 0, starts[k]
        while position < errors.shape[0] and steps < longest:
            magnitude = abs(float(errors[position]))
            # NaN would not be the largest.
            largest = magnitude if magnitude != magnitude else max(largest, magnitude)
            total += magnitude
            steps += 1
            if broken[position] and not across_episodes:
                break
            position += num_envs
        out[k] = eta * largest + (1 - eta) * (total / steps)
    return out
