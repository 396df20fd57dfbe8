"""Heads of policies over a Box: Gaussian, squashed, with state-dependent noise, Beta and mixtures."""

import math
import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.distribution_head import DistributionHead, bounded_box_of, box_of
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, above, orthogonal
from pytorchrl.agent.actors.outputs import (
    Beta,
    DiagonalGaussian,
    GaussianMixture,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
)
from storages.component.hyper_parameters import Count, Positive

Covariance: TypeAlias = Literal["diagonal", "spherical", "fixed", "state-dependent"]

SMALLEST_LOG_STD, LARGEST_LOG_STD = -20.0, 2.0
_LARGEST_GROWTH = 2.0
"""Largest excess over their initial value of logarithms of standard deviations that are computed from features."""
_WIDEST = 50.0
"""Width of bounds, in initial standard deviations of a Gaussian, beyond which it hardly explores, and its inverse."""


def largest_log_std(initial: float, smallest: float | None, owner: object) -> float:
    """Return the upper bound of logarithms of standard deviations that are computed from features.

    Args:
        initial: their initial value.
        smallest: their lower bound; None for none.
        owner: the head, for errors.

    Raises:
        ValueError: the lower bound is not below the upper one.
    """
    largest = max(LARGEST_LOG_STD, initial + _LARGEST_GROWTH)
    if smallest is not None and smallest >= largest:
        raise ValueError(
            f"{owner}: the lower bound of the log_std, {smallest:g}, must be below the upper one, {largest:g}"
        )
    return largest


@dataclass(frozen=True)
class GaussianPolicy(DistributionHead):
    """A diagonal Gaussian policy over a Box.

    Args:
        covariance: parametrisation of standard deviations: "diagonal" learns one for each component of an action,
            "spherical" one for all, "fixed" keeps the initial one, "state-dependent" computes them from the features.
        bounded_mean: keep means within the bounds of the Box by a tanh. Standard deviations are then in units of half
            the range. Unbounded means begin in the middle of the bounds, where these are finite.
        initial_log_std: initial logarithm of the standard deviation; None takes the actor's. "state-dependent" ones are
            at most 2, or 2 above a positive initial one.
        min_log_std: lower bound of that logarithm, so that the likelihood of data with deterministic actions does not
            grow without limit; None for no bound.
        gain: of the layer's orthogonal initialisation; small, so that initial means hardly depend on the state.
    """

    covariance: Covariance = "diagonal"
    bounded_mean: bool = False
    initial_log_std: float | None = None
    min_log_std: float | None = None
    gain: Positive = 0.01

    @property
    def is_scaled(self) -> bool:
        """Whether the mean is bounded."""
        return self.bounded_mean

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`DiagonalGaussian`."""
        space = (bounded_box_of if self.bounded_mean else box_of)(actor, self)
        shape = space.shape or (1,)
        size = math.prod(shape)
        log_std = actor.initial_log_std if self.initial_log_std is None else self.initial_log_std
        of_features = self.covariance == "state-dependent"
        layer = actor.linear(features, 2 * size if of_features else size)
        orthogonal(layer, self.gain)
        bias = getattr(layer, "bias", None)
        if not self.bounded_mean and bias is not None:
            with torch.no_grad():
                bias[:size] = _middle(space)
        shape = (size,) if self.bounded_mean else shape
        if not self.bounded_mean and self.initial_log_std is None:
            _warn_of_scale(space, math.exp(log_std))
        if of_features:
            largest = largest_log_std(log_std, self.min_log_std, self)
            return _GaussianOfFeatures(layer, shape, self.bounded_mean, log_std, self.min_log_std, largest)
        deviations = torch.full((1,) if self.covariance == "spherical" else shape, log_std)
        learns_std = self.covariance != "fixed"
        return GaussianLayer(layer, shape, self.bounded_mean, deviations, learns_std, self.min_log_std)


def _warn_of_scale(space: spaces.Box, std: float) -> None:
    """Warn of a standard deviation with which a policy would hardly try other actions, or only the bounds."""
    widths = (space.high.astype(np.float64) - space.low).ravel()
    is_finite = np.isfinite(widths)
    if not is_finite.any():
        return
    least, largest = widths[is_finite].min(), widths[is_finite].max()
    if largest <= _WIDEST * std and least * _WIDEST >= std:
        return
    at, width = ("wide", largest) if largest > _WIDEST * std else ("narrow", least)
    warnings.warn(
        f"a component of actions has bounds that are {width:g} apart, and a Gaussian policy begins with a standard "
        f"deviation of {std:.3g} there, which is too {'small' if at == 'wide' else 'large'} to learn well: choose "
        f"distribution=prl.heads.BetaPolicy() of the algorithm, or rescale actions with the wrapper "
        f"('RescaleAction', {{'min_action': -1, 'max_action': 1}}) of VecEnv, whose units the policy then acts in",
        RuntimeWarning,
        stacklevel=2,
    )


def _middle(space: spaces.Box) -> Tensor:
    """Return the middle of the bounds of each component, (size,), 0 where one is infinite."""
    is_bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = (np.where(is_bounded, bound, 0.0).ravel() for bound in (space.low, space.high))
    return torch.from_numpy(low / 2 + high / 2)


@dataclass(frozen=True)
class SquashedGaussianPolicy(DistributionHead):
    """A tanh-squashed Gaussian policy; mean and standard deviation depend on the features.

    Args:
        smallest_log_std: lower bound of the logarithm of the standard deviation before the tanh.
        largest_log_std: upper bound of that logarithm.
        smooth_bounds: scale a tanh to the bounds, whose middle is then the initial logarithm; False clamps numbers to
            the bounds, where they have no gradient, and begins near 0.

    Raises:
        ValueError: the lower bound is not below the upper one.
    """

    smallest_log_std: float = SMALLEST_LOG_STD
    largest_log_std: float = LARGEST_LOG_STD
    smooth_bounds: bool = False

    is_scaled = is_bounded = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.smallest_log_std < self.largest_log_std:
            raise ValueError(
                f"{type(self).__name__}: smallest_log_std must be less than largest_log_std="
                f"{self.largest_log_std:g}, got {self.smallest_log_std:g}"
            )

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`SquashedGaussian`."""
        size = math.prod(bounded_box_of(actor, self).shape or (1,))
        return _SquashedGaussian(actor.linear(features, 2 * size), self)


