"""Networks over the spaces of some environments: the user chooses their body, the algorithm their heads."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, Protocol, TypeVar

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.encoders import ExtractorKind, described
from pytorchrl.agent.actors.layers.initialisation import Initialisation
from pytorchrl.agent.actors.layers.mlp import MLP, Activation, Layers
from pytorchrl.agent.actors.layers.noisy_linear import NoisyLinear, linear_layer
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, normalised_space
from pytorchrl.agent.actors.memory import MemoryKind, RecurrentBody, flat
from pytorchrl.agent.actors.network import Ensemble, Network
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.agent.actors.view import ActingView, AnyBody, Observations, Steps
from pytorchrl.agent.device import find_device, make_generator
from pytorchrl.agent.other_names import ACTOR_NAMES
from storages.component.factory import FieldComponent
from storages.component.hyper_parameters import Count, CountOrZero, Positive, UnitInterval
from storages.transition import ACT, DONE, OBS, RHS

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class Spaces(Protocol):
    """What an actor reads of the environments."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Of one environment."""

    @property
    def action_space(self) -> gym.Space[Any]:
        """Of one environment."""


class Head(Protocol):
    """What an algorithm wants of a network: a module from features to an output, made once both sizes are known."""

    def build(self, features: int, actor: "Actor") -> nn.Module:
        """The module, from (N, features)."""


