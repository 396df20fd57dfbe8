"""The interface of distributions of actions, and distributions stretched to the bounds of a Box."""

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from pytorchrl.agent.ops.clipped_surrogate import ClippedSurrogate, clipped_surrogate


class Distribution(ABC):
    """A distribution of actions for each of ``B`` observations; scalars keep a trailing axis of size 1.

    Random numbers come from the generator given, which a checkpoint can save, and which is on the device of the
    distribution's tensors. Nothing is validated, as these methods run at every environment step.
    """

    has_rsample: bool = False
    """Whether :meth:`rsample` draws actions with gradients."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, parts in _COMPOSED.items():
            depth = _depth(cls, name)
            # A class that computes it at once would ignore the parts that a subclass overrides.
            if cls.__mro__[depth] is not Distribution and any(_depth(cls, part) < depth for part in parts):
                setattr(cls, name, getattr(Distribution, name))

    @property
    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """Tensors that define the distribution, (B, ...) each, with gradients."""

    @abstractmethod
    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw actions without a gradient: (B, *action), or (n, B, *action) where ``n`` is given."""

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw actions with gradients by reparameterisation: (B, *action), or (n, B, *action) where ``n`` is given.

        Raises:
            NotImplementedError: the distribution has no reparameterisation; see :attr:`has_rsample`.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.rsample: its samples are not reparameterised; draw with sample() and use log_prob()"
        )

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw actions (B, *action) and compute their log probabilities (B, 1), which have gradients.

        The actions have gradients, too, where :attr:`has_rsample` is true.
        """
        action = self.rsample(generator) if self.has_rsample else self.sample(generator)
        return action, self.log_prob(action)

    def sample_with_score(self, generator: torch.Generator, n: int | None = None) -> tuple[Tensor, Tensor]:
        """Draw actions (B, *action) without gradients, and compute their log probabilities (B, 1), with gradients.

        Where ``n`` is given, (n, B, *action) and (n, B, 1). The gradient of a log probability with respect to the
        parameters is called the score.
        """
        action = self.sample(generator, n)
        return action, self.log_prob(action)

    @abstractmethod
    def log_prob(self, action: Tensor) -> Tensor:
        """Log probability (density): (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""

    def evaluate(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log probabilities of actions (B, *action) and the entropies, both (B, 1)."""
        return self.log_prob(action), self.entropy()

    def clipped_surrogate(
        self,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        share: Tensor,
        clip_param: float,
        dual_clip: float | None = None,
    ) -> ClippedSurrogate:
        """Compute the clipped surrogate objective of actions (B, *action); see :func:`clipped_surrogate`."""
        log_prob, entropy = self.evaluate(action)
        return clipped_surrogate(log_prob, entropy, old_log_prob, advantage, share, clip_param, dual_clip)

    @abstractmethod
    def mode(self) -> Tensor:
        """Most likely actions, (B, *action)."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1)."""

    @abstractmethod
    def detach(self) -> Self:
        """Copy without gradients."""


def _depth(cls: type, name: str) -> int:
    """Return how many base classes are asked for a method before the one that defines it."""
    return next(depth for depth, base in enumerate(cls.__mro__) if name in vars(base))


_DRAWN = ("sample", "rsample", "log_prob")
_EVALUATED = ("log_prob", "entropy")
_COMPOSED = {
    "sample_with_log_prob": _DRAWN,
    "sample_with_score": _DRAWN,
    "evaluate": _EVALUATED,
    "clipped_surrogate": (*_EVALUATED, "evaluate"),
}
"""Methods that are composed of others here, and that a subclass may compute at once instead."""


def empty_samples(like: Tensor, n: int | None) -> Tensor:
    """Uninitialised tensor of the shape of ``like``, or of ``n`` of them."""
    return torch.empty_like(like) if n is None else like.new_empty((n, *like.shape))


def with_shape(numbers: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshape (..., A) to actions (..., *shape)."""
    return numbers.view(*numbers.shape[:-1], *shape)


class Scaled(Distribution):
    """Another distribution, whose actions x are scaled to ``middle + half_range * x``.

    Args:
        inner: distribution of actions (B, A).
        middle: (*action), of A components.
        half_range: (*action), greater than 0.
    """

    def __init__(self, inner: Distribution, middle: Tensor, half_range: Tensor) -> None:
        self.inner = inner
        self.has_rsample = inner.has_rsample
        self._middle, self._half_range = middle, half_range

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Those of the inner distribution."""
        return self.inner.parameters

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) without a gradient."""
        return self.stretched(self.inner.sample(generator, n))

    def rsample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        """Draw (B, *action) or (n, B, *action) with gradients, where the inner distribution does."""
        return self.stretched(self.inner.rsample(generator, n))

    def sample_with_log_prob(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw (B, *action) and compute its log density (B, 1), as the inner distribution does."""
        numbers, log_prob = self.inner.sample_with_log_prob(generator)
        return self.stretched(numbers), log_prob - self._log_volume()

    def sample_with_score(self, generator: torch.Generator, n: int | None = None) -> tuple[Tensor, Tensor]:
        """Draw (B, *action) or (n, B, *action) without gradients, and their log density, as the inner one does."""
        numbers, log_prob = self.inner.sample_with_score(generator, n)
        return self.stretched(numbers), log_prob - self._log_volume()

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density: (B, 1) of actions (B, *action), (n, B, 1) of actions (n, B, *action)."""
        numbers = ((action - self._middle) / self._half_range).flatten(-self._middle.ndim)
        return self.inner.log_prob(numbers) - self._log_volume()

    def entropy(self) -> Tensor:
        """Entropy in nats, (B, 1)."""
        return self.inner.entropy() + self._log_volume()

    def mode(self) -> Tensor:
        """The mode of the inner distribution, (B, *action)."""
        return self.stretched(self.inner.mode())

    def kl(self, other: Self) -> Tensor:
        """Kullback-Leibler divergence KL(self || other) in nats, (B, 1), both of the same bounds."""
        return self.inner.kl(other.inner)

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.inner.detach(), self._middle, self._half_range)

    def stretched(self, numbers: Tensor) -> Tensor:
        """Scale actions (..., A) of the inner distribution to (..., *action)."""
        return torch.addcmul(self._middle, with_shape(numbers, self._middle.shape), self._half_range)

    def _log_volume(self) -> Tensor:
        return self._half_range.log().sum()
