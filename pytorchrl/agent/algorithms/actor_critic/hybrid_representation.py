"""A learnt representation of hybrid actions: embeddings of choices, and a conditional VAE of their parameters."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import LatentGaussian
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import DiagonalGaussian
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.hybrid_latents import Decoded, HybridActions, HybridDecoder, HybridLatents
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.spaces import HybridBox
from storages.transition import MASK

_SMALLEST_VARIANCE = 1e-6
"""Avoids division by 0 where a number of the observation never changes."""


class RepresentationLosses(NamedTuple):
    """Parts of the loss of a batch, () each."""

    parameters: Tensor
    """Squared error of the decoded parameters in [-1, 1], summed over these."""
    divergence: Tensor
    """KL divergence of the latents from a standard normal distribution."""
    changes: Tensor
    """Mean squared error of the predicted changes, in units of the variance of each in the batch."""

    def weighted(self, kl_weight: float, dynamics_weight: float) -> Tensor:
        """Return the sum ()."""
        return self.parameters + kl_weight * self.divergence + dynamics_weight * self.changes

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Metrics of an update."""
        return {"parameter_error": self.parameters.detach(), "change_error": self.changes.detach()}


class HybridRepresentation:
    """Latent actions in [-1, 1]: the embeddings of the choices, followed by a latent of the parameters.

    Actions (N, A) in [-1, 1] are those of a :class:`HybridBox`, latent ones are (N, size).

    Args:
        actor: makes and keeps the networks.
        space: of the actions.
        embedding_size: numbers of the embedding of a choice (d1).
        latent_size: numbers of the latent of the parameters (d2).
        predicts: whether the decoder predicts changes of observations.

    Raises:
        ValueError: changes are to be predicted, and observations have no floating-point numbers.
    """

    def __init__(
        self, actor: Actor, space: HybridBox, embedding_size: int, latent_size: int, *, predicts: bool
    ) -> None:
        self.actions = HybridActions(space, actor.device)
        self.latents = HybridLatents(self.actions.counts, embedding_size, latent_size)
        actor.add("latents", self.latents)
        self._sizes = embedded, latent = self.latents.sizes
        self.size = embedded + latent
        """Numbers of a latent action."""
        self._predicts, parameters = predicts, self.actions.num_parameters
        head = HybridDecoder(parameters, _numbers_of(actor.observation_space) if predicts else 0)
        self.encoder: Network = actor.make("encoder", LatentGaussian(latent_size), beside=embedded + parameters)
        self.decoder: Network = actor.make("decoder", head, beside=self.size, acts=True)
        self.networks = self.latents, self.encoder, self.decoder

    def losses(self, rows: Rows, generator: torch.Generator) -> RepresentationLosses:
        """Return the losses of the actions of a batch."""
        embedded, parameters, latent = self._encoded(rows.now, rows.action)
        decoded = self._decoded(rows.now, embedded, latent.rsample(generator))
        prior = DiagonalGaussian(torch.zeros_like(latent.mean), torch.zeros_like(latent.log_std))
        error = rows.mean(_squared_errors(decoded, parameters))
        of_changes = _error_of_changes(rows, decoded.change) if self._predicts else torch.zeros_like(error)
        return RepresentationLosses(error, rows.mean(latent.kl(prior)), of_changes)

    def action(self, view: View, latent_action: Tensor) -> Tensor:
        """Return the actions that latent ones mean: the nearest choices, with their decoded parameters."""
        vector, scaled = latent_action.tensor_split(self._sizes[:1], dim=1)
        choices = self.latents.nearest(vector)
        decoded = self._decoded(view, self.latents.embed(choices), self.latents.unscale(scaled))
        return self.actions.join(choices, decoded.parameters)

    @torch.no_grad()
    def correct(
        self, view: View, action: Tensor, latent_action: Tensor, noise: float, generator: torch.Generator
    ) -> Tensor:
        """Return the latent actions of which actions were decoded, replaced where they mean others by now.

        A vector whose nearest choice is another one becomes the embedding of the choice, with noise, clipped. A latent
        whose decoded parameters have a larger error than the tolerance is drawn from the encoder.

        Args:
            view: of N rows.
            action: (N, A).
            latent_action: (N, size); numbers outside of [-1, 1] where none is known.
            noise: standard deviation of the noise on embeddings.
            generator: of the random numbers.
        """
        vector, scaled = latent_action.tensor_split(self._sizes[:1], dim=1)
        embedded, parameters, latent = self._encoded(view, action)
        decoded = self._decoded(view, embedded, self.latents.unscale(scaled))
        is_known = (latent_action.abs() <= 1).all(1, keepdim=True)
        is_choice = (self.latents.nearest(vector) == self.actions.choices(action)).all(1, keepdim=True)
        is_near = _squared_errors(decoded, parameters) <= self.latents.tolerance
        moved = embedded + noise * torch.empty_like(embedded).normal_(generator=generator)
        drawn = self.latents.scale(latent.sample(generator))
        vector = torch.where(is_known & is_choice, vector, moved.clamp(-1, 1))
        return torch.cat([vector, torch.where(is_known & is_near, scaled, drawn)], dim=1)

    @torch.no_grad()
    def set_scale(self, batches: Sequence[Rows], central_range: float, generator: torch.Generator) -> None:
        """Take the bounds of latents, and the tolerance of decoded parameters, from the actions of batches."""
        drawn, errors = [], []
        for rows in batches:
            embedded, parameters, latent = self._encoded(rows.now, rows.action)
            of_rows = latent.sample(generator)
            error = _squared_errors(self._decoded(rows.now, embedded, of_rows), parameters)
            is_real = rows[MASK][:, 0] > 0 if MASK in rows.batch else slice(None)
            drawn.append(of_rows[is_real])
            errors.append(error[is_real])
        self.latents.set_scale(torch.cat(drawn), torch.cat(errors), central_range)

    def _encoded(self, view: View, action: Tensor) -> tuple[Tensor, Tensor, DiagonalGaussian]:
        """Return embeddings, parameters, and the distribution of the latents of these."""
        embedded = self.latents.embed(self.actions.choices(action))
        parameters = self.actions.parameters(action)
        return embedded, parameters, self.encoder(view, torch.cat([embedded, parameters], dim=1))

    def _decoded(self, view: View, embedded: Tensor, latent: Tensor) -> Decoded:
        decoded: Decoded = self.decoder(view, torch.cat([embedded, latent], dim=1))
        return decoded


def _squared_errors(decoded: Decoded, parameters: Tensor) -> Tensor:
    """Return the squared errors (N, 1) of decoded parameters, summed over these."""
    return (decoded.parameters - parameters).square().sum(1, keepdim=True)


def _numbers_of(space: gym.Space[Any]) -> int:
    """Return how many floating-point numbers change in an observation, or in the parts of a Dict.

    Raises:
        ValueError: there are none.
    """
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    boxes = [part for part in parts if isinstance(part, spaces.Box) and np.issubdtype(part.dtype, np.floating)]
    if not boxes:
        raise ValueError(
            f"HyAR predicts changes of observations, which must have floating-point numbers, got {space}; "
            f"dynamics_weight=0 predicts none"
        )
    return sum(math.prod(part.shape) for part in boxes)


def _error_of_changes(rows: Rows, predicted: Tensor) -> Tensor:
    """Return the mean squared error () of predicted changes (N, D), in units of the variance of each in the batch."""
    change = rows.change
    errors = (predicted - change).square() / (change.var(0, correction=0) + _SMALLEST_VARIANCE)
    return rows.mean(errors.mean(1, keepdim=True))
