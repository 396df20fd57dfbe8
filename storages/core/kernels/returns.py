"""Returns and advantages over a rollout: every array is (T, E), time first.

``ends`` is true where the row after is of another episode (or there is none that continues it); there the return
leans on ``next_values`` instead of on the next row. Whoever calls has put 0 into ``next_values`` where the environment
terminated and the value of the true last observation where a limit cut the episode. Sums are kept in float64.
"""

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def discounted_returns(
    rewards: NDArray[np.floating],
    next_values: NDArray[np.floating],
    ends: NDArray[np.bool_],
    gamma: float,
    returns: NDArray[np.floating],
) -> None:
    """Write the bootstrapped discounted return of every row into ``returns``.

    ``G_t = r_t + gamma * (v'_t if the row ends the rollout or an episode else G_{t+1})``.
    """
    steps, num_envs = rewards.shape
    for e in range(num_envs):
        following = 0.0
        for t in range(steps - 1, -1, -1):
            last = t == steps - 1 or ends[t, e]
            following = rewards[t, e] + gamma * (next_values[t, e] if last else following)
            returns[t, e] = following


@numba.njit(cache=True, nogil=True)
def generalized_advantages(
    rewards: NDArray[np.floating],
    values: NDArray[np.floating],
    next_values: NDArray[np.floating],
    ends: NDArray[np.bool_],
    gamma: float,
    gae_lambda: float,
    advantages: NDArray[np.floating],
) -> None:
    """Write the generalized advantage estimate of every row into ``advantages``.

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (arXiv 1506.02438),
    equation 16: ``A_t = delta_t + gamma * lambda * A_{t+1}``, ``delta_t = r_t + gamma * v'_t - v_t``, the recursion
    broken at every end of an episode.
    """
    steps, num_envs = rewards.shape
    for e in range(num_envs):
        following = 0.0
        for t in range(steps - 1, -1, -1):
            if ends[t, e]:
                following = 0.0
            delta = rewards[t, e] + gamma * next_values[t, e] - values[t, e]
            following = delta + gamma * gae_lambda * following
            advantages[t, e] = following
