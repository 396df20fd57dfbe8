"""Distributions of discrete actions: categorical ones, several at once, Bernoulli, and mellowmax policies."""

import math
from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.distribution import Distribution, empty_samples, with_shape
from pytorchrl.agent.ops.categorical_draw import draw_actions
from pytorchrl.agent.ops.clipped_surrogate import ClippedSurrogate, clipped_surrogate_of_logits

RULED_OUT_LOGIT = -1e9
"""Logit of an action that is not allowed. Its probability is 0; -inf would give NaN where it is multiplied by that."""


class Categorical(Distribution):
    """A categorical distribution over ``k`` actions.

    Args:
        logits: (B, k), unnormalised log probabilities; -inf rules an action out.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._log_probs: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """Log probability of each action, (B, k)."""
        log_probs = self._log_probs
        # Those computed under `no_grad` have no gradient.
        needs_gradient = self.logits.requires_grad and torch.is_grad_enabled()
        if log_probs is None or (needs_gradient and not log_probs.requires_grad):
            log_probs = self._log_probs = F.log_softmax(self.logits, dim=-1)
        return log_probs

    @property
    def parameters(self) -> tuple[Tensor]:
        """The logits, (B, k)."""
        return (self.logits,)

    @property
    def probabilities(self) -> Tensor:
        """Probability of each action, (B, k)."""
        return self.log_probs.exp()

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, 1) or (n, B, 1) int64.

        Where no kernel does, by the Gumbel-max trick: the argmax of ``log p - log(exponential noise)``.
        """
        drawn = draw_actions(self.logits, generator) if n is None else None
        if drawn is not None:
            return drawn[0]
        noise = empty_samples(self.log_probs, n)
        # On the meta device, torch's function takes no generator.
        noise.exponential_(generator=None if noise.is_meta else generator)
        return (self.log_probs.detach() - noise.log_()).argmax(-1, keepdim=True)

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw actions (B, 1) and compute their log probabilities (B, 1), which have gradients."""
        return draw_actions(self.logits, generator) or super().sample_with_log_prob(generator)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log probability: (B, 1) of actions (B, 1), (n, B, 1) of actions (n, B, 1)."""
        if action.ndim > self.log_probs.ndim:
            return self.log_probs.expand(len(action), *self.log_probs.shape).gather(-1, action)
        return self.log_probs.gather(-1, action)

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        return -(self.probabilities * _finite(self.log_probs)).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        """Most likely actions, (B, 1) int64."""
        return self.log_probs.argmax(-1, keepdim=True)

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        ratio = _finite(self.log_probs) - _finite(other.log_probs)
        return (self.probabilities * ratio).sum(-1, keepdim=True)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.logits.detach())

    def allowing(self, allowed: Tensor) -> Self:
        """Return the distribution given that the action is one of those allowed, (B, k) bool."""
        return type(self)(self.logits.masked_fill(~allowed, RULED_OUT_LOGIT))

    def clipped_surrogate(
        self,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        share: Tensor,
        clip_param: float,
        dual_clip: float | None = None,
    ) -> ClippedSurrogate:
        """Compute the clipped surrogate objective of actions (B, 1) by a kernel if it can."""
        given = old_log_prob, advantage, share, clip_param, dual_clip
        quick = clipped_surrogate_of_logits(self.logits, action, *given)
        return super().clipped_surrogate(action, *given) if quick is None else quick


def _finite(log_probs: Tensor) -> Tensor:
    # For an action that is ruled out, 0 * -inf would be NaN.
    return log_probs.clamp_min(torch.finfo(log_probs.dtype).min)