@dataclass(frozen=True)
class LatentGaussian:
    """A diagonal Gaussian over a latent vector; mean and standard deviation depend on the features.

    Args:
        size: of the latent vector.
    """

    size: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`DiagonalGaussian`."""
        return _GaussianOfFeatures(actor.linear(features, 2 * self.size), (self.size,))


class GaussianLayer(OutputLayer):
    """The module of :class:`GaussianPolicy` whose standard deviation does not depend on the features.

    Args:
        layer: from features to means.
        shape: of an action.
        bounded_mean: as of ``GaussianPolicy``.
        log_std: broadcasts against an action.
        learns_std: whether it is a parameter.
        min_log_std: as of ``GaussianPolicy``.
    """

    log_std: Tensor

    def __init__(
        self,
        layer: nn.Module,
        shape: tuple[int, ...],
        bounded_mean: bool,
        log_std: Tensor,
        learns_std: bool,
        min_log_std: float | None,
    ) -> None:
        super().__init__(layer)
        self._shape, self._bounded_mean, self._min_log_std = shape, bounded_mean, min_log_std
        self.is_plain = not bounded_mean and min_log_std is None
        """Whether the layer's output and the parameter are mean and log standard deviation without a transform."""
        if learns_std:
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std, persistent=False)

    @torch.no_grad()
    def deviation(self) -> Tensor:
        """Return the standard deviation, which broadcasts against an action."""
        return above(self._min_log_std, self.log_std).exp()

    def output(self, numbers: Tensor) -> DiagonalGaussian:
        """Return the distribution of the layer's outputs (N, A)."""
        mean = numbers.view(-1, *self._shape)
        log_std = above(self._min_log_std, self.log_std)
        return DiagonalGaussian(mean.tanh() if self._bounded_mean else mean, log_std)


