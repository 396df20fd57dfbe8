"""Target networks: slow copies that bootstrapped values are taken from."""

import copy
from typing import TypeVar

import torch
from torch import nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_target(network: ModuleT) -> ModuleT:
    """A copy that takes no gradients."""
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, network: nn.Module, polyak: float) -> None:
    """``target = polyak * target + (1 - polyak) * network``, all parameters at once; 0 copies.

    Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971), section 3.
    """
    torch._foreach_lerp_(list(target.parameters()), list(network.parameters()), 1 - polyak)
