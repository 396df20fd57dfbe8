"""The head of implicit quantile networks (IQN): Dabney et al. (arXiv 1806.06923), section 3 and equation 4."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.encoders import output_size_of
from pytorchrl.agent.actors.heads.values import make_action_layers
from pytorchrl.agent.actors.layers.linear_layers import NoisyLinear, OneSample, OutputLayer, UsesGenerator
from pytorchrl.agent.actors.outputs import ImplicitQuantileValues, quantile_midpoints
from pytorchrl.agent.device import make_constants
from pytorchrl.agent.ops.layers import are_plain
from pytorchrl.agent.ops.products import LINEAR
from pytorchrl.agent.risk_measures import Neutral, RiskMeasure


@dataclass(frozen=True)
class ImplicitQuantiles:
    """Quantiles of the return of each discrete action at any fractions, :class:`ImplicitQuantileValues`.

    Args:
        num_quantiles: number of fractions drawn for the value of an action.
        num_action_quantiles: number of fractions drawn to choose an action.
        num_cosines: number of cosine features that embed a fraction.
        kappa: threshold of the quantile Huber loss.
        risk: risk measure by which actions are chosen.
        hidden_sizes: units of the layers between the product of features and embedding, and the quantiles.
    """

    num_quantiles: int = 64
    num_action_quantiles: int = 32
    num_cosines: int = 64
    kappa: float = 1.0
    risk: RiskMeasure = field(default_factory=Neutral)
    hidden_sizes: Sequence[int] = ()

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        hidden = actor.hidden_layers(features, self.hidden_sizes) if self.hidden_sizes else None
        numbers = make_action_layers(features if hidden is None else output_size_of(hidden), 1, actor)
        return _Quantiles(self, features, actor, numbers, hidden)


class _Quantiles(UsesGenerator):
    """A :class:`~pytorchrl.agent.actors.outputs.return_distributions.QuantileFunction`."""

    midpoints: Tensor
    _frequencies: Tensor

    def __init__(
        self, head: ImplicitQuantiles, features: int, actor: Actor, numbers: nn.Module, hidden: nn.Module | None
    ) -> None:
        super().__init__(actor.generator)
        assert isinstance(actor.action_space, spaces.Discrete)
        self.num_actions = int(actor.action_space.n)
        self.num_quantiles, self.num_action_quantiles = head.num_quantiles, head.num_action_quantiles
        self.kappa, self.risk = head.kappa, head.risk
        self.embedding, self.hidden, self.numbers = LINEAR(head.num_cosines, features), hidden, numbers
        self._is_noisy = any(isinstance(each, NoisyLinear) for each in self.modules())
        self.register_buffer("midpoints", quantile_midpoints(head.num_action_quantiles), persistent=False)
        # The paper's equation 4 counts from 0, whose cosine is 1 and no more than the layer's bias; its authors' own
        # networks count from 1.
        frequencies = make_constants(head.num_cosines, lambda: math.pi * torch.arange(1, head.num_cosines + 1))
        self.register_buffer("_frequencies", frequencies, persistent=False)

    def forward(self, features: Tensor) -> ImplicitQuantileValues:
        function = _NoisyQuantiles(self) if self.training and self._is_noisy else self
        return ImplicitQuantileValues(function, features, self.generator)

    def quantiles(self, features: Tensor, fractions: Tensor) -> Tensor:
        joined = (features.unsqueeze(1) * self._embedded(fractions)).flatten(0, 1)  # (B * N, F)
        numbers: Tensor = self.numbers(joined if self.hidden is None else self.hidden(joined))
        return numbers.view(-1, len(fractions), self.num_actions).transpose(1, 2)

    def mixed(self, features: Tensor, fractions: Tensor, weights: Tensor) -> Tensor:
        output = self._output()
        if output is None:
            return (weights.unsqueeze(2) * self.quantiles(features, fractions)).sum(1)
        weight, bias = output
        of_rows = features * (weights @ weight)  # (B, F)
        return torch.addmm((weights @ bias).unsqueeze(1), of_rows, self._embedded(fractions).t())

    def means(self, features: Tensor, fractions: Tensor) -> Tensor:
        output = self._output()
        if output is None:
            return self.quantiles(features, fractions).mean(2)
        return F.linear(features * self._embedded(fractions).mean(0), *output)

    def _output(self) -> tuple[Tensor, Tensor] | None:
        """Return weights (n, F) and bias (n,) where a single linear layer follows the embedding; None where more does.

        The product (B, N, F) is then not needed.
        """
        if self.hidden is not None or not are_plain([self.numbers], OutputLayer):
            return None
        layer: Any = self.numbers.layer
        if are_plain([layer], NoisyLinear):
            weights: tuple[Tensor, Tensor] = layer.drawn_weights()
            return weights
        return (layer.weight, layer.bias) if are_plain([layer]) and layer.bias is not None else None

    def _embedded(self, fractions: Tensor) -> Tensor:
        """Embed fractions (N,) as (N, F)."""
        return torch.relu(self.embedding(torch.cos(fractions.unsqueeze(1) * self._frequencies)))


class _NoisyQuantiles:
    """The quantile function of one sample of the noise in its layers, by which actions are chosen and evaluated alike.

    Fortunato et al., "Noisy Networks for Exploration" (arXiv 1706.10295), equation 17, take the largest value of the
    next state by the same sample as that value.
    """

    def __init__(self, function: _Quantiles) -> None:
        self.num_actions, self.kappa, self.risk = function.num_actions, function.kappa, function.risk
        self.num_quantiles, self.num_action_quantiles = function.num_quantiles, function.num_action_quantiles
        self.midpoints = function.midpoints
        self._function, self._sample = function, OneSample(function)

    def quantiles(self, features: Tensor, fractions: Tensor) -> Tensor:
        with self._sample.used():
            return self._function.quantiles(features, fractions)

    def mixed(self, features: Tensor, fractions: Tensor, weights: Tensor) -> Tensor:
        with self._sample.used():
            return self._function.mixed(features, fractions, weights)

    def means(self, features: Tensor, fractions: Tensor) -> Tensor:
        with self._sample.used():
            return self._function.means(features, fractions)
