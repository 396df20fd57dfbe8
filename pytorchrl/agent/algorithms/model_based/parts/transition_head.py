"""The head of a model of the environment: changes of observations, rewards, and whether episodes go on."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.output_layer import OutputLayer


class PredictedChange:
    """A predicted change of N observations of D numbers, with the reward, and whether the episode goes on.

    Args:
        mean: (N, D + 1), of the change and, last, the reward.
        log_std: (N, D + 1), logarithm of the standard deviation; None for a prediction without a variance.
        logit: (N, 1), log-odds that the episode goes on.
    """

    def __init__(self, mean: Tensor, log_std: Tensor | None, logit: Tensor) -> None:
        self.mean, self.log_std, self.logit = mean, log_std, logit

    def sample(self, generator: torch.Generator) -> Tensor:
        """Return changes and rewards (N, D + 1): samples, or the mean of a prediction without a variance."""
        if self.log_std is None:
            return self.mean
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    @property
    def probability_of_going_on(self) -> Tensor:
        """(N, 1)."""
        return self.logit.sigmoid()

    def loss(self, observed: Tensor, goes_on: Tensor) -> Tensor:
        """Return the loss (N, 1) of what was observed.

        Of a Gaussian prediction it is the mean negative log-likelihood of the D + 1 numbers, without its constant. One
        without a variance has half the squared error, in units of the variance of each number in the batch. Both add
        the cross-entropy of whether the episode went on.

        Args:
            observed: (N, D + 1), changes and rewards.
            goes_on: (N, 1), 0 where the episode has ended, else 1.
        """
        if self.log_std is None:
            errors = 0.5 * (self.mean - observed).square() / (observed.var(0, correction=0) + _SMALLEST_VARIANCE)
        else:
            errors = 0.5 * ((self.mean - observed) * (-self.log_std).exp()).square() + self.log_std
        surprise = F.binary_cross_entropy_with_logits(self.logit, goes_on, reduction="none")
        return errors.mean(1, keepdim=True) + surprise


@dataclass(frozen=True)
class TransitionHead:
    """A :class:`PredictedChange`; for networks that take actions.

    Args:
        size: D, the numbers of an observation.
        probabilistic: whether a variance is predicted, between learnt bounds (Chua et al., arXiv 1805.12114, A.1).
    """

    size: int
    probabilistic: bool

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        outputs = self.size + 1
        layer = actor.linear(features, (2 if self.probabilistic else 1) * outputs + 1)
        return _GaussianChange(layer, outputs) if self.probabilistic else _MeanChange(layer)


class _MeanChange(OutputLayer):
    def output(self, numbers: Tensor) -> PredictedChange:
        return PredictedChange(numbers[:, :-1], None, numbers[:, -1:])


class _GaussianChange(OutputLayer):
    """Bounds of logarithms of standard deviations are learnt: the loss has the distance between them."""

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__(layer)
        self.min_log_std = nn.Parameter(torch.full((outputs,), -5.0))
        self.max_log_std = nn.Parameter(torch.full((outputs,), 0.25))

    def output(self, numbers: Tensor) -> PredictedChange:
        mean, log_std, logit = numbers.tensor_split((len(self.min_log_std), 2 * len(self.min_log_std)), dim=1)
        log_std = self.max_log_std - F.softplus(self.max_log_std - log_std)
        log_std = self.min_log_std + F.softplus(log_std - self.min_log_std)
        return PredictedChange(mean, log_std, logit)


def distance_of_bounds(head: nn.Module) -> Tensor | float:
    """Return the distance () between the bounds of a head's deviations, summed over its outputs; 0 without bounds."""
    return (head.max_log_std - head.min_log_std).sum() if isinstance(head, _GaussianChange) else 0.0


_SMALLEST_VARIANCE = 1e-6
"""Avoids division by 0 where a number is the same in all rows."""
