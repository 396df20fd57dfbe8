"""Temporary names of functions that moved to critics.py, for files that still use them."""

from typing import NamedTuple

from torch import Tensor

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.actor_critic.critics import (
    average,
    elementwise_minimum,
    of_smallest,
    smallest,
)
from pytorchrl.agent.algorithms.actor_critic.critics import (
    loss_of_critics as critic_loss_of,
)

__all__ = ["average", "critic_loss_of", "elementwise_minimum", "of_smallest", "smallest"]


class Expected(NamedTuple):
    """Expected value and entropy of the policy in each row."""

    value: Value
    """By the critics, without the entropy bonus."""
    entropy: Tensor
    """(N, 1)."""
