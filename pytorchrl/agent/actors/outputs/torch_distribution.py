"""An adapter of torch.distributions."""

import copy
import weakref
from collections.abc import Iterator
from typing import Any, Self

import torch
import torch.distributions as td
from torch import Tensor

from pytorchrl.agent.actors.outputs.distribution import Distribution
from pytorchrl.agent.global_generators import global_generator


class TorchDistribution(Distribution):
    """Adapter of any distribution of torch.distributions.

    Its batch and event axes together are (B, *action), or (B,) for actions (B, 1). Axes after the first are
    independent components of one action. Methods without a closed form in torch raise its NotImplementedError.

    Args:
        distribution: of actions (B, *action) or (B,).
    """

    def __init__(self, distribution: td.Distribution) -> None:
        self.distribution = distribution
        self.has_rsample = distribution.has_rsample
        # Listed now, before torch adds probabilities that it computes from logits.
        self._parameters = tuple(_parameters(distribution))
        self._is_scalar = len(distribution.batch_shape) + len(distribution.event_shape) == 1

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors of torch's constructor arguments, including those of nested distributions."""
        return self._parameters

    @property
    def mean(self) -> Tensor:
        """Expected action, (B, *action)."""
        return self._from_torch(self.distribution.mean)

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) without a gradient."""
        with global_generator(generator):
            return self._from_torch(self.distribution.sample(_sample_shape(n)))

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) with gradients."""
        with global_generator(generator):
            return self._from_torch(self.distribution.rsample(_sample_shape(n)))

    def log_prob(self, action: Tensor) -> Tensor:
        """Log probability (density): (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        return self._sum(self.distribution.log_prob(action.squeeze(-1) if self._is_scalar else action))

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        return self._sum(self.distribution.entropy())

    def mode(self) -> Tensor:
        """Most likely actions, (B, *action); of transformed distributions, the transformed mode of the base."""
        return self._from_torch(_mode(self.distribution))

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""
        return self._sum(td.kl_divergence(self.distribution, other.distribution))

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(_detached(self.distribution, {}))

    def _from_torch(self, action: Tensor) -> Tensor:
        return action.unsqueeze(-1) if self._is_scalar else action

    def _sum(self, per_number: Tensor) -> Tensor:
        """Sum over the batch axes after the first: (..., *batch) to (..., 1)."""
        independent = len(self.distribution.batch_shape) - 1
        return (per_number.flatten(-independent) if independent else per_number.unsqueeze(-1)).sum(-1, keepdim=True)


def _sample_shape(n: int | None) -> torch.Size:
    return torch.Size() if n is None else torch.Size((n,))


def _mode(distribution: td.Distribution) -> Tensor:
    if isinstance(distribution, td.Independent):
        return _mode(distribution.base_dist)
    if not isinstance(distribution, td.TransformedDistribution):
        return distribution.mode
    mode = _mode(distribution.base_dist)
    for transform in distribution.transforms:
        mode = transform(mode)
    return mode


def _parameters(distribution: td.Distribution) -> Iterator[Tensor]:
    attributes = vars(distribution)
    for name in distribution.arg_constraints:
        if isinstance(attributes.get(name), Tensor):
            yield attributes[name]
    for attribute in attributes.values():
        if isinstance(attribute, td.Distribution):
            yield from _parameters(attribute)


def _detached(part: Any, copies: dict[int, Any]) -> Any:
    """Copy a distribution or a transform, and those nested in it, without gradients; ``copies`` are those made."""
    if isinstance(part, Tensor):
        return part.detach()
    if isinstance(part, list | tuple):
        return type(part)(_detached(element, copies) for element in part)
    if not isinstance(part, td.Distribution | td.Transform):
        return part
    if id(part) not in copies:
        detached = copies[id(part)] = copy.copy(part)
        for name, attribute in vars(part).items():
            # Some versions of torch let a transform refer weakly to its inverse, which is made again when needed.
            if not isinstance(attribute, weakref.ReferenceType):
                vars(detached)[name] = _detached(attribute, copies)
    return copies[id(part)]
