"""What algorithms with several critics of one action make of them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.rows import Rows


class Expected(NamedTuple):
    """What follows from the policy in each row, (N, 1) each."""

    value: Tensor
    """By the smallest critic, without entropies."""
    entropy: Tensor


def smallest(values: Sequence[Value]) -> Tensor:
    """(N, 1): the smallest of the critics' expected returns.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (arXiv 1802.09477), section 4.2.
    """
    return elementwise_minimum([value.mean for value in values])


def elementwise_minimum(tensors: Sequence[Tensor]) -> Tensor:
    """The smallest of several tensors of one shape, number by number."""
    minimum = tensors[0]
    for tensor in tensors[1:]:
        minimum = torch.minimum(minimum, tensor)
    return minimum


def loss_of_critics(values: Sequence[Value], target: Value, rows: Rows) -> Tensor:
    """(): the sum of the critics' losses, each a mean over rows with importance weights."""
    losses = [value.loss(target) for value in values]
    return rows.weighted_mean(losses[0] if len(losses) == 1 else torch.stack(losses).sum(0))


def errors_of_critics(values: Sequence[Value], target: Value, rows: Rows) -> Tensor:
    """The mean of the critics' errors, in the shape of the batch's rewards, for priorities."""
    errors = [value.error(target) for value in values]
    return rows.per_row(torch.stack(errors).mean(0))