class _GaussianOfFeatures(OutputLayer):
    def __init__(
        self,
        layer: nn.Module,
        shape: tuple[int, ...],
        bounded_mean: bool = False,
        initial_log_std: float = 0.0,
        min_log_std: float | None = None,
        max_log_std: float = LARGEST_LOG_STD,
    ) -> None:
        super().__init__(layer)
        self._shape, self._bounded_mean, self._min_log_std = shape, bounded_mean, min_log_std
        self._initial_log_std, self._max_log_std = initial_log_std, max_log_std

    def output(self, numbers: Tensor) -> DiagonalGaussian:
        mean, log_std = (part.view(-1, *self._shape) for part in numbers.chunk(2, dim=-1))
        log_std = (log_std + self._initial_log_std) if self._initial_log_std else log_std
        log_std = above(self._min_log_std, log_std).clamp(SMALLEST_LOG_STD, self._max_log_std)
        return DiagonalGaussian(mean.tanh() if self._bounded_mean else mean, log_std)


class _SquashedGaussian(OutputLayer):
    def __init__(self, layer: nn.Module, head: SquashedGaussianPolicy) -> None:
        super().__init__(layer)
        self._bounds, self._is_smooth = (head.smallest_log_std, head.largest_log_std), head.smooth_bounds

    def output(self, numbers: Tensor) -> SquashedGaussian:
        mean, log_std = numbers.chunk(2, dim=-1)
        smallest, largest = self._bounds
        if self._is_smooth:
            return SquashedGaussian(mean, smallest + (largest - smallest) / 2 * (log_std.tanh() + 1))
        return SquashedGaussian(mean, log_std.clamp(smallest, largest))


@dataclass(frozen=True)
class GSDEPolicy(DistributionHead):
    """A Gaussian policy whose noise is a linear function of the features, by a matrix kept for some steps.

    Raffin et al., "Smooth Exploration for Robotic Reinforcement Learning" (arXiv 2005.05719). Each environment has a
    matrix, drawn from the collector's generator and saved with the run. Actions sampled in updates have independent
    noise.

    Args:
        resample_every: steps of each environment between draws of the matrix (n in the paper).
        squash: squash actions into the bounds of a Box by a tanh; required by SAC.
        initial_log_std: initial logarithm of the standard deviation of the matrix's entries. An action's standard
            deviation is that times the Euclidean norm of the features.
        gain: of the mean's orthogonal initialisation; small, so that means are almost 0 at first.
        learns_features: whether gradients of standard deviations flow into the layers before the head.
    """

    resample_every: Count = 8
    squash: bool = False
    initial_log_std: float = -2.0
    gain: Positive = 0.01
    learns_features: bool = False

    @property
    def noise_interval(self) -> int:
        """Steps between draws of the matrix."""
        return self.resample_every

    @property
    def is_scaled(self) -> bool:
        """Whether it is squashed."""
        return self.squash

    @property
    def is_bounded(self) -> bool:
        """Whether it is squashed."""
        return self.squash

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a distribution with state-dependent noise."""
        shape = (bounded_box_of if self.squash else box_of)(actor, self).shape or (1,)
        size = math.prod(shape)
        layer = actor.linear(features, size)
        orthogonal(layer, self.gain)
        log_std = nn.Parameter(torch.full((features, size), self.initial_log_std))
        return _GSDE(layer, log_std, (size,) if self.squash else shape, self)


class _GSDE(nn.Module):
    def __init__(self, layer: nn.Module, log_std: nn.Parameter, shape: tuple[int, ...], head: GSDEPolicy) -> None:
        super().__init__()
        self.layer, self.log_std, self._shape = layer, log_std, shape
        self._distribution = SquashedStateDependentGaussian if head.squash else StateDependentGaussian
        self._learns_features = head.learns_features

    def forward(self, features: Tensor) -> StateDependentGaussian | SquashedStateDependentGaussian:
        mean = self.layer(features).view(-1, *self._shape)
        return self._distribution(mean, features if self._learns_features else features.detach(), self.log_std)


@dataclass(frozen=True)
class MixturePolicy(DistributionHead):
    """A Gaussian mixture policy over a Box; all its parameters depend on the features.

    Bishop, "Mixture density networks" (1994): for multimodal data, in which the mean of good actions may be a bad one,
    as where experts pass an obstacle on either side. Entropies and divergences are the upper bounds of
    :class:`~pytorchrl.agent.actors.outputs.GaussianMixture`.

    Args:
        num_components: number of Gaussians.
        bounded_mean: keep means within the bounds of the Box by a tanh. Standard deviations are then in units of half
            the range.
        initial_log_std: approximate initial logarithm of the standard deviations, which are at most 2, or 2 above a
            positive initial one; None takes the actor's.
        smallest_log_std: lower bound of that logarithm, without which a component collapses onto an action that is
            repeated in the data, such as a bound.
    """

    num_components: Count = 5
    bounded_mean: bool = False
    initial_log_std: float | None = None
    smallest_log_std: float = -5.0

    @property
    def is_scaled(self) -> bool:
        """Whether means are bounded."""
        return self.bounded_mean

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`GaussianMixture`."""
        shape = (bounded_box_of if self.bounded_mean else box_of)(actor, self).shape or (1,)
        size = math.prod(shape)
        initial = actor.initial_log_std if self.initial_log_std is None else self.initial_log_std
        # Without the small gain of other policies' layers, so that the components differ from the beginning.
        layer = actor.linear(features, self.num_components * (1 + 2 * size))
        return _GaussianMixtureLayer(self, layer, (size,) if self.bounded_mean else shape, initial)


