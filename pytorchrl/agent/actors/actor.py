"""The networks of an agent: the user chooses their bodies, the algorithm their heads."""

import keyword
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import ActionMask
from pytorchrl.agent.actors.bodies import Body, RecurrentBody, VectorBody, flat
from pytorchrl.agent.actors.body_kinds import BodyKind, check_bodies, make_hidden_layers
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.encoders import ExtractorKind, described, named, output_size_of
from pytorchrl.agent.actors.float32_conversion import Float32Conversion
from pytorchrl.agent.actors.layers.linear_layers import Initialisation, NoisyLinear, linear_layer
from pytorchrl.agent.actors.layers.mlp import Activation, Layers
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, normalised_space
from pytorchrl.agent.actors.network import Ensemble, NamedNetworks, Network
from pytorchrl.agent.actors.per_network import (
    check_late_action,
    check_per_network,
    settings_of_network,
    values_of_setting,
)
from pytorchrl.agent.actors.stacked_memory import MemoryChoice, check_memories, make_memory
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.agent.actors.user_layers import drawing_from, in_evaluation, user_layers
from pytorchrl.agent.actors.view import ActingView, AnyBody, Observations, SequenceSteps
from pytorchrl.agent.device import check_default_dtype, find_device, make_generator
from pytorchrl.agent.global_generators import global_generator
from pytorchrl.agent.other_names import ACTOR_METHODS, ACTOR_NAMES
from pytorchrl.agent.other_names.calls import answering_calls
from storages.component.factory import Component
from storages.component.hyper_parameters import Count, CountOrZero, HalfOpenUnitInterval, Positive
from storages.component.other_names import answer_missing
from storages.transition import ACT, DONE, OBS, RHS, Batch

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class Spaces(Protocol):
    """The spaces that an actor needs of the environments."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Observation space of one environment."""

    @property
    def action_space(self) -> gym.Space[Any]:
        """Action space of one environment."""


class Head(Protocol):
    """The specification of a network's output layers, which are built once their input size is known."""

    def build(self, features: int, actor: "Actor") -> nn.Module:
        """Return the module from features (N, features) to the output."""


def answer_call(cls: type[Component], wrong: str, *_: object) -> str:
    """Return the message about a call of an actor's class without its device and environments."""
    return f"{wrong}{cls.usage()}"


