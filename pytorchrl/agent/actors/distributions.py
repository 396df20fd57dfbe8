"""Distributions of actions: sampled from a generator that a checkpoint can save, scalars with their trailing axis.

Hand-written for what torch.distributions lacks: a generator of one's own, and no checks or broadcasting on a path that
runs at every environment step.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """A distribution of actions for each of ``B`` observations."""

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, *action): an action each, drawn without a gradient."""

    def mode(self) -> Tensor:
        """(B, *action): the most likely action of each (for a squashed one, the most likely before squashing)."""

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1): log probability (density) of actions (B, *action)."""

    def entropy(self) -> Tensor:
        """(B, 1): in nats."""


class Categorical:
    """One of ``n`` actions each.

    Args:
        logits: (B, n), unnormalised log probabilities.
    """

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = F.log_softmax(logits, dim=-1)

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, 1) int64, by the Gumbel trick: the largest of ``log p - log(exponential noise)``."""
        noise = torch.empty_like(self.log_probs).exponential_(generator=generator)
        return (self.log_probs.detach() - noise.log_()).argmax(-1, keepdim=True)

    def mode(self) -> Tensor:
        """(B, 1) int64."""
        return self.log_probs.argmax(-1, keepdim=True)

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1) of actions (B, 1)."""
        return self.log_probs.gather(-1, action)

    def entropy(self) -> Tensor:
        """(B, 1)."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1, keepdim=True)


class MultiCategorical:
    """Several independent choices, ``n`` actions each.

    Args:
        logits: (B, sum of all ``n``), unnormalised log probabilities, choice after choice.
        choices: ``n`` of each.
        shape: of one action, with as many numbers as there are choices.
    """

    def __init__(self, logits: Tensor, choices: Sequence[int], shape: tuple[int, ...]) -> None:
        self.parts = [Categorical(part) for part in logits.split_with_sizes(list(choices), dim=-1)]
        self._shape = shape

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, *action) int64."""
        return torch.cat([part.sample(generator) for part in self.parts], dim=-1).view(-1, *self._shape)

    def mode(self) -> Tensor:
        """(B, *action) int64."""
        return torch.cat([part.mode() for part in self.parts], dim=-1).view(-1, *self._shape)

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1) of actions (B, *action): the sum over the choices."""
        chosen = action.flatten(1).chunk(len(self.parts), dim=-1)
        log_probs = [part.log_prob(number) for part, number in zip(self.parts, chosen, strict=True)]
        return torch.cat(log_probs, dim=-1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """(B, 1): the sum over the choices."""
        return torch.cat([part.entropy() for part in self.parts], dim=-1).sum(-1, keepdim=True)


class Bernoulli:
    """Independent numbers that are 0 or 1.

    Args:
        logits: (B, *action), log odds of 1.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, *action) int8."""
        drawn = torch.empty_like(self.logits).uniform_(generator=generator)
        return (drawn < self.logits.detach().sigmoid()).to(torch.int8)

    def mode(self) -> Tensor:
        """(B, *action) int8."""
        return (self.logits > 0).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1) of actions (B, *action)."""
        return -F.softplus((1 - 2 * action) * self.logits).flatten(1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """(B, 1)."""
        surprise_of_1 = F.softplus(-self.logits)
        return (surprise_of_1 + (1 - self.logits.sigmoid()) * self.logits).flatten(1).sum(-1, keepdim=True)


class DiagonalGaussian:
    """Independent normals.

    Args:
        mean: (B, *action).
        log_std: broadcasts against ``mean``.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std.expand_as(mean)

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, *action)."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return torch.addcmul(self.mean.detach(), self.log_std.detach().exp(), noise)

    def mode(self) -> Tensor:
        """(B, *action)."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1)."""
        standardised = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * standardised.square() - self.log_std - _LOG_SQRT_2PI).flatten(1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """(B, 1)."""
        return (self.log_std + 0.5 + _LOG_SQRT_2PI).flatten(1).sum(-1, keepdim=True)


class SquashedGaussian:
    """Independent normals through a tanh, so actions lie in (-1, 1); Haarnoja et al., arXiv 1812.05905, appendix C.

    Args:
        mean: (B, A), before the tanh.
        log_std: (B, A).
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, generator: torch.Generator) -> Tensor:
        """(B, A), in (-1, 1)."""
        with torch.no_grad():
            noise = torch.empty_like(self.mean).normal_(generator=generator)
            return torch.tanh(torch.addcmul(self.mean, self.log_std.exp(), noise))

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(B, A) in (-1, 1) and (B, 1): reparameterised actions and their log densities, both with gradients."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        unsquashed = torch.addcmul(self.mean, self.log_std.exp(), noise)
        # The noise is the standardised action: no division needed.
        log_density = -0.5 * noise.square() - self.log_std - _LOG_SQRT_2PI
        return torch.tanh(unsquashed), (log_density - _log_slope_of_tanh(unsquashed)).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        """(B, A)."""
        return torch.tanh(self.mean)

    def log_prob(self, action: Tensor) -> Tensor:
        """(B, 1) of actions (B, A) in (-1, 1)."""
        unsquashed = torch.atanh(action.clamp(-1 + 1e-6, 1 - 1e-6))
        standardised = (unsquashed - self.mean) * (-self.log_std).exp()
        log_density = -0.5 * standardised.square() - self.log_std - _LOG_SQRT_2PI
        return (log_density - _log_slope_of_tanh(unsquashed)).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """(B, 1): a bound from above, that of the normals; the squashed one has no closed form."""
        return (self.log_std + 0.5 + _LOG_SQRT_2PI).sum(-1, keepdim=True)


def _log_slope_of_tanh(unsquashed: Tensor) -> Tensor:
    """log(1 - tanh(x)**2), written so that it does not underflow for large x."""
    return 2 * (math.log(2) - unsquashed - F.softplus(-2 * unsquashed))
