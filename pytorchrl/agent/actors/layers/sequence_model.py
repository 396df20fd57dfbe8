"""The sequence model of recurrent state-space models, a gated recurrent unit."""

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders import output_size_of
from pytorchrl.agent.actors.layers.linear_layers import linear_layer


class SequenceModel(nn.Module):
    """A gated recurrent unit of latent states and actions, with layer normalisation of its gates.

    The update gate has a bias of -1, so that states change slowly at first, as in the authors' code.

    Args:
        inputs: layers of stochastic state and action.
        size: of the recurrent state.
    """

    def __init__(self, inputs: nn.Module, size: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.gates = linear_layer(output_size_of(inputs) + size, 3 * size)
        self.norm = nn.LayerNorm(3 * size)

    def forward(self, recurrent: Tensor, stochastic: Tensor, action: Tensor) -> Tensor:
        """Return the next state (N, size) for states (N, size) and (N, choices), and encoded actions (N, A)."""
        inputs = self.inputs(torch.cat([stochastic, action], dim=1))
        reset, candidate, update = self.norm(self.gates(torch.cat([inputs, recurrent], dim=1))).chunk(3, dim=1)
        candidate = torch.tanh(reset.sigmoid() * candidate)
        return recurrent.lerp(candidate, (update - 1).sigmoid())
