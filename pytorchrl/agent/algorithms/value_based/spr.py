"""SPR: Rainbow that also predicts its own representations of the observations that follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.heads.values import DuelingStreams
from pytorchrl.agent.actors.layers.linear_layers import linear_layer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.algorithms.actor_critic.paths import FirstSteps, field_of
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.rainbow import SMALL, Rainbow
from storages.component.factory import Factory, make_factory
from storages.component.hyper_parameters import Count, NonNegative
from storages.component.schedule import LinearSchedule
from storages.off_policy.per_buffer import PERBuffer
from storages.sequence_settings import Sequences
from storages.transforms import RandomIntensity, RandomShift
from storages.transition import OBS


class SPR(Rainbow):
    """Schwarzer et al., "Data-Efficient Reinforcement Learning with Self-Predictive Representations" (2007.05929).

    The first step of a sequence is learnt from as by Rainbow, with the storage's n-step return; the observations of the
    others are what is predicted, so that the storage has ``sequences=Sequences(horizon + 1)``. A representation is the
    output of the actor's body, scaled to [0, 1]; the transition model is convolutional where these are maps, as of
    "nature_convolutions" without hidden layers, and else of two linear layers. The projection is the first layer of the
    dueling streams, where the actor has them. The target network gives the targets of both losses; with data
    augmentation by the storage's ``transforms`` it is copied in each update (:meth:`paper`), without it the authors
    have ``polyak=0.99``.

    Args:
        horizon: observations that are predicted after the first one (K); fewer where an episode or sequence ends.
        prediction_weight: weight of their loss (lambda).

    Raises:
        ValueError: the actor has a memory.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", multi_step_rows=True)}

    horizon: Count = 5
    prediction_weight: NonNegative = 2.0
    lr = 1e-4
    start_steps = 2_000
    update_every = 1
    num_mini_batch = 2
    target_update_interval = 1
    max_grad_norm = 10.0

    def build(self) -> None:
        """Make the Q-network, its target, the transition model and the predictor."""
        if self.actor.memory is not None:
            raise ValueError(f"{type(self).__name__} encodes single observations; give the actor memory=None")
        self.q = self.actor.make("q", self.head(), acts=True)
        body, head = self._parts_of(self.q)
        assert isinstance(self.action_space, spaces.Discrete)
        self.num_actions = int(self.action_space.n)
        self.transition = TransitionModel(body.output_size, self.num_actions, _maps_of(body))
        self.predictor = linear_layer(head.projected_size, head.projected_size)
        self.actor.add("transition", self.transition)
        self.actor.add("predictor", self.predictor)
        self.trained = self.train("q", self.q, self.transition, self.predictor)
        self.q_target: Network = self.target(self.q, every="target_update_interval")

    def head(self) -> Head:
        """Return the head of the Q-network, which also projects representations."""
        return SelfPredictiveHead(super().head())

    def losses(self, rows: Rows) -> Losses:
        """Return Rainbow's loss of the first steps, plus that of the predictions (section 2.2)."""
        window = FirstSteps(rows, self.horizon + 1)
        first = self.read(window.transitions())
        of_values = super().losses(first)
        error = self.prediction_error(window, first)
        predictions = self.reduced(first.weighted_mean(error), first)
        loss = of_values.of[self.trained] + self.prediction_weight * predictions
        metrics = {**of_values.metrics, "prediction_error": error.detach().mean()}
        assert of_values.errors is not None
        return Losses({self.trained: loss}, metrics, window.per_row(of_values.errors))

    def prediction_error(self, window: FirstSteps, first: Rows) -> Tensor:
        """Return the errors (B, 1): 1 minus the cosine similarity, summed over the following steps of the episode.

        Args:
            window: the first step of each sequence, and those that are predicted.
            first: the first steps.
        """
        alive, actions = window.alive[1:], F.one_hot(window.action[:-1, :, 0], self.num_actions)
        if not len(alive):
            return torch.zeros_like(first.reward)
        (body, head), (target_body, target_head) = self._parts_of(self.q), self._parts_of(self.q_target)
        latent = in_unit_range(first.now.features(body))
        latents: list[Tensor] = []
        for action in actions:
            latent = self.transition(latent, action.to(latent.dtype))
            latents.append(latent)
        predicted = self.predictor(head.project(torch.cat(latents)))
        with torch.no_grad():
            following = self.actor.view(field_of(window.all_rows, OBS, window.rows[1:].flatten()))
            target = target_head.project(in_unit_range(following.features(target_body)))
        error = 1 - F.cosine_similarity(predicted, target, dim=1)
        return (alive * error.view_as(alive)).sum(0)

    @staticmethod
    def _parts_of(network: Network) -> tuple[Any, Any]:
        return network.body, network.head

    @classmethod
    def paper(cls, capacity: int = 100_000, num_envs: int = 1) -> Preset:
        """The paper's settings for Atari with clipped rewards, stacks of 4 frames, augmentation and 100,000 steps.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        return Preset(
            algo_factory=make_factory(cls, (), {}),
            actor_factory=OffPolicyActor.create_factory(
                feature_extractor="nature_convolutions", hidden_sizes=(), dueling=True, dueling_size=256, noisy=True
            ),
            storage_factory=replay_of_sequences(capacity // num_envs, n_step=10, transforms={OBS: AUGMENTATION}),
        )

    @classmethod
    def small(cls, capacity: int = 100_000, num_envs: int = 1) -> Preset:
        """For small observations, returns from 0 to 100, and about 20,000 transitions; arguments as of :meth:`paper`.

        The settings of :meth:`Rainbow.small`, with an update after each transition, and without data augmentation.
        """
        changed = {"update_every": 1, "num_mini_batch": 1, "polyak": 0.99, "target_update_interval": 1}
        return Preset(
            algo_factory=make_factory(cls, (), SMALL | changed),
            actor_factory=OffPolicyActor.create_factory(hidden_sizes=(128,), dueling=True, noisy=True),
            storage_factory=replay_of_sequences(capacity // num_envs, n_step=3),
        )


AUGMENTATION = RandomShift(4, by_step=True), RandomIntensity(0.05, by_step=True)
"""Transforms of Atari's frames in the paper."""


