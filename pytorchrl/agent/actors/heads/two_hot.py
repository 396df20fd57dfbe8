"""The head of a number that is predicted by classification."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, orthogonal
from pytorchrl.agent.device import make_constants
from pytorchrl.agent.ops.two_hot import symexp, two_hot, two_hot_mean

_LARGEST_SYMLOG = 20.0
"""Of a bin: a number of 485 million."""


class TwoHotPrediction:
    """A categorical distribution over fixed numbers for each of N rows, whose mean is the prediction.

    Hafner et al., "Mastering Diverse Domains through World Models" (arXiv 2301.04104v2), "Critic learning".

    Args:
        logits: (N, K).
        bins: (K,), ascending.
    """

    def __init__(self, logits: Tensor, bins: Tensor) -> None:
        self.logits, self._bins = logits, bins

    @property
    def mean(self) -> Tensor:
        """(N, 1)."""
        return two_hot_mean(self.logits, self._bins).unsqueeze(1)

    def code(self, numbers: Tensor) -> Tensor:
        """Return the two-hot codes (N, K) of numbers (N, 1)."""
        return two_hot(numbers[:, 0], self._bins)

    def loss(self, code: Tensor) -> Tensor:
        """Return the cross-entropy (N, 1) of codes (N, K)."""
        return -(code * self.logits.log_softmax(-1)).sum(-1, keepdim=True)


@dataclass(frozen=True)
class TwoHotNumber:
    """A :class:`TwoHotPrediction`, which is 0 at first.

    Args:
        num_bins: of the distribution; between them, the symmetric logarithm grows evenly from -20 to 20.
    """

    num_bins: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the prediction."""
        layer = actor.linear(features, self.num_bins)
        orthogonal(layer, 0.0)
        return _TwoHotLayer(layer, make_constants(self.num_bins, self._bins))

    def _bins(self) -> Tensor:
        return symexp(torch.linspace(-_LARGEST_SYMLOG, _LARGEST_SYMLOG, self.num_bins))


class _TwoHotLayer(OutputLayer):
    bins: Tensor

    def __init__(self, layer: nn.Module, bins: Tensor) -> None:
        super().__init__(layer)
        self.register_buffer("bins", bins, persistent=False)

    def output(self, numbers: Tensor) -> TwoHotPrediction:
        return TwoHotPrediction(numbers, self.bins)
