"""A few normalised features of many, between an encoder of images and the layers of a network."""

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.linear_layers import orthogonal


class Bottleneck(nn.Module):
    """A linear layer, layer normalisation and a tanh: the trunk of DrQ-v2 and SAC-AE.

    Args:
        layer: linear, from (N, inputs) to (N, outputs); its weights are initialised as orthogonal.
        outputs: number of features, which lie in (-1, 1).
    """

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__()
        orthogonal(layer, 1.0)
        self.layer = layer
        self.norm = nn.LayerNorm(outputs)
        self.output_size = outputs

    def forward(self, features: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        return torch.tanh(self.norm(self.layer(features)))
