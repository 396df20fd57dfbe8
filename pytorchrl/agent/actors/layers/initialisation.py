"""Initialisation of weights."""

from typing import Literal, TypeAlias

from torch import nn

from pytorchrl.agent.actors.layers.noisy_linear import NoisyLinear

Initialisation: TypeAlias = Literal["orthogonal", "uniform"]


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Initialise weights as orthogonal with a gain, and biases with 0; of a noisy layer, their means."""
    assert isinstance(layer, nn.Linear | nn.Conv2d | NoisyLinear)
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
