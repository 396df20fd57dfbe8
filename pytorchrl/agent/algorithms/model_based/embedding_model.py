"""A model in a space of latent states: encoder, dynamics, rewards and ends of episodes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import BATCH_SIZES, DONE, OBS, REW


@dataclass(frozen=True)
class Simplices:
    """The head of latent states (N, size), which consist of probabilities: of points in simplices (SimNorm).

    Hansen et al., TD-MPC2 (arXiv 2310.16828), section 3.1, with a temperature of 1.

    Args:
        size: of a latent state.
        simplex_size: numbers that add up to 1 (V).
    """

    size: int
    simplex_size: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, size)."""
        return _SimplicesLayer(actor.linear(features, self.size), self)


class _SimplicesLayer(OutputLayer):
    def __init__(self, layer: nn.Module, head: Simplices) -> None:
        super().__init__(layer)
        self.norm, self._simplex_size = nn.LayerNorm(head.size), head.simplex_size

    def output(self, numbers: Tensor) -> Tensor:
        normalised: Tensor = self.norm(numbers)
        return normalised.view(normalised.shape[0], -1, self._simplex_size).softmax(2).flatten(1)


class Unrolled(NamedTuple):
    """Latent states along the N rows of a batch, in the order of the rows."""

    latent: Tensor
    """(N, size): of the encoder in the first step of each sequence, predicted from the step before in all others."""
    predicted: Tensor
    """(N, size): after each step."""
    continues: Tensor
    """(N, 1): 1 as long as a sequence is in its first episode, else 0: actions do not lead to the next one."""
    decay: Tensor
    """(N, 1): that times ``rho**t`` in step t."""
    first: int
    """How many rows at the beginning are first steps."""
    last: int
    """How many rows at the end are of the last step."""

    def all_states(self, weight: Tensor, rho: float) -> tuple[Observations, Tensor]:
        """Return a view of the states without gradients, those after the last step too, and their weights with decay.

        Args:
            weight: (N, 1), of the rows.
            rho: decay of one step.
        """
        decayed = weight * self.decay
        weights = torch.cat([decayed, rho * decayed[-self.last :]])
        return Observations(torch.cat([self.latent, self.predicted[-self.last :]]).detach()), weights


class EmbeddingModel:
    """A model that predicts what the next observation is encoded to; its networks have the names of the attributes.

    Args:
        actor: makes and keeps the networks.
        codec: of the actions.
        states: head of latent states.
        numbers: head of rewards.
        predicts_ends: whether it predicts if an episode terminates.
    """

    def __init__(
        self, actor: Actor, codec: ActionCodec, states: Simplices, numbers: TwoHotNumber, *, predicts_ends: bool
    ) -> None:
        size, self._actor = states.size, actor
        self.encoder: Network = actor.make("encoder", states, acts=True)
        self.dynamics: Network = actor.make("dynamics", states, codec=codec, vectors=size)
        self.reward: Network = actor.make("reward", numbers, codec=codec, vectors=size)
        self.termination: Network | None = None
        """Log-odds that the episode has terminated in a latent state."""
        if predicts_ends:
            self.termination = actor.make("termination", StateValue(0.01), vectors=size)

    @property
    def networks(self) -> list[Network]:
        """All networks."""
        networks = [self.encoder, self.dynamics, self.reward]
        return networks if self.termination is None else [*networks, self.termination]

    def unroll(self, rows: Rows, rho: float) -> Unrolled:
        """Return the latent states that the actions of sequences or episodes lead to, with gradients.

        Args:
            rows: of sequences or episodes.
            rho: decay of one step.
        """
        sizes = _rows_of_steps(rows)
        latent = self._first_latents(rows, sizes[0])
        continues = torch.ones_like(latent[:, :1])
        latents: list[Tensor] = []
        predictions: list[Tensor] = []
        continuing: list[Tensor] = []
        decays: list[Tensor] = []
        actions, begins = torch.split(rows.action, sizes), torch.split(rows[DONE], sizes)
        for step, number in enumerate(sizes):
            if step:
                latent, continues = predictions[-1][:number], continues[:number] * (1 - begins[step])
            latents.append(latent)
            continuing.append(continues)
            decays.append(rho**step * continues)
            predictions.append(self.dynamics(Observations(latent), actions[step]))
        of_rows = torch.cat(latents), torch.cat(predictions), torch.cat(continuing), torch.cat(decays)
        return Unrolled(*of_rows, first=sizes[0], last=sizes[-1])

    @torch.no_grad()
    def follow(self, latent: Tensor, actions: Tensor, gamma: float) -> tuple[Tensor, Tensor, Observations]:
        """Follow action sequences (E, N, H, A) from states (E, size).

        Args:
            latent: states.
            actions: in [-1, 1].
            gamma: discount factor.

        Returns:
            The discounted sum of rewards (E * N, 1), the discount of a value at the end (E * N, 1), with the
            probability that the episode goes on until there, and a view of the last states (E * N, size).
        """
        latent = latent.repeat_interleave(actions.shape[1], 0)
        total, weight, view = torch.zeros_like(latent[:, :1]), torch.ones_like(latent[:, :1]), Observations(latent)
        for action in actions.flatten(0, 1).unbind(1):
            total += weight * self.reward(view, action).mean
            view = Observations(self.dynamics(view, action))
            weight *= gamma
            if self.termination is not None:
                weight *= (-self.termination(view)).sigmoid()
        return total, weight, view

    @torch.no_grad()
    def sequences_of(
        self, policy: Network, latent: Tensor, number: int, horizon: int, generator: torch.Generator
    ) -> Tensor:
        """Return action sequences (E, number, H, A) that a policy draws from states (E, size) on."""
        state = latent.repeat_interleave(number, 0)
        actions: list[Tensor] = []
        for step in range(horizon):
            if step:
                state = self.dynamics(Observations(state), actions[-1])
            actions.append(policy(Observations(state)).sample(generator))
        sequences = torch.stack(actions, 1)
        return sequences.view(len(latent), number, *sequences.shape[1:])

    def _first_latents(self, rows: Rows, number: int) -> Tensor:
        """Encode the first steps (B, size) of sequences; where there is no memory, no others are encoded."""
        if self._actor.memory is not None:
            of_all: Tensor = self.encoder(rows.now)
            return of_all[:number]
        first = _first(rows.batch[OBS], number, is_padded=rows.batch[REW].ndim == 3)
        latent: Tensor = self.encoder(self._actor.view(first))
        return latent


def _rows_of_steps(rows: Rows) -> list[int]:
    """Return how many rows each step of the sequences or episodes has; only packed episodes differ in it."""
    if BATCH_SIZES in rows.batch:
        sizes: list[int] = rows.batch[BATCH_SIZES].tolist()
        return sizes
    steps, number = rows.batch[REW].shape[:2]
    return [number] * steps


def _first(obs: Any, number: int, *, is_padded: bool) -> Any:
    """Return the first rows of observations (T, B, *obs) or (N, *obs), or of a dict of such."""
    if isinstance(obs, dict):
        return {name: _first(part, number, is_padded=is_padded) for name, part in obs.items()}
    return obs[0] if is_padded else obs[:number]
