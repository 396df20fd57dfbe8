"""How weights begin."""

from typing import Literal, TypeAlias

from torch import nn

from pytorchrl.agent.actors.layers.noisy_linear import NoisyLinear

Initialisation: TypeAlias = Literal["orthogonal", "uniform"]


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Orthogonal weights of a gain, no bias; of a noisy layer, in the mean."""
    assert isinstance(layer, nn.Linear | nn.Conv2d | NoisyLinear)
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
