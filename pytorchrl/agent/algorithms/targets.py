"""Target networks: slow copies that bootstrapped values are taken from."""

import copy
from typing import TypeVar

import torch
from torch import nn

from pytorchrl.agent.actors.normalization import ObservationNormalization
from pytorchrl.agent.algorithms.flat_adam import FlatParameters

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_target(network: ModuleT) -> ModuleT:
    """A copy that takes no gradients; it normalises observations as the network does."""
    shared = {id(module): module for module in network.modules() if isinstance(module, ObservationNormalization)}
    return copy.deepcopy(network, shared).requires_grad_(False)


@torch.no_grad()
def follow(target: FlatParameters, network: FlatParameters, polyak: float) -> None:
    """``target = polyak * target + (1 - polyak) * network``; 0 copies.

    Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971), section 3.
    """
    target.vector.lerp_(network.vector, 1 - polyak)
