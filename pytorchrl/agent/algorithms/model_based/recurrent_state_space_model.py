"""Recurrent state-space model: a world model with discrete latents, of observations, rewards and ends of episodes.

Hafner et al., "Mastering Diverse Domains through World Models" (DreamerV3, arXiv 2301.04104), section "World model
learning".
"""

from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.actors.layers.sequence_model import SequenceModel
from pytorchrl.agent.actors.per_network import settings_of_network
from pytorchrl.agent.algorithms.model_based.latent_states import Draw, Latent, drawn, mixed_with_uniform
from pytorchrl.agent.algorithms.model_based.observation_decoder import (
    ObservationHead,
    ObservationTargets,
    SymlogObservations,
)


class RecurrentStateSpaceModel:
    """A world model; observations are (N, *obs), actions (N, *action) as networks take them.

    Args:
        actor: makes and keeps the networks; the size of its memory is that of the recurrent state.
        codec: of the actions.
        num_latents: number of categorical variables.
        num_classes: of each.
        uniform_share: share of the uniform distribution in theirs.
        num_bins: of the distribution over rewards.
    """

    def __init__(
        self, actor: Actor, codec: ActionCodec, num_latents: int, num_classes: int, uniform_share: float, num_bins: int
    ) -> None:
        self.codec, self._actor, self._uniform_share = codec, actor, uniform_share
        recurrent, self.stochastic_size = actor.memory_size, num_latents * num_classes
        self.stored_at = actor.reserve_state(recurrent)
        """Slice of its recurrent state in the stored one (RHS) of a transition."""
        self.num_features = recurrent + self.stochastic_size
        """Size of the features of a latent state."""
        symlog = SymlogObservations(actor.encoded_space, actor.normalization)
        self.targets = ObservationTargets(actor.encoded_space, symlog).to(actor.device)
        """What the decoder predicts of observations."""
        self.encoder = actor.make_body("encoder", symlog)
        with settings_of_network(actor, "sequence"):
            inputs = actor.hidden_layers(self.stochastic_size + codec.size, actor.hidden_sizes[-1:])
            self.sequence = SequenceModel(inputs, recurrent)
        actor.add("sequence", self.sequence)
        logits = _Logits((num_latents, num_classes))
        self._posterior = self._network("posterior", logits, recurrent + self.encoder.output_size, 1)
        self._prior = self._network("prior", logits, recurrent, 1)
        self.decoder = self.make_predictor("decoder", ObservationHead(self.targets))
        """Predicts observations."""
        self.reward = self.make_predictor("reward", TwoHotNumber(num_bins))
        """Predicts the reward of the step before."""
        self.goes_on = self.make_predictor("goes_on", _Number())
        """Predicts log-odds that the episode goes on, (N, 1)."""
        predictors = self.decoder, self.reward, self.goes_on
        self.networks = self.encoder, self.sequence, self._posterior, self._prior, *predictors

    def make_predictor(self, name: str, head: Head) -> nn.Sequential:
        """Make and register a network of features (N, features) of latent states, with the actor's hidden layers.

        Args:
            name: of the network, in the actor's state dict.
            head: specification of the output layers.
        """
        return self._network(name, head, self.num_features)

    def _network(self, name: str, head: Head, size: int, layers: int | None = None) -> nn.Sequential:
        """Make a network of vectors (N, size), with the last ``layers`` of the actor's hidden layers; None for all."""
        actor = self._actor
        with settings_of_network(actor, name):
            sizes = actor.hidden_sizes
            hidden = actor.hidden_layers(size, sizes if layers is None else sizes[-layers:])
            network = nn.Sequential(hidden, head.build(hidden.output_size, actor))
        actor.add(name, network)
        return network

    def posterior(self, recurrent: Tensor, encoded: Tensor) -> Tensor:
        """Return the logarithms of probabilities (N, num_latents, num_classes) of latents, given observations.

        Args:
            recurrent: (N, memory size).
            encoded: (N, size), of the encoder.
        """
        return mixed_with_uniform(self._posterior(torch.cat([recurrent, encoded], dim=1)), self._uniform_share)

    def prior(self, recurrent: Tensor) -> Tensor:
        """Return logarithms of probabilities as :meth:`posterior`, without observations."""
        return mixed_with_uniform(self._prior(recurrent), self._uniform_share)

    def advance(self, latent: Latent, action: Tensor) -> Tensor:
        """Return the recurrent states (N, memory size) after actions."""
        state: Tensor = self.sequence(*latent, self.codec.features(self.codec.clip(action)))
        return state

    def latent_of(self, recurrent: Tensor, observation: Any, draw: Draw) -> Latent:
        """Return the latents of observations, given the recurrent states (N, memory size)."""
        return drawn(recurrent, self.posterior(recurrent, self.encoder(observation)), draw)


class _Logits:
    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, num_latents, num_classes)."""
        num_latents, num_classes = self._shape
        return nn.Sequential(actor.linear(features, num_latents * num_classes), nn.Unflatten(1, self._shape))


class _Number:
    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, 1)."""
        return OutputLayer(actor.linear(features, 1))
