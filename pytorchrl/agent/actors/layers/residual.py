"""Residual networks whose size can grow without overfitting: SimBa and BroNet."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.linear_layers import linear_layer, orthogonal

_EXPANSION = 4
"""Units of a block's wide layer for each of its features: the inverted bottleneck."""
_EPSILON = 1e-6
"""Added to the variance in layer normalisation, as in the code of both papers."""


class SimBa(nn.Module):
    """A linear layer, residual blocks that normalise their inputs, and layer normalisation of the sum.

    Lee et al., "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning" (arXiv 2410.09754).
    A block is ``x + narrow(relu(wide(norm(x))))``, whose wide layer has four times the features. As in the authors'
    code, weights of the first layer are orthogonal, those of blocks follow He et al. (arXiv 1502.01852), and biases are
    zero. The paper also normalises observations by running statistics: ``normalize_observations`` of the actor.

    Args:
        input_size: features in.
        hidden_sizes: features of each block; all are equal.
        noisy: noisy weights; see :class:`~pytorchrl.agent.actors.layers.linear_layers.NoisyLinear`.
        noisy_sigma: initial scale of their noise.
        generator: of the noise, on the device of the network; None for torch's default one.

    Raises:
        ValueError: there is no block, or their sizes differ.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        *,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        size = self.output_size = width_of(hidden_sizes, "SimBa")
        self.embedding = linear_layer(input_size, size, noisy=noisy, generator=generator, sigma=noisy_sigma)
        orthogonal(self.embedding, 1.0)
        self.blocks = nn.ModuleList(_SimBaBlock(size, noisy, noisy_sigma, generator) for _ in hidden_sizes)
        self.norm = nn.LayerNorm(size, eps=_EPSILON)

    @property
    def modules_of_layers(self) -> list[list[nn.Module]]:
        """The modules with parameters of the first layer, and of each block; the last norm is part of the last one."""
        layers: list[list[nn.Module]] = [[self.embedding], *(list(block.modules()) for block in self.blocks)]
        layers[-1].append(self.norm)
        return layers

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, output_size)."""
        features = self.embedding(features)
        for block in self.blocks:
            features = block(features)
        normalised: Tensor = self.norm(features)
        return normalised


class _SimBaBlock(nn.Module):
    def __init__(self, size: int, noisy: bool, sigma: float, generator: torch.Generator | None) -> None:
        super().__init__()
        wide = _EXPANSION * size
        self.norm = nn.LayerNorm(size, eps=_EPSILON)
        self.wide = linear_layer(size, wide, noisy=noisy, generator=generator, sigma=sigma)
        self.narrow = linear_layer(wide, size, noisy=noisy, generator=generator, sigma=sigma)
        for layer in (self.wide, self.narrow):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        added: Tensor = self.narrow(torch.relu(self.wide(self.norm(features))))
        return features + added


class BroNet(nn.Module):
    """A normalised layer, and residual blocks of two normalised layers each.

    Nauman et al., "Bigger, Regularized, Optimistic: scaling for compute and sample-efficient continuous control"
    (arXiv 2405.16158). The first layer is ``relu(norm(linear(x)))``, and a block is
    ``x + norm(linear(relu(norm(linear(x)))))``. As in the authors' code, weights are orthogonal with a gain of sqrt(2),
    and biases zero.

    Args:
        input_size: features in.
        hidden_sizes: features of each block; all are equal.
        noisy: as for :class:`SimBa`.
        noisy_sigma: as for ``SimBa``.
        generator: as for ``SimBa``.

    Raises:
        ValueError: there is no block, or their sizes differ.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        *,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        size = self.output_size = width_of(hidden_sizes, "BroNet")
        self.embedding = _NormalisedLayer(input_size, size, noisy, noisy_sigma, generator)
        self.blocks = nn.ModuleList(_BroNetBlock(size, noisy, noisy_sigma, generator) for _ in hidden_sizes)

    @property
    def modules_of_layers(self) -> list[list[nn.Module]]:
        """The modules with parameters of the first layer, and of each block."""
        return [list(part.modules()) for part in (self.embedding, *self.blocks)]

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, output_size)."""
        features = torch.relu(self.embedding(features))
        for block in self.blocks:
            features = block(features)
        return features


class _BroNetBlock(nn.Module):
    def __init__(self, size: int, noisy: bool, sigma: float, generator: torch.Generator | None) -> None:
        super().__init__()
        self.first = _NormalisedLayer(size, size, noisy, sigma, generator)
        self.second = _NormalisedLayer(size, size, noisy, sigma, generator)

    def forward(self, features: Tensor) -> Tensor:
        added: Tensor = self.second(torch.relu(self.first(features)))
        return features + added


class _NormalisedLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int, noisy: bool, sigma: float, generator: torch.Generator | None) -> None:
        super().__init__()
        self.layer = linear_layer(inputs, outputs, noisy=noisy, generator=generator, sigma=sigma)
        self.norm = nn.LayerNorm(outputs, eps=_EPSILON)
        orthogonal(self.layer, math.sqrt(2))

    def forward(self, features: Tensor) -> Tensor:
        normalised: Tensor = self.norm(self.layer(features))
        return normalised


def width_of(hidden_sizes: Sequence[int], owner: str) -> int:
    """Return the number of features that all residual blocks have.

    Raises:
        ValueError: there is no block, or their sizes differ.
    """
    if len(set(hidden_sizes)) != 1:
        raise ValueError(
            f"{owner}: hidden_sizes are the features of each residual block, which are equal, such as (256, 256), got "
            f"{tuple(hidden_sizes)}"
        )
    return hidden_sizes[0]
