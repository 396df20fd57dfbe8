"""Retrace targets of Q-values from off-policy trajectories."""

from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.parts.paths import Paths, discounted_sums, later
from pytorchrl.agent.algorithms.rows import Rows


def retrace(paths: Paths, rows: Rows, taken: Tensor, value: Tensor, next_value: Tensor, trace: Tensor) -> Tensor:
    """Return targets (N, 1): ``r + discount * (trace' * (target' - Q(s', a')) + V(s'))``, backwards along paths.

    Munos et al., "Safe and Efficient Off-Policy Reinforcement Learning" (arXiv 1606.02647), equation 3, in the form of
    Wang et al. (arXiv 1611.01224), equation 5. Targets bootstrap on V(OBS2) where a path or an episode ends.

    Args:
        paths: time-major layout of the rows.
        rows: of one-step transitions.
        taken: (N, 1), Q of the actions taken.
        value: (N, 1), V of OBS.
        next_value: (N, 1), V of OBS2.
        trace: (N, 1), trace coefficient of each step: ``min(1, ratio)`` for Retrace, 1 for Q(lambda) with lambda of 1.
    """
    discount, coefficient = paths.in_time(rows.discount), paths.in_time(trace)
    follows = later(paths.in_time(value - trace * taken))
    continues = paths.continues
    expected = continues * follows + (1 - continues) * paths.in_time(next_value)
    terms = paths.in_time(rows.reward) + discount * expected
    targets, _ = discounted_sums(terms, discount * continues * later(coefficient), len(terms))
    return paths.rows(targets)
