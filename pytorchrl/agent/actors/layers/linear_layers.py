"""Linear layers: initialisation, noisy layers, and the output layers of heads."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.ops.products import LINEAR


class UsesGenerator(nn.Module):
    """A module that draws from a generator, which it shares with its target network.

    Args:
        generator: on the device of the module; None for torch's default one.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        super().__init__()
        self.generator = generator


_ROWS_WORTH_A_MATRIX = 16
"""Rows from which one product with noisy weights takes less time than two, with means and with noise."""


class NoisyLinear(UsesGenerator):
    """A linear layer with factorised Gaussian noise.

    Fortunato et al., "Noisy Networks for Exploration" (arXiv 1706.10295), equations 9 to 11. A forward pass draws one
    sample, which all rows of the batch share; in evaluation there is no noise.

    Args:
        inputs: features in.
        outputs: features out.
        generator: of the noise, on the device of the layer; None for torch's default one.
        sigma: initial scale of the noise: a weight's standard deviation is ``sigma / sqrt(inputs)`` (section 3.2).
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator | None = None, sigma: float = 0.5) -> None:
        super().__init__(generator)
        self.in_features, self.out_features = inputs, outputs
        bound, deviation = 1 / math.sqrt(inputs), sigma / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        """Mean of the weights."""
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        """Mean of the bias."""
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), deviation))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), deviation))
        self._kept: dict[NoisyLinear, Tensor] | None = None

    def forward(self, features: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs)."""
        if not self.training:
            return F.linear(features, self.weight, self.bias)
        if len(features) >= _ROWS_WORTH_A_MATRIX:
            return F.linear(features, *self.drawn_weights())
        noise = self._noise()
        noise_in, noise_out = noise[: self.in_features], noise[self.in_features :]
        # The noise of a weight is a product, so that it can be applied before and after the multiplication: for few
        # rows, that takes less time than a matrix of noisy weights.
        mean = F.linear(features, self.weight, self.bias)
        return mean + F.linear(features * noise_in, self.weight_sigma, self.bias_sigma) * noise_out

    def drawn_weights(self) -> tuple[Tensor, Tensor]:
        """Return weights (outputs, inputs) and bias (outputs,) with newly drawn noise; their means in evaluation."""
        if not self.training:
            return self.weight, self.bias
        noise = self._noise()
        noise_in, noise_out = noise[: self.in_features], noise[self.in_features :]
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(noise_out, noise_in))
        return weight, torch.addcmul(self.bias, self.bias_sigma, noise_out)

    def extra_repr(self) -> str:
        """Return what torch shows of the layer."""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def _noise(self) -> Tensor:
        """Draw (inputs + outputs,): sgn(x) sqrt(|x|) of standard normal numbers x."""
        if self._kept is None:
            return self._drawn_noise()
        noise = self._kept.get(self)
        if noise is None:
            noise = self._kept[self] = self._drawn_noise()
        return noise

    def _drawn_noise(self) -> Tensor:
        weight = self.weight
        size = self.in_features + self.out_features
        drawn = torch.empty(size, dtype=weight.dtype, device=weight.device).normal_(generator=self.generator)
        return torch.copysign(drawn.abs().sqrt_(), drawn)


class OneSample:
    """One sample of the noise in a module's layers, for several passes through it.

    Args:
        module: whose noisy layers are meant.
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers = [each for each in module.modules() if isinstance(each, NoisyLinear)]
        self._noise: dict[NoisyLinear, Tensor] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the layers use this sample; the first pass draws it."""
        for layer in self._layers:
            layer._kept = self._noise
        try:
            yield
        finally:
            for layer in self._layers:
                layer._kept = None


def linear_layer(
    inputs: int, outputs: int, *, noisy: bool = False, generator: torch.Generator | None = None, sigma: float = 0.5
) -> nn.Linear | NoisyLinear:
    """Make a linear layer, noisy or not; ``generator`` draws the noise, whose initial scale is ``sigma``."""
    return NoisyLinear(inputs, outputs, generator, sigma) if noisy else LINEAR(inputs, outputs)


Initialisation: TypeAlias = Literal["orthogonal", "uniform"]


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Initialise weights as orthogonal with a gain, and biases with 0; of a noisy layer, their means."""
    assert isinstance(layer, nn.Linear | nn.Conv2d | NoisyLinear)
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class OutputLayer(nn.Module):
    """One linear layer of the features, whose numbers :meth:`output` converts; here they are the output.

    Args:
        layer: from features to numbers.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Any:
        """Map (N, features) to the output."""
        return self.output(self.layer(features))

    def output(self, numbers: Tensor) -> Any:
        """Convert the numbers (N, numbers) of the layer to the output."""
        return numbers


class ConvertedNumbers(nn.Module):
    """Numbers of an :class:`OutputLayer` or of dueling streams, which :meth:`output` converts.

    Args:
        numbers: from features to numbers.
    """

    def __init__(self, numbers: nn.Module) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, features: Tensor) -> Any:
        """Map (N, features) to the output."""
        return self.output(self.numbers(features))

    def output(self, numbers: Tensor) -> Any:
        """Convert the numbers (N, numbers) to the output."""
        return numbers


def above(bound: float | None, numbers: Tensor) -> Tensor:
    """Bound numbers of any shape from below by a softplus; return them unchanged where the bound is None.

    Unlike a clamp, it has a gradient below the bound, too.
    """
    return numbers if bound is None else bound + F.softplus(numbers - bound)
