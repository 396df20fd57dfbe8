"""The head of a model of the environment: changes of observations, rewards, and whether episodes go on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer


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
        return TransitionLayer(layer, outputs if self.probabilistic else 0)


class TransitionLayer(OutputLayer):
    """The module of :class:`TransitionHead`.

    Args:
        layer: from features to numbers.
        deviations: number of standard deviations among them; 0 for a prediction without a variance.
    """

    def __init__(self, layer: nn.Module, deviations: int) -> None:
        super().__init__(layer)
        initial = torch.tensor(_INITIAL_BOUNDS).unsqueeze(1).repeat(1, deviations)
        self.bounds = nn.Parameter(initial) if deviations else None
        """(2, deviations): lower and upper bounds of logarithms of standard deviations."""

    def output(self, numbers: Tensor) -> PredictedChange:
        """Convert the numbers (N, numbers) of the layer."""
        return _converted(numbers, self.bounds)

    @property
    def distance_of_bounds(self) -> Tensor | float:
        """(), summed over the deviations."""
        return 0.0 if self.bounds is None else (self.bounds[1] - self.bounds[0]).sum()


def join_predictions(predictions: Sequence[PredictedChange]) -> PredictedChange:
    """Return the rows of several predictions as one."""
    deviations = [each.log_std for each in predictions if each.log_std is not None]
    return PredictedChange(
        torch.cat([each.mean for each in predictions]),
        torch.cat(deviations) if deviations else None,
        torch.cat([each.logit for each in predictions]),
    )


def convert_numbers(heads: Sequence[TransitionLayer], numbers: Tensor) -> PredictedChange:
    """Convert the numbers (M, N, numbers) of the layers of M heads to a prediction of M * N rows."""
    each: list[Tensor] = [head.bounds for head in heads if head.bounds is not None]
    predicted = _converted(numbers, torch.stack(each, dim=1).unsqueeze(2) if each else None)
    log_std = None if predicted.log_std is None else predicted.log_std.flatten(0, 1)
    return PredictedChange(predicted.mean.flatten(0, 1), log_std, predicted.logit.flatten(0, 1))


def _converted(numbers: Tensor, bounds: Tensor | None) -> PredictedChange:
    if bounds is None:
        return PredictedChange(numbers[..., :-1], None, numbers[..., -1:])
    (lowest, highest), deviations = bounds, bounds.shape[-1]
    mean, log_std, logit = numbers.tensor_split((deviations, 2 * deviations), dim=-1)
    log_std = highest - F.softplus(highest - log_std)
    return PredictedChange(mean, lowest + F.softplus(log_std - lowest), logit)


_INITIAL_BOUNDS = (-5.0, 0.25)
_SMALLEST_VARIANCE = 1e-6
"""Avoids division by 0 where a number is the same in all rows."""
