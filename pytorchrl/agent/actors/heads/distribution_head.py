"""The base class of the policy heads among which users choose."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.outputs import Scaled, ScaledStateDependentNoise
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError, check_widths
from storages.component.setting import Setting


@dataclass(frozen=True)
class DistributionHead(Setting, ABC):
    """A head from features to a distribution of actions, as for an algorithm's ``distribution``.

    A subclass is a frozen dataclass, whose fields are hyper-parameters.
    """

    @property
    def noise_interval(self) -> int | None:
        """Steps for which a noise matrix is kept, with state-dependent noise; None without."""
        return None

    @property
    def is_scaled(self) -> bool:
        """Whether actions are (N, A) on the scale [-1, 1] of a Box's bounds; else they are those of environments."""
        return False

    @property
    def is_bounded(self) -> bool:
        """Whether all actions are real numbers within the bounds of a Box."""
        return False

    @abstractmethod
    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a distribution."""


def in_units_of_environments(head: DistributionHead) -> Head:
    """Return a head whose actions, if scaled to [-1, 1], are stretched to the bounds of the Box."""
    return _Stretched(head) if head.is_scaled else head


def check_bounded(head: DistributionHead, algorithm: str) -> None:
    """Refuse a head whose actions may exceed the bounds.

    Raises:
        ValueError: its actions may.
    """
    if not head.is_bounded:
        raise ValueError(
            f"{algorithm}: distribution must have bounded support, as SquashedGaussianPolicy(), "
            f"BetaPolicy() and GSDEPolicy(squash=True) do, got {head!r}"
        )


def check_scaled(head: DistributionHead, algorithm: str) -> None:
    """Refuse a head whose actions are not of the scaled bounds.

    Raises:
        ValueError: they are in the units of the environments.
    """
    if not head.is_scaled:
        raise ValueError(
            f"{algorithm}: distribution must be of scaled actions, as GaussianPolicy(bounded_mean=True) and "
            f"SquashedGaussianPolicy() are, got {head!r}"
        )


def box_of(actor: Actor, head: object) -> spaces.Box:
    """Return the action space, which must be a Box.

    Raises:
        UnsupportedSpaceError: it is not.
    """
    space = actor.action_space
    if not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(_misfit(head, "a Box action space", space))
    return space


def bounded_box_of(actor: Actor, head: object) -> spaces.Box:
    """Return the action space, which must be a Box with finite bounds.

    Raises:
        UnsupportedSpaceError: it is not.
    """
    space = box_of(actor, head)
    if not (np.isfinite(space.low) & np.isfinite(space.high)).all():
        raise UnsupportedSpaceError(_misfit(head, "finite bounds of every action", space))
    check_widths(space, type(head).__name__)
    return space


def discrete_space_of(actor: Actor, head: object) -> spaces.Discrete:
    """Return the action space, which must be Discrete.

    Raises:
        UnsupportedSpaceError: it is not.
    """
    space = actor.action_space
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedSpaceError(_misfit(head, "a Discrete action space", space))
    return space


def _misfit(head: object, need: str, space: object) -> str:
    return f"{type(head).__name__} needs {need}, the environments have {space}; heads.Policy() suits every space"


@dataclass(frozen=True)
class _Stretched:
    head: DistributionHead

    def build(self, features: int, actor: Actor) -> nn.Module:
        draws_by_matrix = self.head.noise_interval is not None
        scaled = ScaledStateDependentNoise if draws_by_matrix else Scaled
        return _ToBox(self.head.build(features, actor), bounded_box_of(actor, self.head), scaled)


class _ToBox(nn.Module):
    middle: Tensor
    half_range: Tensor

    def __init__(self, head: nn.Module, space: spaces.Box, scaled: type[Scaled]) -> None:
        super().__init__()
        self.head, self._scaled = head, scaled
        low, high = (torch.as_tensor(np.atleast_1d(bound), dtype=torch.float64) for bound in (space.low, space.high))
        self.register_buffer("middle", ((low + high) / 2).float(), persistent=False)
        self.register_buffer("half_range", ((high - low) / 2).float(), persistent=False)

    def forward(self, features: Tensor) -> Scaled:
        return self._scaled(self.head(features), self.middle, self.half_range)
