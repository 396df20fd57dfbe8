"""The head of Q-functions that are quadratic in the action."""

import math
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.soft_bounds import above
from pytorchrl.agent.actors.layers.output_layer import ConvertedNumbers, OutputLayer
from pytorchrl.agent.actors.outputs import QuadraticValues
from pytorchrl.agent.device import make_constants


@dataclass(frozen=True)
class Quadratic:
    """Q(s, .) over a bounded Box, quadratic in the action, :class:`QuadraticValues`; its layers may be noisy.

    Gu et al., "Continuous Deep Q-Learning with Model-based Acceleration" (NAF, arXiv 1603.00748), section 4. With
    ``dueling``, state value and advantages have a hidden layer each.

    Args:
        squash: keep the maximising actions within the bounds by a tanh; False leaves them unbounded, and clips actions.
        huber_threshold: error from which on the Huber loss is linear; None for the squared error.
        min_log_diagonal: lower bound of the logarithms of L's diagonal, so that values always depend on the action;
            None for no bound. Without that dependence, no gradient reaches the peak and the diagonal.
    """

    squash: bool = False
    huber_threshold: float | None = None
    min_log_diagonal: float | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        assert isinstance(actor.action_space, spaces.Box)
        size = math.prod(actor.action_space.shape or (1,))
        numbers = 1, size + size * (size + 1) // 2
        layers = (
            _SeparateStreams(features, numbers, actor)
            if actor.dueling
            else OutputLayer(actor.linear(features, sum(numbers)))
        )
        return _Quadratic(layers, size, self)


class _SeparateStreams(nn.Module):
    """A hidden layer for each of several groups of outputs, which are concatenated."""

    def __init__(self, features: int, numbers: tuple[int, ...], actor: Actor) -> None:
        super().__init__()
        units = actor.dueling_size or features
        self.hidden = nn.ModuleList(actor.linear(features, units) for _ in numbers)
        self.out = nn.ModuleList(actor.linear(units, number) for number in numbers)

    def forward(self, features: Tensor) -> Tensor:
        streams = zip(self.hidden, self.out, strict=True)
        return torch.cat([out(torch.relu(hidden(features))) for hidden, out in streams], dim=1)


class _Quadratic(ConvertedNumbers):
    """Outputs in the order V, peak, logarithms of L's diagonal, entries below it row by row."""

    places: Tensor

    def __init__(self, numbers: nn.Module, size: int, head: Quadratic) -> None:
        super().__init__(numbers)
        self._size, self._head = size, head
        places = make_constants(size * (size + 1) // 2, lambda: _places_of(size), torch.int64)
        self.register_buffer("places", places, persistent=False)

    def output(self, numbers: Tensor) -> QuadraticValues:
        size, squash = self._size, self._head.squash
        value, peak, log_diagonal, below = numbers.split_with_sizes([1, size, size, size * (size - 1) // 2], dim=1)
        diagonal = above(self._head.min_log_diagonal, log_diagonal).exp()
        entries = torch.cat([diagonal, below], dim=1)
        factor = entries.new_zeros((entries.shape[0], size * size)).index_copy(1, self.places, entries)
        peak = torch.tanh(peak) if squash else peak
        return QuadraticValues(value, peak, factor.view(-1, size, size), squash, self._head.huber_threshold)


def _places_of(size: int) -> Tensor:
    """Return the places in a flattened matrix of its diagonal, and of the entries below it row by row."""
    rows, columns = torch.tril_indices(size, size, offset=-1)
    return torch.cat([torch.arange(size) * (size + 1), rows * size + columns])
