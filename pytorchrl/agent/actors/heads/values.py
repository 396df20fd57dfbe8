"""Heads of value functions, of a state, of one action or of each, and the head of feature vectors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import ConvertedNumbers, OutputLayer, above, orthogonal
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.outputs import (
    CategoricalValues,
    ComponentValue,
    QuadraticValues,
    QuantileValue,
    QuantileValues,
    RescaledValues,
    ScalarValue,
    ScalarValues,
    quantile_midpoints,
)
from pytorchrl.agent.device import make_constants


@dataclass(frozen=True)
class StateValue:
    """V(s), (N, 1), or several numbers of a state, (N, count).

    Args:
        gain: of an orthogonal initialisation; None keeps torch's uniform one.
        count: how many numbers.
    """

    gain: float | None = 1.0
    count: int = 1

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, count)."""
        module = OutputLayer(actor.linear(features, self.count))
        if self.gain is not None:
            orthogonal(module.layer, self.gain)
        return module


@dataclass(frozen=True)
class ActionValue:
    """Q(s, a) of one action, a :class:`ScalarValue`; for networks that take actions.

    Args:
        huber_threshold: error from which on the Huber loss is linear; None for the squared error.
    """

    huber_threshold: float | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return ActionValueLayer(actor.linear(features, 1), self.huber_threshold)


@dataclass(frozen=True)
class ActionQuantiles:
    """Quantiles of the return of one action, a :class:`QuantileValue`; for networks that take actions.

    Args:
        number: number of quantiles.
        kappa: threshold of the quantile Huber loss.
    """

    number: int
    kappa: float = 1.0

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return _ActionQuantiles(actor.linear(features, self.number), self.number, self.kappa)


@dataclass(frozen=True)
class ActionComponents:
    """Q(s, a) of one action, by component of the reward: a :class:`ComponentValue`; for networks that take actions.

    Args:
        number: number of components.
    """

    number: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return _ActionComponents(actor.linear(features, self.number))


@dataclass(frozen=True)
class Values:
    """Q(s, .) of each action of a Discrete space, :class:`ScalarValues`.

    Args:
        huber_threshold: error from which on the Huber loss is linear; None for the squared error.
        rescaling: eps of the value rescaling of :class:`RescaledValues`; None for none.
    """

    huber_threshold: float | None = 1.0
    rescaling: float | None = None

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return ActionValuesLayer(make_action_layers(features, 1, actor), self.huber_threshold, self.rescaling)


@dataclass(frozen=True)
class QuantileReturns:
    """Quantiles of the return of each action of a Discrete space, :class:`QuantileValues`.

    Args:
        number: number of quantiles.
        kappa: threshold of the quantile Huber loss.
    """

    number: int
    kappa: float = 1.0

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return _QuantileReturns(make_action_layers(features, self.number, actor), self.number, self.kappa)


@dataclass(frozen=True)
class CategoricalReturns:
    """Categorical return distribution of each action of a Discrete space, :class:`CategoricalValues`.

    Args:
        atoms: number of atoms.
        low: smallest atom.
        high: largest atom.
    """

    atoms: int
    low: float
    high: float

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        support = make_constants(
            self.atoms, lambda: torch.linspace(self.low, self.high, self.atoms, device=actor.device)
        )
        return _CategoricalReturns(make_action_layers(features, self.atoms, actor), support)


class DuelingStreams(nn.Module):
    """Dueling streams: state value plus advantages, less their mean over the actions.

    Wang et al., "Dueling Network Architectures for Deep Reinforcement Learning" (arXiv 1511.06581), equation 9.

    Args:
        features: number of inputs.
        actions: number of actions.
        numbers: outputs for each action.
        actor: makes the layers, and defines the units of each stream.
    """

    def __init__(self, features: int, actions: int, numbers: int, actor: Actor) -> None:
        super().__init__()
        units = actor.dueling_size or features
        self.value_hidden, self.advantage_hidden = actor.linear(features, units), actor.linear(features, units)
        self.value, self.advantage = actor.linear(units, numbers), actor.linear(units, actions * numbers)
        self._shape = (actions, numbers)

    def forward(self, features: Tensor) -> Tensor:
        """(N, features) to (N, actions * numbers)."""
        value = self.value(torch.relu(self.value_hidden(features)))
        advantage = self.advantage(torch.relu(self.advantage_hidden(features)))
        advantage = advantage.view(-1, *self._shape)
        combined: Tensor = (value[:, None] + advantage - advantage.mean(1, keepdim=True)).flatten(1)
        return combined