class FlooredCategorical(Categorical):
    """A categorical distribution with a lower bound of probabilities.

    Of n allowed actions: ``min_probability + (1 - n * min_probability) * softmax(preferences)``.

    Args:
        preferences: (B, k).
        min_probability: less than ``1 / k``.
        allowed: (B, k) bool; None for all.
    """

    def __init__(self, preferences: Tensor, min_probability: float, allowed: Tensor | None = None) -> None:
        self._preferences, self._min_probability, self._allowed = preferences, min_probability, allowed
        number: int | Tensor = preferences.shape[-1]
        if allowed is not None:
            number, preferences = allowed.sum(-1, keepdim=True), preferences.masked_fill(~allowed, RULED_OUT_LOGIT)
        logits = (min_probability + (1 - number * min_probability) * torch.softmax(preferences, dim=-1)).log()
        super().__init__(logits if allowed is None else logits.masked_fill(~allowed, RULED_OUT_LOGIT))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self._preferences.detach(), self._min_probability, self._allowed)

    def allowing(self, allowed: Tensor) -> Self:
        """Return the distribution of the allowed actions, (B, k) bool, with the same lower bound."""
        return type(self)(self._preferences, self._min_probability, allowed)


class MultiCategorical(Distribution):
    """Several independent categorical distributions.

    Args:
        logits: (B, sum of ``choices``), concatenated unnormalised log probabilities.
        choices: number of actions of each distribution.
        shape: of one action, with as many components as there are distributions.
    """

    def __init__(self, logits: Tensor, choices: Sequence[int], shape: tuple[int, ...]) -> None:
        self.logits = logits
        self.parts = [Categorical(part) for part in logits.split_with_sizes(list(choices), dim=-1)]
        self._choices, self._shape = choices, shape

    @property
    def parameters(self) -> tuple[Tensor]:
        """The logits, (B, sum of the choices)."""
        return (self.logits,)

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) int64."""
        return with_shape(torch.cat([part.sample(generator, n) for part in self.parts], dim=-1), self._shape)

    def log_prob(self, action: Tensor) -> Tensor:
        """Sum of the choices' log probabilities: (B, 1) of (B, *action), (n, B, 1) of (n, B, *action)."""
        chosen = action.flatten(-len(self._shape)).chunk(len(self.parts), dim=-1)
        log_probs = [part.log_prob(number) for part, number in zip(self.parts, chosen, strict=True)]
        return torch.cat(log_probs, dim=-1).sum(-1, keepdim=True)

    def entropy(self) -> Tensor:
        """Sum of the choices' entropies in nats, (B, 1)."""
        return torch.cat([part.entropy() for part in self.parts], dim=-1).sum(-1, keepdim=True)

    def mode(self) -> Tensor:
        """Most likely actions, (B, *action) int64."""
        return with_shape(torch.cat([part.mode() for part in self.parts], dim=-1), self._shape)

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        parts = [part.kl(of) for part, of in zip(self.parts, other.parts, strict=True)]
        return torch.cat(parts, dim=-1).sum(-1, keepdim=True)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.logits.detach(), self._choices, self._shape)

    def allowing(self, allowed: Tensor) -> Self:
        """Return the distributions given that each action is one of those allowed, (B, sum of the choices) bool."""
        return type(self)(self.logits.masked_fill(~allowed, RULED_OUT_LOGIT), self._choices, self._shape)


class Bernoulli(Distribution):
    """Independent Bernoulli distributions.

    Args:
        logits: (B, *action), log odds of 1.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @property
    def parameters(self) -> tuple[Tensor]:
        """The logits, (B, *action)."""
        return (self.logits,)

    @property
    def mean(self) -> Tensor:
        """Probability of 1, (B, *action)."""
        return self.logits.sigmoid()

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) int8."""
        drawn = empty_samples(self.logits, n).uniform_(generator=generator)
        return (drawn < self.logits.detach().sigmoid()).to(torch.int8)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log probability: (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        return self._sum(-F.softplus((1 - 2 * action) * self.logits))

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        surprise_of_1 = F.softplus(-self.logits)
        return self._sum(surprise_of_1 + (1 - self.mean) * self.logits)

    def mode(self) -> Tensor:
        """Most likely actions, (B, *action) int8."""
        return (self.logits > 0).to(torch.int8)

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        # log p(0) of each is -softplus(logit), and log p(1) that plus the logit.
        at_0 = F.softplus(other.logits) - F.softplus(self.logits)
        return self._sum(at_0 + self.mean * (self.logits - other.logits))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.logits.detach())

    def _sum(self, per_number: Tensor) -> Tensor:
        return per_number.flatten(1 - self.logits.ndim).sum(-1, keepdim=True)


_ITERATIONS = 24
_SMALLEST_VARIANCE = 1e-12


