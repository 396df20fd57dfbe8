"""The head that decodes the parameters of a hybrid action, and predicts what the action changes."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.output_layer import OutputLayer


class Decoded(NamedTuple):
    """Output of the decoder."""

    parameters: Tensor
    """(N, P), of the action, in (-1, 1)."""
    change: Tensor
    """(N, D), predicted change of the observation; D is 0 where none is predicted."""


@dataclass(frozen=True)
class HybridDecoder:
    """Parameters and the change of an observation.

    Args:
        num_parameters: P.
        num_changes: D.
    """

    num_parameters: int
    num_changes: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to :class:`Decoded`."""
        layer = actor.linear(features, self.num_parameters + self.num_changes)
        return _DecoderLayer(layer, self.num_parameters)


class _DecoderLayer(OutputLayer):
    def __init__(self, layer: nn.Module, num_parameters: int) -> None:
        super().__init__(layer)
        self._num_parameters = num_parameters

    def output(self, numbers: Tensor) -> Decoded:
        return Decoded(numbers[:, : self._num_parameters].tanh(), numbers[:, self._num_parameters :])
