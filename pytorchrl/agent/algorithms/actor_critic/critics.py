"""Minimum, mean and loss of an ensemble of critics."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.algorithms.rows import Rows


def smallest(values: Sequence[Value]) -> ScalarValue:
    """Return the minimum of the critics' expected returns.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (arXiv 1802.09477), section 4.2.
    """
    minimum = values[0].mean
    for value in values[1:]:
        minimum = torch.minimum(minimum, value.mean)
    return ScalarValue(minimum)


def average(values: Sequence[Value]) -> ScalarValue:
    """Return the mean of the critics' expected returns."""
    return ScalarValue(torch.stack([value.mean for value in values]).mean(0))


def elementwise_minimum(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elementwise minimum of several tensors of one shape."""
    minimum = tensors[0]
    for tensor in tensors[1:]:
        minimum = torch.minimum(minimum, tensor)
    return minimum


def of_smallest(means: Sequence[Tensor], numbers: Sequence[Tensor]) -> Tensor:
    """Return, in each row, the numbers (N, k) of the critic with the smallest mean (N, 1)."""
    chosen = torch.cat(list(means), dim=1).argmin(1)
    return torch.stack(list(numbers), dim=1).take_along_dim(chosen[:, None, None], 1).squeeze(1)


def loss_of_critics(values: Sequence[Value], target: Value, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the loss and the errors of critics.

    Args:
        values: of the actions taken, by each critic, with gradients.
        target: without gradients.
        rows: of a batch.

    Returns:
        The sum () of the critics' losses, each a mean over rows with importance weights; and the mean of their errors,
        in the shape of the batch's rewards, for priorities.
    """
    weight = rows.weight
    loss, error = values[0].weighted_loss(weight, target)
    for value in values[1:]:
        another_loss, another_error = value.weighted_loss(weight, target)
        loss, error = loss + another_loss, error + another_error
    return loss, rows.per_row(error / len(values))
