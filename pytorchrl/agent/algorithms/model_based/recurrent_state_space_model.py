"""Recurrent state-space model: a world model with discrete latents, of observations, rewards and ends of episodes.

Hafner et al., "Mastering Diverse Domains through World Models" (DreamerV3, arXiv 2301.04104), section "World model
learning".
"""

from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber
from pytorchrl.agent.actors.layers.sequence_model import SequenceModel
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.per_network import settings_of_network
from pytorchrl.agent.actors.view import Observations
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
        self.codec, self._uniform_share = codec, uniform_share
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
        size = recurrent + self.encoder.output_size
        self._posterior: Network = actor.make("posterior", logits, vectors=size)
        self._prior: Network = actor.make("prior", logits, vectors=recurrent)
        size = self.num_features
        self.decoder: Network = actor.make("decoder", ObservationHead(self.targets), vectors=size)
        """Predicts observations from the features of latent states."""
        self.reward: Network = actor.make("reward", TwoHotNumber(num_bins), vectors=size)
        """Predicts the reward of the step before from these."""
        self.goes_on: Network = actor.make("goes_on", StateValue(), vectors=size)
        """Predicts log-odds (N, 1) from these that the episode goes on."""
        predictors = self.decoder, self.reward, self.goes_on
        self.networks = self.encoder, self.sequence, self._posterior, self._prior, *predictors

    def posterior(self, recurrent: Tensor, encoded: Tensor) -> Tensor:
        """Return the logarithms of probabilities (N, num_latents, num_classes) of latents, given observations.

        Args:
            recurrent: (N, memory size).
            encoded: (N, size), of the encoder.
        """
        view = Observations(torch.cat([recurrent, encoded], dim=1))
        return mixed_with_uniform(self._posterior(view), self._uniform_share)

    def prior(self, recurrent: Tensor) -> Tensor:
        """Return logarithms of probabilities as :meth:`posterior`, without observations."""
        return mixed_with_uniform(self._prior(Observations(recurrent)), self._uniform_share)

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
