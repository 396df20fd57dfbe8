"""Manual backpropagation through MLPs of observations, without autograd."""

from collections.abc import Mapping

from torch import Tensor

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.plain_layers import PlainLayers, Sweep
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.transition import OBS


class PlainNetwork:
    """Forward and backward pass of an MLP without autograd.

    Args:
        network: of observations.
        layers: all of its layers.
        group: that trains it, possibly with other networks.
    """

    def __init__(self, network: Network, layers: PlainLayers, group: Trained) -> None:
        assert isinstance(network.body, Body)
        self._body = network.body
        self._sweep, self._parameters = Sweep(*layers), layers.parameters
        memory = group.gradient_memory()
        self._gradients = {parameter: memory[parameter] for parameter in layers.parameters}

    def forward(self, rows: Rows) -> Tensor:
        """Return the network's outputs (N, outputs) for the observations of a batch."""
        return self._sweep.forward(self._body.extracted(rows[OBS]), self._parameters)

    def backward(self, slope: Tensor) -> Mapping[Tensor, Tensor]:
        """Return the gradients by parameter of a loss; ``slope`` is its derivative by the output of `forward`."""
        self._sweep.backward(slope, self._parameters, list(self._gradients.values()), adds=False)
        return self._gradients
