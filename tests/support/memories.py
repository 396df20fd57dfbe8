"""Memories of users, with the interfaces of torch's recurrent cells and layers, and stacks of memories."""

import functools
from typing import Any

import torch
from torch import Tensor, nn


class MinimalGatedUnit(nn.Module):
    """A cell that begins without a state, and declares no size (Zhou et al., arXiv 1603.09420)."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(input_size + size, size)
        self.new = nn.Linear(input_size + size, size)
        self._size = size

    def forward(self, features: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the state after the step (B, size)."""
        state = features.new_zeros((len(features), self._size)) if state is None else state
        gate = torch.sigmoid(self.gate(torch.cat([features, state], dim=1)))
        new = torch.tanh(self.new(torch.cat([features, gate * state], dim=1)))
        return (1 - gate) * state + gate * new


class LeakyIntegrator(nn.Module):
    """A cell without parameters, which needs a state of the size that it declares."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.hidden_size = input_size

    def forward(self, features: Tensor, state: Tensor) -> Tensor:
        """Return the state after the step (B, input_size)."""
        return 0.9 * state + 0.1 * features


class WithTrace(nn.Module):
    """A cell of two states, of which only the first is shown; it declares the sizes of both."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.hidden_size = (size, input_size)
        self.layer = nn.Linear(2 * input_size, size)

    def forward(self, features: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return both states after the step, (B, size) and (B, input_size)."""
        shown, trace = state
        trace = 0.8 * trace + features
        return 0.5 * shown + torch.tanh(self.layer(torch.cat([features, trace], dim=1))), trace


class FastWeights(nn.Module):
    """A cell whose second state is a matrix of weights, changed by outer products (Ba et al., arXiv 1610.06258)."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_size, size)

    def forward(self, features: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the hidden state (B, size) and the matrix (B, size, size) after the step."""
        inputs = self.layer(features)
        if state is None:
            state = torch.zeros_like(inputs), inputs.new_zeros((*inputs.shape, inputs.shape[1]))
        shown, fast = state
        fast = 0.9 * fast + 0.1 * shown[:, :, None] * shown[:, None, :]
        return torch.tanh(inputs + (fast @ inputs[:, :, None])[:, :, 0]), fast


class LinearAfterGRU(nn.Module):
    """A layer with a fully connected layer after the recurrent one, of another size."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(input_size, size)
        self.linear = nn.Linear(size, size + 1)

    def forward(self, features: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (T, B, size + 1) of features (T, B, input_size), and the state (1, B, size) after them."""
        outputs, state = self.recurrent(features, state)
        return torch.relu(self.linear(outputs)), state


MEMORIES: dict[str, dict[str, Any]] = {
    "two layers": {"memory": "lstm", "memory_layers": 2},
    "GRU after LSTM": {"memory": ("lstm", "gru")},
    "minimal gated unit": {"memory": MinimalGatedUnit},
    "leaky integrator": {"memory": LeakyIntegrator},
    "two states": {"memory": WithTrace},
    "fast weights": {"memory": FastWeights},
    "layer after the recurrent one": {"memory": LinearAfterGRU},
    "two of these": {"memory": LinearAfterGRU, "memory_layers": 2},
    "all kinds": {"memory": ("gru", WithTrace, LinearAfterGRU, "lstm")},
    "cell of torch": {"memory": nn.LSTMCell},
    "layers of torch": {"memory": functools.partial(nn.LSTM, num_layers=2)},
}
"""Hyper-parameters of actors."""
