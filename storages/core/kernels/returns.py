"""Returns and advantages over a rollout: every array is (T, E), time first.

``ends`` is true where the next row does not continue the episode; there the return bootstraps from ``next_values``
instead of the next row. The caller sets ``next_values`` to 0 where the environment terminated, and to the value of the
final observation where the episode was truncated. Sums are accumulated in float64. The inner loop is over environments,
so that their additions overlap in the processor.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import parallel_kernel


@parallel_kernel
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
    equation 16: ``A_t = delta_t + gamma * lambda * A_{t+1}``, ``delta_t = r_t + gamma * v'_t - v_t``; the recursion
    restarts at every end of an episode.
    """
    steps, num_envs = rewards.shape
    following = np.zeros(num_envs)
    for t in range(steps - 1, -1, -1):
        for e in range(num_envs):
            delta = rewards[t, e] + gamma * next_values[t, e] - values[t, e]
            following[e] = delta + gamma * gae_lambda * (0.0 if ends[t, e] else following[e])
            advantages[t, e] = following[e]


@parallel_kernel
def lambda_returns(
    rewards: NDArray[np.floating],
    next_values: NDArray[np.floating],
    ends: NDArray[np.bool_],
    gamma: float,
    trace_lambda: float,
    returns: NDArray[np.floating],
) -> None:
    """Write the lambda return of every row into ``returns``.

    Sutton and Barto, "Reinforcement Learning" (2018), equation 12.2, recursively:
    ``G_t = r_t + gamma * ((1 - lambda) * v'_t + lambda * G_{t+1})``, and ``v'_t`` alone at an end and in the last row.
    With a lambda of 1 it is the bootstrapped discounted return.
    """
    steps, num_envs = rewards.shape
    following = np.zeros(num_envs)
    for t in range(steps - 1, -1, -1):
        for e in range(num_envs):
            value = next_values[t, e]
            after = value if t == steps - 1 or ends[t, e] else following[e]
            following[e] = rewards[t, e] + gamma * ((1 - trace_lambda) * value + trace_lambda * after)
            returns[t, e] = following[e]


@parallel_kernel
def vtrace(
    rewards: NDArray[np.floating],
    values: NDArray[np.floating],
    next_values: NDArray[np.floating],
    ends: NDArray[np.bool_],
    ratios: NDArray[np.floating],
    gamma: float,
    rho_bar: float,
    c_bar: float,
    trace_lambda: float,
    targets: NDArray[np.floating],
    advantages: NDArray[np.floating],
) -> None:
    """Write the V-trace target and policy-gradient advantage of every row into ``targets`` and ``advantages``.

    Espeholt et al., "IMPALA" (arXiv 1802.01561), remark 1 and section 4.2: with ``rho_t = min(rho_bar, ratio_t)`` and
    ``c_t = lambda * min(c_bar, ratio_t)``, ``v_t = V_t + delta_t + gamma * c_t * (v_{t+1} - V_{t+1})``, where
    ``delta_t = rho_t * (r_t + gamma * V_{t+1} - V_t)``; the advantage is ``rho_t * (r_t + gamma * v_{t+1} - V_t)``. At
    an end, and in the last row, ``V_{t+1}`` is ``v'_t`` and so is ``v_{t+1}``.

    Args:
        rewards: (T, E).
        values: (T, E), V of the observations.
        next_values: (T, E), V of the next observations; 0 where the environment terminated.
        ends: (T, E), where the next row does not continue this one.
        ratios: (T, E), importance ratios of the actions, current policy over behaviour policy.
        gamma: per-step discount factor.
        rho_bar: truncation level of the weight of a TD error.
        c_bar: truncation level of the trace coefficient.
        trace_lambda: factor of the trace coefficient.
        targets: (T, E), written.
        advantages: (T, E), written.
    """
    steps, num_envs = rewards.shape
    corrections = np.zeros(num_envs)
    for t in range(steps - 1, -1, -1):
        for e in range(num_envs):
            correction = 0.0 if ends[t, e] else corrections[e]
            rho, c = min(rho_bar, ratios[t, e]), trace_lambda * min(c_bar, ratios[t, e])
            error = rewards[t, e] + gamma * next_values[t, e] - values[t, e]
            advantages[t, e] = rho * (error + gamma * correction)
            corrections[e] = rho * error + gamma * c * correction
            targets[t, e] = values[t, e] + corrections[e]


@parallel_kernel
def retrace(
    rewards: NDArray[np.floating],
    action_values: NDArray[np.floating],
    next_values: NDArray[np.floating],
    ends: NDArray[np.bool_],
    ratios: NDArray[np.floating],
    gamma: float,
    trace_lambda: float,
    targets: NDArray[np.floating],
) -> None:
    """Write the Retrace target of Q(s, a) of every row into ``targets``.

    Munos et al., "Safe and Efficient Off-Policy Reinforcement Learning" (arXiv 1606.02647), equations 3 and 4: with
    ``c_t = lambda * min(1, ratio_t)``, ``Q*_t = r_t + gamma * (v'_t + c_{t+1} * (Q*_{t+1} - Q_{t+1}))``, ``v'_t`` alone
    at an end and in the last row.

    Args:
        rewards: (T, E).
        action_values: (T, E), Q of the observations and actions.
        next_values: (T, E), the expectation of Q under the current policy at the next observations; 0 where the
            environment terminated.
        ends: (T, E), where the next row does not continue this one.
        ratios: (T, E), importance ratios of the actions, current policy over behaviour policy.
        gamma: per-step discount factor.
        trace_lambda: factor of the trace coefficient; 0 for one-step targets.
        targets: (T, E), written.
    """
    steps, num_envs = rewards.shape
    corrections = np.zeros(num_envs)
    for t in range(steps - 1, -1, -1):
        for e in range(num_envs):
            target = rewards[t, e] + gamma * (next_values[t, e] + (0.0 if ends[t, e] else corrections[e]))
            targets[t, e] = target
            corrections[e] = trace_lambda * min(1.0, ratios[t, e]) * (target - action_values[t, e])
