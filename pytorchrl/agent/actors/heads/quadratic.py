"""The head of values that are quadratic in the action."""

import math
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads.soft_bounds import above
from pytorchrl.agent.actors.layers.quick_layers import linear
from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.outputs import QuadraticValues


@dataclass(frozen=True)
class Quadratic:
    """Q(s, .) over the actions of a bounded Box, :class:`QuadraticValues`; noisy layers where the user wants them.

    Gu et al., "Continuous Deep Q-Learning with Model-based Acceleration" (arXiv 1603.00748), section 4. A state's
    value and its advantages are apart with ``dueling`` or not; with it, each of the two has a hidden layer.

    Args:
        squash: let peaks lie within the bounds, by a tanh; False has peaks anywhere, and clips actions.
        huber_threshold: error from which on the loss is linear; None for squares everywhere.
        min_log_diagonal: what the logarithms of the diagonal of L stay above, so that values always depend on the
            action; None for no such bound. Once they do not, no gradient reaches the peak and the diagonal.
    """

    squash: bool = False
    huber_threshold: float | None = None
    min_log_diagonal: float | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """The module, from (N, features)."""
        assert isinstance(actor.action_space, spaces.Box)
        size = math.prod(actor.action_space.shape or (1,))
        numbers = 1, size + size * (size + 1) // 2
        layers = (
            _SeparateStreams(features, numbers, actor) if actor.dueling else _OneLayer(features, sum(numbers), actor)
        )
        return _Quadratic(layers, size, self)


class _OneLayer(QuickModule):
    def __init__(self, features: int, numbers: int, actor: Actor) -> None:
        super().__init__()
        self.layer = actor.linear(features, numbers)

    def forward(self, features: Tensor) -> Tensor:
        return linear(self.layer, features)


class _SeparateStreams(QuickModule):
    """A hidden layer for each of several groups of numbers, which come out side by side."""

    def __init__(self, features: int, numbers: tuple[int, ...], actor: Actor) -> None:
        super().__init__()
        units = actor.dueling_size or features
        self.hidden = nn.ModuleList(actor.linear(features, units) for _ in numbers)
        self.out = nn.ModuleList(actor.linear(units, number) for number in numbers)

    def forward(self, features: Tensor) -> Tensor:
        streams = zip(self.hidden, self.out, strict=True)
        return torch.cat([linear(out, torch.relu(linear(hidden, features))) for hidden, out in streams], dim=1)


class _Quadratic(QuickModule):
    """Numbers in the order V, peak, logarithms of L's diagonal, what lies below it row by row."""

    places: Tensor

    def __init__(self, numbers: nn.Module, size: int, head: Quadratic) -> None:
        super().__init__()
        self.numbers, self._size, self._head = numbers, size, head
        rows, columns = torch.tril_indices(size, size, offset=-1)
        diagonal = torch.arange(size)
        places = torch.cat([diagonal * (size + 1), rows * size + columns])
        self.register_buffer("places", places, persistent=False)

    def forward(self, features: Tensor) -> QuadraticValues:
        size, squash = self._size, self._head.squash
        value, peak, log_diagonal, below = self.numbers(features).split_with_sizes(
            [1, size, size, size * (size - 1) // 2], dim=1
        )
        diagonal = above(self._head.min_log_diagonal, log_diagonal).exp()
        entries = torch.cat([diagonal, below], dim=1)
        factor = entries.new_zeros((len(entries), size * size)).index_copy(1, self.places, entries)
        peak = torch.tanh(peak) if squash else peak
        return QuadraticValues(value, peak, factor.view(-1, size, size), squash, self._head.huber_threshold)