class _GaussianMixtureLayer(OutputLayer):
    def __init__(self, head: MixturePolicy, layer: nn.Module, shape: tuple[int, ...], initial_log_std: float) -> None:
        super().__init__(layer)
        self._head, self._shape, self._initial_log_std = head, shape, initial_log_std
        self._largest_log_std = largest_log_std(initial_log_std, head.smallest_log_std, head)

    def output(self, numbers: Tensor) -> GaussianMixture:
        components = self._head.num_components
        logits, of_components = numbers[:, :components], numbers[:, components:]
        mean, log_std = (part.reshape(-1, components, *self._shape) for part in of_components.chunk(2, dim=-1))
        log_std = (log_std + self._initial_log_std).clamp(self._head.smallest_log_std, self._largest_log_std)
        return GaussianMixture(logits, mean.tanh() if self._head.bounded_mean else mean, log_std)


@dataclass(frozen=True)
class BetaPolicy(DistributionHead):
    """A Beta policy over the bounds of a Box; both concentrations depend on the features.

    Chou et al., "Improving Stochastic Policy Gradients in Continuous Control with Deep Reinforcement Learning using the
    Beta Distribution" (ICML 2017), whose concentrations are ``1 + softplus(.)``, so that there is one mode.

    Args:
        smallest_concentration: added to the softplus; below 1 allows a mode at both bounds.
        gain: of the layer's orthogonal initialisation; small, so that initial distributions hardly depend on the state.
    """

    smallest_concentration: Positive = 1.0
    gain: Positive = 0.01

    is_scaled = is_bounded = True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`Beta`."""
        layer = actor.linear(features, 2 * math.prod(bounded_box_of(actor, self).shape or (1,)))
        orthogonal(layer, self.gain)
        return _Beta(layer, self.smallest_concentration)


class _Beta(OutputLayer):
    def __init__(self, layer: nn.Module, smallest: float) -> None:
        super().__init__(layer)
        self._smallest = smallest

    def output(self, numbers: Tensor) -> Beta:
        return Beta(*(F.softplus(numbers) + self._smallest).chunk(2, dim=-1))