def make_action_layers(features: int, numbers: int, actor: Actor) -> nn.Module:
    """Make the output layers of a head for discrete actions, (N, features) to (N, actions * numbers).

    They are dueling streams, and noisy, where the user wants it. The action space must be Discrete.
    """
    assert isinstance(actor.action_space, spaces.Discrete)
    actions = int(actor.action_space.n)
    if actor.dueling:
        return DuelingStreams(features, actions, numbers, actor)
    return OutputLayer(actor.linear(features, actions * numbers))


class ActionValueLayer(OutputLayer):
    """The module of :class:`ActionValue`: one linear layer.

    Args:
        layer: from features to a number.
        huber_threshold: as of ``ActionValue``.
    """

    def __init__(self, layer: nn.Module, huber_threshold: float | None) -> None:
        super().__init__(layer)
        self.huber_threshold = huber_threshold

    def output(self, numbers: Tensor) -> ScalarValue:
        """Return the values (N, 1)."""
        return ScalarValue(numbers, self.huber_threshold)


class _ActionQuantiles(OutputLayer):
    fractions: Tensor

    def __init__(self, layer: nn.Module, quantiles: int, kappa: float) -> None:
        super().__init__(layer)
        self._kappa = kappa
        self.register_buffer("fractions", quantile_midpoints(quantiles), persistent=False)

    def output(self, numbers: Tensor) -> QuantileValue:
        return QuantileValue(numbers, self.fractions, self._kappa)


class _ActionComponents(OutputLayer):
    def output(self, numbers: Tensor) -> ComponentValue:
        return ComponentValue(numbers)


class ActionValuesLayer(ConvertedNumbers):
    """The module of :class:`Values`.

    Args:
        numbers: from features to a number for each action.
        huber_threshold: as of ``Values``.
        rescaling: as of ``Values``.
    """

    def __init__(self, numbers: nn.Module, huber_threshold: float | None, rescaling: float | None) -> None:
        super().__init__(numbers)
        self.huber_threshold, self.rescaling = huber_threshold, rescaling

    def output(self, numbers: Tensor) -> ScalarValues:
        """Return the values (N, actions)."""
        if self.rescaling is None:
            return ScalarValues(numbers, self.huber_threshold)
        return RescaledValues(numbers, self.rescaling, self.huber_threshold)


class _QuantileReturns(ConvertedNumbers):
    fractions: Tensor

    def __init__(self, numbers: nn.Module, quantiles: int, kappa: float) -> None:
        super().__init__(numbers)
        self._kappa = kappa
        self.register_buffer("fractions", quantile_midpoints(quantiles), persistent=False)

    def output(self, numbers: Tensor) -> QuantileValues:
        quantiles = _by_action(numbers, len(self.fractions))
        return QuantileValues(quantiles, self.fractions, self._kappa)


class _CategoricalReturns(ConvertedNumbers):
    support: Tensor

    def __init__(self, numbers: nn.Module, support: Tensor) -> None:
        super().__init__(numbers)
        self.register_buffer("support", support, persistent=False)

    def output(self, numbers: Tensor) -> CategoricalValues:
        return CategoricalValues(self.support, _by_action(numbers, len(self.support)))


def _by_action(numbers: Tensor, of_each: int) -> Tensor:
    """(N, actions * of_each) to (N, actions, of_each)."""
    return numbers.view(numbers.shape[0], numbers.shape[1] // of_each, of_each)


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


@dataclass(frozen=True)
class Features:
    """An embedding of observations, (N, size), by layers without noise.

    Args:
        size: of the embedding.
        hidden_sizes: units of the hidden layers before it.
    """

    size: int
    hidden_sizes: Sequence[int] = ()

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, size)."""
        hidden = MLP(features, self.hidden_sizes, "relu", "orthogonal")
        last = nn.Linear(hidden.output_size, self.size)
        orthogonal(last, math.sqrt(2))
        return nn.Sequential(hidden, last)