class Actor(FieldComponent, nn.Module):
    """Networks that act and judge. Made without any; the algorithm that gets the actor makes those it needs.

    Args:
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
        shared_body: let networks of observations alone, such as policy and value function, share all but their heads.
        memory: what follows the body, "gru" or "lstm"; None sees one observation at a time. Each network has one,
            unless they share their body. What is stored with a transition (RHS) are the states of those that act; the
            others begin each sequence with zeros, so that a burn-in helps them (Ni et al., arXiv 2110.05038).
        memory_size: features that a memory makes.
        feature_extractor: "auto", "mlp", "nature_cnn", "small_cnn", "impala_cnn", "nature_convolutions" (without the
            layer behind them, which ``hidden_sizes`` or dueling streams then are), "embedding", "identity", or a module
            class or function of the observation space; "auto" takes a CNN for images, the small one where they are too
            small for Nature's, and flattens all else.
        normalize_observations: subtract the running mean of the observations collected so far, and divide by their
            standard deviation, within [-10, 10]. All copies of the environment, evaluation and target networks share
            these statistics, which are saved with the weights. Without environments, they are those of the data.
        dueling: split action values into a state's value and advantages (Wang et al., arXiv 1511.06581).
        dueling_size: units of the hidden layer of each of both; None takes as many as there are features.
        noisy: fully connected layers with noise that is learnt (Fortunato et al., arXiv 1706.10295).
        noisy_sigma: size of that noise at first (sigma_0): the deviation of weights times the root of a layer's inputs.
        layer_norm: normalise the features of each row in each layer before its activation.
        batch_norm: normalise each feature over the rows instead.
        late_action: hidden layers that observations pass in networks of observations and actions before the actions
            join; of these networks, only those are normalised over the rows then (Lillicrap et al., arXiv 1509.02971,
            sections 3 and 7). With a memory, actions join behind it.
        dropout: share of each layer's features that is dropped while learning.
        initial_log_std: of a Gaussian policy, the logarithm of its standard deviation at first.

    Raises:
        ValueError: there is no such device here, the feature extractor does not fit the observations, there is nothing
            to normalise in them, or there are fewer hidden layers than actions are to come after.
    """

    context = ("device", "envs")
    other_names = ACTOR_NAMES

    hidden_sizes: Sequence[Count] = (256, 256)
    activation: Activation = "relu"
    initialisation: Initialisation = "uniform"
    shared_body: bool = False
    memory: MemoryKind | None = None
    memory_size: Count = 128
    feature_extractor: ExtractorKind = "auto"
    normalize_observations: bool = False
    dueling: bool = False
    dueling_size: Count | None = None
    noisy: bool = False
    noisy_sigma: Positive = 0.5
    layer_norm: bool = False
    batch_norm: bool = False
    late_action: CountOrZero = 0
    dropout: UnitInterval = 0.0
    initial_log_std: float = 0.0

    def __init__(self, device: torch.device | str, envs: Spaces) -> None:
        super().__init__()
        if self.late_action > len(self.hidden_sizes):
            raise ValueError(
                f"{type(self).__name__}: late_action must be at most the number of hidden_sizes, "
                f"{len(self.hidden_sizes)}, got {self.late_action}"
            )
        self.device = find_device(device)
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self.normalization = ObservationNormalization(self.observation_space) if self.normalize_observations else None
        """Of observations; None where networks get them as they are."""
        self.networks = nn.ModuleDict()
        """What the algorithm made, by name."""
        self.generator = make_generator(self.device)
        """Of the noise inside networks."""
        self._shared: AnyBody | None = None
        self._stored: list[RecurrentBody] = []
        """The bodies of networks that act, whose states are stored side by side."""
        self.to(self.device)

    # Made by algorithms

    def make(
        self,
        name: str,
        head: Head,
        *,
        acts: bool = False,
        codec: ActionCodec | None = None,
        beside: int = 0,
        layers: Layers | None = None,
    ) -> Network:
        """A network under a name.

        Args:
            name: of the network, in the actor's weights.
            head: what the network is to make of features.
            acts: whether it acts in the environments; the state of its memory is then stored with transitions.
            codec: of the actions that the network takes beside observations; None takes observations alone.
            beside: how many numbers it takes beside observations instead of an action.
            layers: what its hidden layers have that is not as the user chose for all networks.

        Raises:
            ValueError: there is a network of this name.
        """
        return self._named(name, self._network(head, acts, codec, beside, layers))

    def make_ensemble(
        self,
        name: str,
        head: Head,
        count: int,
        *,
        acts: bool = False,
        codec: ActionCodec | None = None,
        beside: int = 0,
        layers: Layers | None = None,
    ) -> Ensemble:
        """Networks of one kind under a name; as :meth:`make`."""
        networks = [self._network(head, acts, codec, beside, layers) for _ in range(count)]
        return self._named(name, Ensemble(networks))

    def make_apart(self, name: str, head: Head, normalization: ObservationNormalization) -> Network:
        """A network of one observation under a name, without memory, noise, dropout or layers that others have.

        Args:
            name: of the network, in the actor's weights.
            head: what the network is to make of features.
            normalization: of its observations, in the place of the actor's; of pixels, too.

        Raises:
            ValueError: there is a network of this name.
        """
        body = Body(
            normalised_space(self.observation_space, normalization.largest),
            self.hidden_sizes,
            self.activation,
            self.initialisation,
            extractor=self.feature_extractor,
            normalization=normalization,
        )
        return self._named(name, Network(body, head.build(body.output_size, self)))

    def add(self, name: str, network: nn.Module, *, acts: bool = False) -> None:
        """Register a network that :meth:`make` did not make, such as one around a target; as :meth:`make`."""
        self._named(name, network)
        for body in network.modules():
            if acts and isinstance(body, RecurrentBody):
                # A copy is stored apart from the body that it was made of.
                body.stored_at = None
                self._store_state_of(body)

    def _named(self, name: str, network: NetworkT) -> NetworkT:
        if name in self.networks:
            raise ValueError(f"the actor has a network {name!r} already; give each a name")
        self.networks[name] = network
        return network.to(self.device)

    def _network(
        self, head: Head, acts: bool, codec: ActionCodec | None, beside: int, layers: Layers | None
    ) -> Network:
        size = beside if codec is None else codec.size
        body: AnyBody
        if not size:
            body = self._body_of_observations(acts, layers)
            return Network(body, head.build(body.output_size, self))
        before, behind = self.hidden_sizes[: self.late_action], self.hidden_sizes[self.late_action :]
        # Without layers before the action, all that is asked of them is asked of those behind it.
        body = self._body(before, layers if before else None) if self.memory is None else self._recurrent_body(layers)
        if acts:
            self._store_state_of(body)
        # A memory has seen the layers of the body already; one more joins what it makes with the action.
        sizes = behind if self.memory is None else (body.output_size,)
        if before:
            layers = Layers(batch_norm=False) if layers is None else {**layers, "batch_norm": False}
        joint = self.hidden_layers(body.output_size + size, sizes, layers)
        return Network(body, head.build(joint.output_size, self), joint, codec)

    def _body_of_observations(self, acts: bool, layers: Layers | None) -> AnyBody:
        body = self._shared
        if body is None:
            body = self._body(self.hidden_sizes, layers) if self.memory is None else self._recurrent_body(layers)
        if self.shared_body:
            self._shared = body
        if acts:
            self._store_state_of(body)
        return body

    def _store_state_of(self, body: AnyBody) -> None:
        if isinstance(body, RecurrentBody) and body.stored_at is None:
            before = self._stored_size
            body.stored_at = slice(before, before + body.state_size)
            self._stored.append(body)

    @property
    def _stored_size(self) -> int:
        return sum(body.state_size for body in self._stored)

    def _body(self, hidden_sizes: Sequence[int], layers: Layers | None = None) -> Body:
        return Body(
            self.observation_space,
            hidden_sizes,
            self.activation,
            self.initialisation,
            extractor=self.feature_extractor,
            normalization=self.normalization,
            **self._layers(layers),
        )

    def _layers(self, others: Layers | None) -> Layers:
        """What fully connected layers are made with."""
        chosen: Layers = {
            "layer_norm": self.layer_norm,
            "batch_norm": self.batch_norm,
            "dropout": self.dropout,
            "noisy": self.noisy,
            "noisy_sigma": self.noisy_sigma,
            "generator": self.generator,
        }
        return chosen if others is None else {**chosen, **others}

    def _recurrent_body(self, layers: Layers | None) -> RecurrentBody:
        assert self.memory is not None
        return RecurrentBody(self._body(self.hidden_sizes, layers), self.memory, self.memory_size)

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """A fully connected layer of a head, noisy where the user wants it."""
        return linear_layer(inputs, outputs, noisy=self.noisy, generator=self.generator, sigma=self.noisy_sigma)

    def hidden_layers(self, inputs: int, sizes: Sequence[int], layers: Layers | None = None) -> MLP:
        """Fully connected layers of so many units, as those of the body but for what ``layers`` says."""
        return MLP(inputs, sizes, self.activation, self.initialisation, **self._layers(layers))

    def acting(self, *, noisy: bool) -> AbstractContextManager[Any]:
        """Let networks act: layers of users' modules as in evaluation, noisy ones with noise where it is wanted.

        It is torch's inference mode too, in which there is no dropout.
        """
        layers = self._layers_of_users if noisy else self._layers_of_users + self._noisy_layers
        return _in_evaluation(layers) if layers else torch.inference_mode()

    @cached_property
    def _noisy_layers(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, NoisyLinear) and module.training]

    @cached_property
    def _layers_of_users(self) -> list[nn.Module]:
        # What of ours learns otherwise than it acts knows by itself which of both it does.
        if isinstance(self.feature_extractor, str):
            return []
        bodies = [module for module in self.modules() if isinstance(module, Body)]
        return [layer for body in bodies for layer in body.features.modules() if layer.training]

    # What networks take

    def view(self, obs: Any, rhs: Tensor | None = None, done: Tensor | None = None) -> Observations | ActingView:
        """Observations (B, *obs) of one step, and with a memory its states (B, hidden) before it and DONE (B, 1)."""
        if self.memory is None:
            return Observations(obs)
        assert rhs is not None
        assert done is not None
        return ActingView(obs, rhs, done, self._stored)

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """(E, hidden) zeros: the states of the networks that act before their first observation; None without any."""
        if self.memory is None:
            return None
        return torch.zeros((num_envs, self._stored_size), device=self.device)

    # What on-policy storages ask

    def value(self, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        """(B, 1): the value of observations (B, *obs); without a memory, ``rhs`` and ``done`` say nothing."""
        return self._valued("value", obs, rhs, done)

    def intrinsic_value(self, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        """As :meth:`value`, of intrinsic rewards."""
        return self._valued("intrinsic_value", obs, rhs, done)

    def _valued(self, network: str, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        with self.acting(noisy=True):
            value: Tensor = self.networks[network](self.view(obs, rhs, done))
        return value

    def evaluate_actions(self, obs: Any, rhs: Any, done: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities of actions (T, B, *action) and values of observations (T, B, *obs), both (T, B, 1).

        ``rhs`` (B, hidden) is the memory before the first of them, None without a memory; ``done`` is (T, B, 1).
        """
        batch = {OBS: obs, DONE: done, ACT: action} | ({} if rhs is None else {RHS: rhs})
        with self.acting(noisy=True):
            view = Steps(Unrolling(batch))
            log_prob: Tensor = self.networks["policy"](view).log_prob(flat(action))
            value: Tensor = self.networks["value"](view)
            return log_prob.view(done.shape), value.view(done.shape)

    # What is shown

    @property
    def reads(self) -> str:
        """How observations are read, in words."""
        text = described(self.observation_space, self.feature_extractor)
        return text if self.normalization is None else f"{text}; normalised"

    def extra_repr(self) -> str:
        """What torch shows of the actor beside its networks."""
        return f"observations: {self.reads}"


@contextmanager
def _in_evaluation(layers: list[nn.Module]) -> Iterator[None]:
    for layer in layers:
        layer.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for layer in layers:
            layer.training = True