class Actor(Component, nn.Module):
    """The networks of an agent, which the algorithm makes as it needs them.

    Args:
        hidden_sizes: units of the fully connected layers after the feature extractor, or features of each residual
            block, which are equal.
        body: hidden layers of these sizes: "mlp", fully connected ones; "simba" (Lee et al., arXiv 2410.09754) or
            "bronet" (Nauman et al., arXiv 2405.16158), residual networks with layer normalisation, ReLU and initial
            weights of their own; or a class or function of (input_size, hidden_sizes) that makes a module from
            (B, input_size) to (B, n).
        activation: activation function after each layer of "mlp".
        initialisation: of weights of feature extractor and "mlp", "orthogonal" or torch's "uniform".
        shared_body: let networks of observations alone, such as policy and value function, share all but their heads.
        memory: recurrent layer after the body: "gru", "lstm", a class or function of (input_size, size) that makes a
            module with the interface of ``torch.nn.GRUCell`` or ``torch.nn.GRU``, or a sequence of these, one for each
            layer, the first first; None for feed-forward networks. Each network has its own, unless the body is shared.
            Recurrent states of the networks that act are stored with transitions (RHS); others begin each sequence with
            zeros, so that a burn-in helps them (Ni et al., arXiv 2110.05038).
        memory_size: units of each recurrent layer.
        memory_layers: number of recurrent layers, each of the features of the one before; 1 where ``memory`` lists
            them.
        feature_extractor: "auto", "mlp", "nature_cnn", "small_cnn", "impala_cnn", the same without the fully connected
            layer, which ``hidden_sizes`` or dueling streams replace ("nature_convolutions", "small_convolutions",
            "impala_convolutions", "wide_impala_convolutions" with four times its channels, "drq_convolutions", and
            "data_efficient_convolutions" of data-efficient Rainbow), "embedding", "identity", or a module class or
            function of the observation space; "auto" takes a CNN for images, the small one where they are too small for
            Nature's, and one-hot or flattened vectors for all else.
        normalize_observations: subtract the running mean of the observations collected so far, divide by their standard
            deviation, and clip to [-10, 10]. All copies of the environment, evaluation and target networks share these
            statistics, which are saved with the weights. Without environments, they are those of the data set.
        dueling: split Q-values into state value and advantages (Wang et al., arXiv 1511.06581).
        dueling_size: units of the hidden layer of each of the two streams; None takes the number of features.
        noisy: fully connected layers with learnt noise (NoisyNet, Fortunato et al., arXiv 1706.10295). With importance
            ratios, as of PPO and IMPALA, noise of updates is not that of acting, so that ratios differ from 1 at once.
        noisy_sigma: initial scale of that noise (sigma_0): a weight's standard deviation times the root of the number
            of a layer's inputs.
        layer_norm: layer normalisation before each activation.
        batch_norm: batch normalisation before each activation.
        late_action: hidden layers of a Q(s, a) network before the action is concatenated; if there are any,
            ``batch_norm`` applies to these only (Lillicrap et al., arXiv 1509.02971, sections 3 and 7). With a memory,
            the action is concatenated to its output.
        dropout: dropout probability of each layer's features in updates, below 1.
        initial_log_std: initial logarithm of the standard deviation of a Gaussian policy.
        per_network: settings of single networks, by the names that the algorithm gives them, in place of those of all:
            ``per_network={"critics": {"hidden_sizes": (400, 300), "activation": "tanh"}}``. All of the above but
            ``shared_body`` and ``normalize_observations``; a memory only where the actor has one.
        action_mask: name of the part of dict observations that says which discrete actions are allowed, other than 0
            for each that is. Only those are chosen, and only those count in targets; networks do not take the part as
            an input. None allows all.

    Raises:
        DefaultDtypeError: torch's default dtype is not float32.
        ValueError: there is no such device here, the feature extractor does not fit the observations, there is nothing
            to normalise in them, ``late_action`` exceeds the number of hidden layers, or the action mask does not fit
            observations or actions.
    """

    context = ("device", "envs")
    other_names, other_methods = ACTOR_NAMES, ACTOR_METHODS
    role, example = "actor_factory", "hidden_sizes=(256, 256)"

    hidden_sizes: Sequence[Count] = (256, 256)
    body: BodyKind = "mlp"
    activation: Activation = "relu"
    initialisation: Initialisation = "uniform"
    shared_body: bool = False
    memory: MemoryChoice | None = None
    memory_size: Count = 128
    memory_layers: Count = 1
    feature_extractor: ExtractorKind = "auto"
    normalize_observations: bool = False
    dueling: bool = False
    dueling_size: Count | None = None
    noisy: bool = False
    noisy_sigma: Positive = 0.5
    layer_norm: bool = False
    batch_norm: bool = False
    late_action: CountOrZero = 0
    dropout: HalfOpenUnitInterval = 0.0
    initial_log_std: float = 0.0
    per_network: Mapping[str, Mapping[str, Any]] | None = None
    action_mask: str | None = None

    if not TYPE_CHECKING:  # for which each name would exist

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name not in self.other_methods:
                    raise
            return answer_missing(self, name)

    @classmethod
    def usage(cls) -> str:
        """Return how it is given to a run, as the end of a message about arguments that do not fit."""
        return f"{super().usage()}, with hyper-parameters by name; the environments have the spaces"

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check hidden layers and memory, and the settings of single networks."""
        super().check_hyper_parameters(hyper_parameters)
        per_network, shared_body = hyper_parameters["per_network"], hyper_parameters["shared_body"]
        check_per_network(per_network or {}, cls, shared_body)
        check_bodies(cls.__name__, hyper_parameters, cls.activation)
        check_memories(cls.__name__, hyper_parameters)

    @answering_calls(answer_call, by_name=False)
    def __init__(self, device: torch.device | str, envs: Spaces) -> None:
        super().__init__()
        check_late_action(self)
        check_default_dtype(type(self).__name__)
        self.device = find_device(device)
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        name = self.action_mask
        self.mask = None if name is None else ActionMask(name, self.observation_space, self.action_space)
        """Reads the allowed actions from observations; None where all are allowed."""
        self.encoded_space = self.observation_space if self.mask is None else self.mask.encoded_space
        """Observation space of one environment without the action mask, as networks take it."""
        self.normalization = ObservationNormalization(self.encoded_space) if self.normalize_observations else None
        """Observation normalisation; None where networks take observations as they are."""
        normalised = () if self.normalization is None else self.normalization.names
        extractors = values_of_setting(self, "feature_extractor")
        takes_own = not all(isinstance(named(extractor), str) for extractor in extractors)
        self._conversion = Float32Conversion(self.encoded_space, normalised, converts=not takes_own)
        self.networks = NamedNetworks()
        """The networks that the algorithm made, by name."""
        self.generator = make_generator(self.device)
        """Random generator of the noise inside networks."""
        self.evaluated_policy: Callable[[SequenceSteps], Any] | None = None
        """Gives the distribution that :meth:`evaluate_actions` evaluates; None for the network named "policy"."""
        self._users_generator = make_generator(self.device)
        self._shared: AnyBody | None = None
        self._stored: list[RecurrentBody] = []
        """The recurrent bodies of networks that act; their states are stored as one concatenated tensor."""
        self._stored_size = 0
        """Numbers of that tensor for one environment."""
        self.to(self.device)

    # Called by algorithms

    def make(
        self,
        name: str,
        head: Head,
        *,
        acts: bool = False,
        codec: ActionCodec | None = None,
        beside: int = 0,
        vectors: int = 0,
        layers: Layers | None = None,
    ) -> Network:
        """Make and register a network.

        Args:
            name: of the network, in the actor's state dict.
            head: specification of the output layers.
            acts: whether it acts in the environments; its recurrent state is then stored with transitions.
            codec: of the actions that the network takes in addition to observations; None takes only observations.
            beside: size of a vector that it takes in addition to observations, instead of an action.
            vectors: size of vectors, such as latent states, that it takes in place of observations:
                ``network(Observations(latents), action)``; it has no memory. 0 for observations.
            layers: settings of its hidden layers that override those of the user.

        Raises:
            ValueError: a network of this name exists already.
        """
        with settings_of_network(self, name):
            return self._named(name, self._network(head, acts, codec, beside, vectors, layers))

    def make_ensemble(
        self,
        name: str,
        head: Head,
        count: int,
        *,
        acts: bool = False,
        codec: ActionCodec | None = None,
        beside: int = 0,
        vectors: int = 0,
        layers: Layers | None = None,
    ) -> Ensemble:
        """Make and register an ensemble of ``count`` networks; other arguments as of :meth:`make`."""
        with settings_of_network(self, name):
            networks = [self._network(head, acts, codec, beside, vectors, layers) for _ in range(count)]
        return self._named(name, Ensemble(networks))

    def make_of_pairs(self, name: str, head: Head) -> Network:
        """Make and register a network of two observations, whose features are concatenated before its hidden layers.

        It takes a view of the first observations, and the features of the second by its body:
        ``network(rows.now, rows.next.features(network.body))``. With a memory, features are the memory's output.

        Args:
            name: of the network, in the actor's state dict.
            head: specification of the output layers.

        Raises:
            ValueError: a network of this name exists already.
        """
        with settings_of_network(self, name):
            body = self._body(()) if self.memory is None else self._recurrent_body(None)
            sizes = self.hidden_sizes if self.memory is None else (body.output_size,)
            joint = self.hidden_layers(2 * body.output_size, sizes)
            return self._named(name, Network(body, head.build(output_size_of(joint), self), joint))

    def make_apart(self, name: str, head: Head, normalization: ObservationNormalization) -> Network:
        """Make and register a plain network: without memory, noise, dropout or normalising layers.

        Args:
            name: of the network, in the actor's state dict.
            head: specification of the output layers.
            normalization: of its observations, in place of the actor's; it may include pixels.

        Raises:
            ValueError: a network of this name exists already.
        """
        with settings_of_network(self, name):
            body = Body(
                normalised_space(self.encoded_space, normalization.largest),
                self.hidden_sizes,
                self.activation,
                self.initialisation,
                extractor=self.feature_extractor,
                normalization=normalization,
                action_mask=self.mask,
            )
            return self._named(name, Network(body, head.build(body.output_size, self)))

    def make_encoder(self, name: str) -> Network:
        """Make and register the feature extractor alone, for networks of ``vectors`` that share its features.

        ``latents = encoder(rows.now)`` is (N, features), computed once for all networks that take
        ``Observations(latents)``; ``latents.detach()`` leaves the encoder to the losses of others. It has no memory.

        Args:
            name: of the network, in the actor's state dict.

        Raises:
            ValueError: a network of this name exists already.
        """
        with settings_of_network(self, name):
            return self._named(name, Network(self._body(()), nn.Identity()))

    def make_body(self, name: str, normalization: nn.Module) -> Body:
        """Make and register the layers from observations to features, without memory and head.

        Args:
            name: of the network, in the actor's state dict.
            normalization: converts its observations, in place of the actor's normalisation.

        Raises:
            ValueError: a network of this name exists already.
        """
        with settings_of_network(self, name):
            return self._named(name, self._body(self.hidden_sizes, normalization=normalization))

    def reserve_state(self, size: int) -> slice:
        """Reserve numbers of the stored recurrent state, for a memory that the algorithm computes itself.

        The algorithm reads them by :meth:`ActingView.state`, and sets them by :meth:`ActingView.set_state_after`.

        Args:
            size: how many for one environment.

        Returns:
            Their slice of a recurrent state (RHS).

        Raises:
            ValueError: the actor has no memory, so that no states are stored.
        """
        if self.memory is None:
            raise ValueError(f"{type(self).__name__}: without a memory no recurrent states are stored")
        begin = self._stored_size
        self._stored_size += size
        return slice(begin, self._stored_size)

    def add(self, name: str, network: nn.Module, *, acts: bool = False) -> None:
        """Register a network that :meth:`make` did not make, such as one around a target network."""
        self._named(name, network)
        for body in network.modules():
            if acts and isinstance(body, RecurrentBody):
                # The state of a copied body is stored separately from that of the original.
                body.stored_at = None
                self._store_state_of(body)

    def _named(self, name: str, network: NetworkT) -> NetworkT:
        if name in self.networks:
            raise ValueError(f"the actor already has a network named {name!r}; give each its own name")
        if keyword.iskeyword(name):
            raise ValueError(f"a network is named {name!r}, a keyword of Python, by which torch.export cannot name it")
        self.networks[name] = network
        return network.to(self.device)

    def _network(
        self, head: Head, acts: bool, codec: ActionCodec | None, beside: int, vectors: int, layers: Layers | None
    ) -> Network:
        size = beside if codec is None else codec.size
        body: AnyBody
        if not size:
            body = (
                VectorBody(self.hidden_layers(vectors, self.hidden_sizes, layers))
                if vectors
                else self._body_of_observations(acts, layers)
            )
            built = head.build(body.output_size, self)
            return Network(body, built, action_mask=None if vectors else self.mask)
        # A network may have settings of its own.
        check_late_action(self)
        before, behind = self.hidden_sizes[: self.late_action], self.hidden_sizes[self.late_action :]
        # Without hidden layers before the action, the overrides apply only to those after it.
        first_layers = layers if before else None
        if vectors:
            body = VectorBody(self.hidden_layers(vectors, before, first_layers))
        elif self.memory is None:
            body = self._body(before, first_layers)
        else:
            body = self._recurrent_body(layers)
        if acts:
            self._store_state_of(body)
        # All hidden layers come before a memory; one more combines its output with the action.
        sizes = behind if self.memory is None or vectors else (body.output_size,)
        if before:
            layers = Layers(batch_norm=False) if layers is None else {**layers, "batch_norm": False}
        joint = self.hidden_layers(body.output_size + size, sizes, layers)
        return Network(body, head.build(output_size_of(joint), self), joint, codec)

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
            body.stored_at = self.reserve_state(body.state_size)
            self._stored.append(body)

    def _body(
        self, hidden_sizes: Sequence[int], layers: Layers | None = None, normalization: nn.Module | None = None
    ) -> Body:
        return Body(
            self.encoded_space,
            hidden_sizes,
            self.activation,
            self.initialisation,
            extractor=self.feature_extractor,
            normalization=self.normalization if normalization is None else normalization,
            action_mask=self.mask,
            kind=self.body,
            **self._layers(layers),
        )

    def _layers(self, others: Layers | None) -> Layers:
        """Return the settings of fully connected layers: the user's, overridden by others."""
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
        body = self._body(self.hidden_sizes, layers)
        return RecurrentBody(body, make_memory(self.memory, self.memory_layers, body.output_size, self.memory_size))

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """Make a fully connected layer of a head, noisy where the user wants it."""
        return linear_layer(inputs, outputs, noisy=self.noisy, generator=self.generator, sigma=self.noisy_sigma)

    def hidden_layers(self, inputs: int, sizes: Sequence[int], layers: Layers | None = None) -> nn.Module:
        """Make hidden layers of these sizes, with the body's settings unless ``layers`` overrides them."""
        return make_hidden_layers(
            self.body, inputs, sizes, self.activation, self.initialisation, **self._layers(layers)
        )

    def acting(self, *, noisy: bool, noise: torch.Generator | None = None) -> AbstractContextManager[Any]:
        """Return a context in which networks act: inference mode, with users' modules in evaluation mode.

        Noisy layers draw noise where ``noisy`` is true. There is no dropout in inference mode.

        Args:
            noisy: whether noisy layers draw noise.
            noise: draws it, on the actor's device; None for the actor's own generator.
        """
        layers = self._user_layers if noisy else self._user_layers + self._noisy_layers
        acting = in_evaluation(layers) if layers else torch.inference_mode()
        return acting if noise is None or not noisy else drawing_from(noise, self.generator, acting)

    def updating(self) -> AbstractContextManager[None]:
        """Return a context of updates, in which users' modules draw from the actor's generator.

        So dropout of torch follows the run's seed, and a resumed run continues it.
        """
        return global_generator(self._users_generator) if self._user_layers else nullcontext()

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The random generators to seed and save."""
        return (self.generator, self._users_generator) if self._user_layers else (self.generator,)

    @cached_property
    def _noisy_layers(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, NoisyLinear) and module.training]

    @cached_property
    def _user_layers(self) -> list[nn.Module]:
        return [layer for layer in user_layers(self.networks) if layer.training]

    # Inputs of networks

    def view(self, obs: Any, rhs: Tensor | None = None, done: Tensor | None = None) -> Observations | ActingView:
        """Return a view of one step: observations (B, *obs), and with a memory states (B, hidden) and DONE (B, 1)."""
        converted = self._conversion(obs)
        if self.memory is None:
            return Observations(converted, obs)
        assert rhs is not None
        assert done is not None
        return ActingView(converted, rhs, done, self._stored)

    def with_float32_observations(self, batch: Batch) -> Batch:
        """Return a batch whose float64 observations are float32, converted once for all networks.

        They stay as they are where they are normalised first, or where a user's encoder takes them. It warns where
        rounding loses more than the spread of a number.
        """
        return self._conversion.of_batch(batch)

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """Return the initial recurrent states of the networks that act, zeros (E, hidden); None without a memory."""
        if self.memory is None:
            return None
        return torch.zeros((num_envs, self._stored_size), device=self.device)

    # Called by on-policy storages

    def value(self, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        """Return state values (B, 1) of observations (B, *obs); without a memory, ``rhs`` and ``done`` are not used."""
        return self._valued("value", obs, rhs, done)

    def intrinsic_value(self, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        """Return state values of intrinsic rewards, as :meth:`value`."""
        return self._valued("intrinsic_value", obs, rhs, done)

    def _valued(self, network: str, obs: Any, rhs: Tensor | None, done: Tensor) -> Tensor:
        with self.acting(noisy=True):
            value: Tensor = self.networks[network](self.view(obs, rhs, done))
        return value

    def evaluate_actions(self, obs: Any, rhs: Any, done: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log probabilities of actions (T, B, *action) and values of observations (T, B, *obs), both (T, B, 1).

        ``rhs`` (B, hidden) is the recurrent state before the first step, None without a memory; ``done`` is (T, B, 1).
        """
        batch = {OBS: obs, DONE: done, ACT: action} | ({} if rhs is None else {RHS: rhs})
        with self.acting(noisy=True):
            view = SequenceSteps(Unrolling(batch))
            policy = self.networks["policy"](view) if self.evaluated_policy is None else self.evaluated_policy(view)
            log_prob: Tensor = policy.log_prob(flat(action))
            value: Tensor = self.networks["value"](view)
            return log_prob.view(done.shape), value.view(done.shape)

    # Display

    @property
    def reads(self) -> str:
        """Description of the feature extractor, for display."""
        text = described(self.encoded_space, self.feature_extractor)
        return text if self.normalization is None else f"{text}; normalised"

    def extra_repr(self) -> str:
        """Return what torch shows of the actor in addition to its networks."""
        return f"observations: {self.reads}"
