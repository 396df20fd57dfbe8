"""How weights begin."""

from typing import Literal, TypeAlias

from torch import nn

Initialisation: TypeAlias = Literal["orthogonal", "uniform"]


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Orthogonal weights of a gain, no bias."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
