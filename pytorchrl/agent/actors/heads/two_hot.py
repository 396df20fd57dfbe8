"""The head of a number that is predicted by classification."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, orthogonal
from pytorchrl.agent.device import make_constants
from pytorchrl.agent.ops.two_hot import symexp, symlog, two_hot, two_hot_mean


class TwoHotPrediction:
    """A categorical distribution over fixed numbers for each of N rows, whose mean is the prediction.

    Hafner et al., "Mastering Diverse Domains through World Models" (arXiv 2301.04104v2), "Critic learning"; over
    symmetric logarithms: Hansen et al., TD-MPC2 (arXiv 2310.16828), section 3.1.

    Args:
        logits: (N, K).
        bins: (K,), ascending: numbers, or their symmetric logarithms.
        of_logarithms: whether the mean is that of the symmetric logarithms.
    """

    def __init__(self, logits: Tensor, bins: Tensor, *, of_logarithms: bool = False) -> None:
        self.logits, self._bins, self._of_logarithms = logits, bins, of_logarithms

    @property
    def mean(self) -> Tensor:
        """(N, 1)."""
        mean = two_hot_mean(self.logits, self._bins).unsqueeze(1)
        return symexp(mean) if self._of_logarithms else mean

    def of_rows(self, rows: slice) -> "TwoHotPrediction":
        """Return the predictions of some of the rows."""
        return TwoHotPrediction(self.logits[rows], self._bins, of_logarithms=self._of_logarithms)

    def code(self, numbers: Tensor) -> Tensor:
        """Return the two-hot codes (N, K) of numbers (N, 1)."""
        return two_hot((symlog(numbers) if self._of_logarithms else numbers)[:, 0], self._bins)

    def loss(self, code: Tensor) -> Tensor:
        """Return the cross-entropy (N, 1) of codes (N, K)."""
        return -(code * self.logits.log_softmax(-1)).sum(-1, keepdim=True)


@dataclass(frozen=True)
class TwoHotNumber:
    """The head of a :class:`TwoHotPrediction`.

    Args:
        num_bins: of the distribution; their symmetric logarithms are evenly spaced.
        largest_log: they lie between minus and plus this; 20 stands for 485 million.
        of_logarithms: whether the mean is that of the symmetric logarithms, and not of the numbers.
        gain: of the initial weights; the prediction is 0 at first if it is 0.
    """

    num_bins: int
    largest_log: float = 20.0
    of_logarithms: bool = False
    gain: float = 0.0

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the prediction."""
        layer = actor.linear(features, self.num_bins)
        orthogonal(layer, self.gain)
        return _TwoHotLayer(layer, make_constants(self.num_bins, self._bins), self.of_logarithms)

    def _bins(self) -> Tensor:
        logarithms = torch.linspace(-self.largest_log, self.largest_log, self.num_bins)
        return logarithms if self.of_logarithms else symexp(logarithms)


class _TwoHotLayer(OutputLayer):
    bins: Tensor

    def __init__(self, layer: nn.Module, bins: Tensor, of_logarithms: bool) -> None:
        super().__init__(layer)
        self._of_logarithms = of_logarithms
        self.register_buffer("bins", bins, persistent=False)

    def output(self, numbers: Tensor) -> TwoHotPrediction:
        return TwoHotPrediction(numbers, self.bins, of_logarithms=self._of_logarithms)
