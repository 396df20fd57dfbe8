"""Recurrent state-space model: a world model with discrete latents, of observations, rewards and ends of episodes.

Hafner et al., "Mastering Diverse Domains through World Models" (DreamerV3, arXiv 2301.04104), section "World model
learning".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.bodies import flat
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber, TwoHotPrediction
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.actors.layers.sequence_model import SequenceModel
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.per_network import settings_of_network
from pytorchrl.agent.actors.view import ActingView
from pytorchrl.agent.algorithms.model_based.latent_states import (
    Draw,
    Latent,
    divergence,
    drawn,
    joined,
    mixed_with_uniform,
    random_draw,
    where,
)
from pytorchrl.agent.algorithms.model_based.observation_decoder import (
    ObservationHead,
    ObservationTargets,
    SymlogObservations,
    squared_error,
)
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, BATCH_SIZES, BURN_IN, DONE, MASK, OBS, OBS2, RHS, SORTED_INDICES


class Replayed(NamedTuple):
    """Latent states of the N steps of a batch, inferred from its observations."""

    now: Latent
    """Of OBS, in which the actions were taken."""
    inferred: Latent
    """Of all inferred states: N of OBS2, followed by M of those OBS that follow no other step of the batch."""
    logits: Tensor
    """(N + M, num_latents, num_classes), of the posteriors that these were drawn from."""
    firsts: Tensor
    """(M,), the rows of those OBS."""
    is_first: Tensor
    """(M, 1), 1, or 0 where a row is not one of them, but was computed lest the host waits for the device."""


class Imagined(NamedTuple):
    """Sequences of H steps of a policy in the model, from each of N latent states."""

    features: Tensor
    """(H + 1, N, features), of the latent states."""
    action: Tensor
    """(H, N, *action)."""
    reward: Tensor
    """(H, N, 1)."""
    goes_on: Tensor
    """(H, N, 1), probability that the episode goes on after the step."""


class ModelLosses(NamedTuple):
    """Parts of the loss of a batch, (N + M, 1) each, or (N, 1) of rewards and continuation."""

    observation: Tensor
    reward: Tensor
    goes_on: Tensor
    dynamics: Tensor
    representation: Tensor


class RecurrentStateSpaceModel:
    """A world model; observations (N, *obs) and actions are as networks take them.

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
        self._codec, self._shape, self._uniform_share = codec, (num_latents, num_classes), uniform_share
        recurrent, stochastic = actor.memory_size, num_latents * num_classes
        self.stored_at = actor.reserve_state(recurrent)
        self._recurrent_size, self._stochastic_size = recurrent, stochastic
        self.num_features = recurrent + stochastic
        symlog = SymlogObservations(actor.encoded_space, actor.normalization)
        self.targets = ObservationTargets(actor.encoded_space, symlog).to(actor.device)
        self.encoder = actor.make_body("encoder", symlog)
        with settings_of_network(actor, "sequence"):
            inputs = actor.hidden_layers(stochastic + codec.size, actor.hidden_sizes[-1:])
            self.sequence = SequenceModel(inputs, recurrent)
        actor.add("sequence", self.sequence)
        logits = _Logits(self._shape)
        self.posterior = network_of_vectors(actor, "posterior", logits, recurrent + self.encoder.output_size, 1)
        self.prior = network_of_vectors(actor, "prior", logits, recurrent, 1)
        self.decoder = network_of_vectors(actor, "decoder", ObservationHead(self.targets), self.num_features)
        self.reward = network_of_vectors(actor, "reward", TwoHotNumber(num_bins), self.num_features)
        self.goes_on = network_of_vectors(actor, "continue", _Number(), self.num_features)
        self.networks = (
            self.encoder,
            self.sequence,
            self.posterior,
            self.prior,
            self.decoder,
            self.reward,
            self.goes_on,
        )

    # Steps

    def infer(self, recurrent: Tensor, observation: Any, draw: Draw) -> tuple[Latent, Tensor]:
        """Return the latents of observations, given the recurrent states, and the logits that they are drawn from."""
        logits = self.posterior_logits(recurrent, self.encoder(observation))
        return drawn(recurrent, logits, draw), logits

    def posterior_logits(self, recurrent: Tensor, encoded: Tensor) -> Tensor:
        """Return logarithms of probabilities (N, num_latents, num_classes), given encoded observations."""
        return mixed_with_uniform(self.posterior(torch.cat([recurrent, encoded], dim=1)), self._uniform_share)

    def prior_logits(self, recurrent: Tensor) -> Tensor:
        """Return logarithms of probabilities (N, num_latents, num_classes), without an observation."""
        return mixed_with_uniform(self.prior(recurrent), self._uniform_share)

    def advance(self, latent: Latent, action: Tensor) -> Tensor:
        """Return the recurrent states (N, memory size) after actions."""
        state: Tensor = self.sequence(*latent, self._codec.features(self._codec.clip(action)))
        return state

    # Acting

    def latent_while_acting(self, view: ActingView, draw: Draw) -> Latent:
        """Return the latents of the observations of a view, given its recurrent states."""
        return self.infer(view.state(self.stored_at), view.observations, draw)[0]

    # Batches

    def replay(self, rows: Rows, generator: torch.Generator) -> Replayed:
        """Infer the latents of a batch of sequences or episodes, from the stored recurrent states on."""
        batch, begins, actions = rows.batch, rows[DONE], rows.action
        if BATCH_SIZES in batch:
            sizes, stored = batch[BATCH_SIZES].tolist(), batch[RHS][batch[SORTED_INDICES]]
        else:
            steps, width = batch[DONE].shape[:2]
            sizes, stored = [width] * steps, self._warmed_up(batch, generator)
        count, first = len(begins), torch.ones_like(begins[: sizes[0]])
        before = F.pad(stored[:, self.stored_at] * (1 - begins[: sizes[0]]), (0, 0, 0, count - sizes[0]))
        begins = torch.cat([first, begins[sizes[0] :]])
        # Most steps follow another one. The host does not wait for a device to tell it which do not.
        is_on_cpu = begins.device.type == "cpu"
        firsts = begins[:, 0].nonzero()[:, 0] if is_on_cpu else torch.arange(count, device=begins.device)
        draw = random_draw(generator)
        initial, initial_logits = self.infer(before[firsts], _rows_of(rows[OBS], firsts), draw)
        stochastic = before.new_zeros((count, self._stochastic_size)).index_copy(0, firsts, initial.stochastic)

        latent, now, following, logits = None, [], [], []
        encoded = self.encoder(rows[OBS2])
        given = (begins, before, stochastic, encoded, actions)
        for begin, recurrent, chosen, seen, action in zip(*(each.split(sizes) for each in given), strict=True):
            fresh = Latent(recurrent, chosen)
            latent = fresh if latent is None else where(begin > 0, fresh, latent)
            now.append(latent)
            recurrent = self.advance(latent, action)
            logits.append(self.posterior_logits(recurrent, seen))
            latent = drawn(recurrent, logits[-1], draw)
            following.append(latent)
        inferred = joined([*following, initial])
        return Replayed(joined(now), inferred, torch.cat([*logits, initial_logits]), firsts, begins[firsts])

    @torch.no_grad()
    def _warmed_up(self, batch: dict[str, Any], generator: torch.Generator) -> Tensor:
        """Return the stored states (B, states), those of the model after a burn-in if there is one."""
        stored: Tensor = batch[RHS]
        if BURN_IN not in batch:
            return stored
        burn_in, draw = batch[BURN_IN], random_draw(generator)
        done, real = burn_in[DONE], burn_in[MASK]
        width = done.shape[1]
        actions = self._codec.from_storage(flat(burn_in[ACT])).split(width)
        encoded = self.encoder(flat(burn_in[OBS])).split(width)
        state = burn_in[RHS][:, self.stored_at]
        for step in range(len(done)):
            recurrent = state * (1 - done[step])
            latent = drawn(recurrent, self.posterior_logits(recurrent, encoded[step]), draw)
            # Padding in front leaves the state as it is, because it is that before the first real step.
            state = torch.where(real[step] > 0, self.advance(latent, actions[step]), state)
        stored = stored.clone()
        stored[:, self.stored_at] = state
        return stored

    @torch.no_grad()
    def imagine(
        self, latent: Latent, policy: Callable[[Tensor], Distribution], horizon: int, generator: torch.Generator
    ) -> Imagined:
        """Take steps of a policy from latent states, whose stochastic parts are drawn without observations.

        Args:
            latent: of N rows.
            policy: distribution of actions for features (N, features).
            horizon: number of steps.
            generator: of actions and latent states.
        """
        features, actions, draw = [latent.features], [], random_draw(generator)
        for _ in range(horizon):
            actions.append(policy(features[-1]).sample(generator))
            recurrent = self.advance(latent, actions[-1])
            latent = drawn(recurrent, self.prior_logits(recurrent), draw)
            features.append(latent.features)
        reached, shape = torch.cat(features[1:]), (horizon, -1, 1)
        reward: TwoHotPrediction = self.reward(reached)
        goes_on = self.goes_on(reached).sigmoid()
        return Imagined(torch.stack(features), torch.stack(actions), reward.mean.view(shape), goes_on.view(shape))

    def losses(self, rows: Rows, replayed: Replayed, free_nats: float) -> ModelLosses:
        """Return the parts of the loss, of each inferred state.

        Args:
            rows: of the batch.
            replayed: the latents of its steps.
            free_nats: divergence in nats below which its loss has no gradient.
        """
        features = replayed.inferred.features
        targets = [
            torch.cat(pair)
            for pair in zip(self.targets(rows[OBS2]), self.targets(_rows_of(rows[OBS], replayed.firsts)), strict=True)
        ]
        of_steps = features[: len(rows)]
        reward: TwoHotPrediction = self.reward(of_steps)
        # A truncated episode would have gone on.
        goes_on = (rows.discount != 0).float()
        prior = self.prior_logits(replayed.inferred.recurrent)
        return ModelLosses(
            squared_error(self.decoder(features), targets),
            reward.loss(reward.code(rows.reward)),
            F.binary_cross_entropy_with_logits(self.goes_on(of_steps), goes_on, reduction="none"),
            divergence(replayed.logits.detach(), prior).clamp_min(free_nats),
            divergence(replayed.logits, prior.detach()).clamp_min(free_nats),
        )


def network_of_vectors(actor: Actor, name: str, head: Head, size: int, layers: int | None = None) -> nn.Sequential:
    """Make hidden layers and a head for vectors, with the settings of an actor, and register them with it.

    Args:
        actor: keeps the network.
        name: of the network, in the actor's state dict.
        head: specification of the output layers.
        size: of a vector.
        layers: number of hidden layers, the last ones of those that the user chose; None for all.
    """
    with settings_of_network(actor, name):
        sizes = actor.hidden_sizes
        hidden = actor.hidden_layers(size, sizes if layers is None else sizes[-layers:])
        network = nn.Sequential(hidden, head.build(hidden.output_size, actor))
    actor.add(name, network)
    return network


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


def _rows_of(observation: Any, rows: Tensor) -> Any:
    """Return some rows of observations (N, *obs), or of a dict of such."""
    if isinstance(observation, dict):
        return {name: part[rows] for name, part in observation.items()}
    return observation[rows]