def mellowmax(values: Tensor, omega: float) -> Tensor:
    """Return the mellowmax (..., 1) of values (..., n), between their mean and their maximum.

    Asadi and Littman, "An Alternative Softmax Operator for Reinforcement Learning" (arXiv 1612.05628), equation 1:
    ``log(mean(exp(omega * values))) / omega``.

    Args:
        values: (..., n).
        omega: greater than 0; near 0 it gives the mean, and the larger it is the closer it gives the largest value.
    """
    return ((omega * values).logsumexp(-1, keepdim=True) - math.log(values.shape[-1])) / omega


class MellowmaxCategorical(Categorical):
    """The maximum-entropy policy whose expected preference is the mellowmax of the preferences of allowed actions.

    Args:
        preferences: (B, k).
        omega: as of :func:`mellowmax`.
        allowed: (B, k) bool; None for all.
    """

    def __init__(self, preferences: Tensor, omega: float, allowed: Tensor | None = None) -> None:
        self._preferences, self._omega, self._allowed = preferences, omega, allowed
        super().__init__(mellowmax_logits(preferences, omega, allowed))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self._preferences.detach(), self._omega, self._allowed)

    def allowing(self, allowed: Tensor) -> Self:
        """Return the policy of the allowed actions, (B, k) bool, given their preferences alone."""
        return type(self)(self._preferences, self._omega, allowed)


def mellowmax_logits(values: Tensor, omega: float, allowed: Tensor | None = None) -> Tensor:
    """Return the logits (..., n) of the maximum-entropy policy whose expected value is the mellowmax.

    It is a softmax of ``beta * values`` (section 5 of the paper). The expectation rises with beta, from the mean at 0,
    and is not below the mellowmax at omega, since ``log(mean(exp(omega * values)))`` is convex in omega and 0 at 0. So
    beta lies between 0 and omega, and is found by a fixed number of bisections, which needs no device synchronisation.
    Its gradient follows from the implicit function theorem.

    Args:
        values: (..., n).
        omega: as of :func:`mellowmax`.
        allowed: (..., n) bool, with at least one action in each row, the others being ruled out; None for all.
    """
    if allowed is None:
        values, ruled_out = values - values.max(-1, keepdim=True).values.detach(), None
        expectation = mellowmax(values, omega)
    else:
        best = values.masked_fill(~allowed, RULED_OUT_LOGIT).max(-1, keepdim=True).values.detach()
        # Any finite value would do: its probability is 0.
        values, ruled_out = (values - best).masked_fill(~allowed, 0.0), torch.where(allowed, 0.0, RULED_OUT_LOGIT)
        sums = (omega * values + ruled_out).logsumexp(-1, keepdim=True)
        expectation = (sums - allowed.sum(-1, keepdim=True).log()) / omega
    with torch.no_grad():
        low = torch.zeros_like(expectation)
        width = torch.full_like(expectation, omega)
        for _ in range(_ITERATIONS):
            width = width / 2
            low = torch.where(_boltzmann(values, low + width, ruled_out) < expectation, low + width, low)
        beta = low + width / 2
        probabilities = _probabilities(values, beta, ruled_out)
        mean = (probabilities * values).sum(-1, keepdim=True)
        variance = (probabilities * (values - mean).square()).sum(-1, keepdim=True).clamp_min(_SMALLEST_VARIANCE)
    # A Newton step at the root hardly changes the value, and has the gradient of the root.
    beta = beta - (_boltzmann(values, beta, ruled_out) - expectation) / variance
    logits = beta.clamp(0, omega) * values
    return logits if ruled_out is None else logits + ruled_out


def _probabilities(values: Tensor, beta: Tensor, ruled_out: Tensor | None) -> Tensor:
    logits = beta * values
    return torch.softmax(logits if ruled_out is None else logits + ruled_out, dim=-1)


def _boltzmann(values: Tensor, beta: Tensor, ruled_out: Tensor | None) -> Tensor:
    """Return the expectation (..., 1) of values (..., n) under ``softmax(beta * values + ruled_out)``."""
    return (_probabilities(values, beta, ruled_out) * values).sum(-1, keepdim=True)