def replay_of_sequences(size: int, n_step: int, transforms: Mapping[str, Any] | None = None) -> Factory[PERBuffer]:
    """Return the storage of SPR and BBF: prioritised sequences of six steps."""
    return PERBuffer.create_factory(
        size,
        n_step=n_step,
        alpha=0.5,
        beta=LinearSchedule(0.4, 1.0),
        default_error="largest",
        weights_over="batch",
        sequences=Sequences(6),
        transforms=transforms,
    )


def in_unit_range(latent: Tensor) -> Tensor:
    """Scale each row of representations (N, size) to [0, 1], as MuZero does."""
    low, high = latent.amin(1, keepdim=True), latent.amax(1, keepdim=True)
    return (latent - low) / (high - low + 1e-5)


@dataclass(frozen=True)
class SelfPredictiveHead:
    """A head of values of representations in [0, 1], whose first layer is the projection of predictions, too.

    Args:
        values: of the values; without dueling streams it has one layer, and the projection is a separate layer.
    """

    values: Head

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to the output of ``values``."""
        values: Any = self.values.build(features, actor)
        return _SelfPredictiveValues(values, None if actor.dueling else actor.linear(features, features))


class _SelfPredictiveValues(nn.Module):
    def __init__(self, values: Any, projection: nn.Module | None) -> None:
        super().__init__()
        self.values, self.projection = values, projection
        self.projected_size = sum(layer.out_features for layer in self._layers)

    def forward(self, features: Tensor) -> Any:
        return self.values(in_unit_range(features))

    def project(self, latent: Tensor) -> Tensor:
        """Map representations (N, features) in [0, 1] to (N, projected_size)."""
        return torch.cat([layer(latent) for layer in self._layers], dim=1).relu()

    @property
    def _layers(self) -> list[Any]:
        if self.projection is not None:
            return [self.projection]
        streams: DuelingStreams = self.values.numbers
        return [streams.value_hidden, streams.advantage_hidden]


class TransitionModel(nn.Module):
    """From representations and actions to the next representations, by two layers (section 2.3).

    There is no batch normalisation, as in the authors' later code (that of arXiv 2305.19452).

    Args:
        size: of a representation.
        actions: number of actions.
        maps: channels, height and width of representations that are maps, where the layers are convolutions and an
            action is a plane of ones; else None.
    """

    def __init__(self, size: int, actions: int, maps: tuple[int, int, int] | None) -> None:
        super().__init__()
        self.first: nn.Module
        self.second: nn.Module
        if maps is None:
            self.first, self.second = linear_layer(size + actions, size), linear_layer(size, size)
        else:
            channels = maps[0]
            self.first = nn.Conv2d(channels + actions, channels, 3, padding=1)
            self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self._maps = maps

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return representations (N, size) of these and actions (N, actions), of which one is 1 and the others 0."""
        if self._maps is not None:
            latent = latent.view(-1, *self._maps)
            action = action[:, :, None, None].expand(-1, -1, *self._maps[1:])
        hidden = self.first(torch.cat([latent, action], dim=1)).relu()
        return in_unit_range(self.second(hidden).relu().flatten(1))


def _maps_of(body: Any) -> tuple[int, int, int] | None:
    """Return the shape of a body's features, where they are those of convolutions alone."""
    return getattr(body.features, "maps", None) if isinstance(body.hidden, nn.Identity) else None
