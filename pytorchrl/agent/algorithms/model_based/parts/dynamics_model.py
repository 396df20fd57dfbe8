"""A model of the environment: an ensemble of networks that predict the next observation, reward and end of episodes."""

import math
from typing import NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.model_based.parts.transition_head import (
    PredictedChange,
    TransitionHead,
    distance_of_bounds,
)
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS, OBS2


class Predicted(NamedTuple):
    """A step of the model."""

    obs: Tensor
    """(N, D), next observations."""
    reward: Tensor
    """(N, 1)."""
    goes_on: Tensor
    """(N, 1), probability that the episode goes on."""


class ModelLoss(NamedTuple):
    """Losses of a batch."""

    loss: Tensor
    """Sum of the networks' losses, () with gradients."""
    errors: Tensor
    """(N, 1), root of the mean squared error of changes and rewards over all networks."""


class DynamicsModel:
    """An ensemble of networks, each from observation and action to a prediction.

    Args:
        networks: made by :func:`make_dynamics_model`.
        shape: of an observation.
        generator: of the rows that each network learns from.
    """

    def __init__(self, networks: Ensemble, shape: tuple[int, ...], generator: torch.Generator) -> None:
        self.networks = networks
        self._shape = shape
        self._generator = generator

    def __len__(self) -> int:
        return len(self.networks)

    def losses(self, rows: Rows) -> ModelLoss:
        """Return the loss of transitions: each network learns from as many of them, drawn with replacement.

        Of networks with a variance, the loss has 0.01 times the distance between its bounds, too.
        """
        obs, number = rows[OBS].flatten(1), len(rows)
        observed = torch.cat([rows[OBS2].flatten(1) - obs, rows.reward], dim=1)
        goes_on = (rows.discount != 0).float()
        times = torch.zeros((len(self), number), device=obs.device)
        drawn = torch.randint(number, times.shape, device=obs.device, generator=self._generator)
        times.scatter_add_(1, drawn, torch.ones_like(times))
        loss, squares = obs.new_zeros(()), torch.zeros_like(rows.reward)
        for network, count in zip(self.networks, times.unsqueeze(2), strict=True):
            predicted: PredictedChange = network(rows.now, rows.action)
            loss = loss + rows.weighted_mean(count * predicted.loss(observed, goes_on))
            loss = loss + _WEIGHT_OF_BOUNDS * distance_of_bounds(network.head)
            squares += (predicted.mean.detach() - observed).square().mean(1, keepdim=True)
        return ModelLoss(loss, (squares / len(self)).sqrt())

    def step(self, obs: Tensor, action: Tensor, generator: torch.Generator) -> Predicted:
        """Predict the step after observations (N, D) and actions (N, A) in [-1, 1].

        Rows are divided among the networks in order, as evenly as possible; with a variance, a sample is taken.

        Args:
            obs: (N, D), flattened observations.
            action: (N, A), in the representation of networks.
            generator: of the samples.
        """
        parts = zip(self.networks, obs.tensor_split(len(self)), action.tensor_split(len(self)), strict=True)
        outputs = [network(Observations(o.view(-1, *self._shape)), a) for network, o, a in parts]
        change = torch.cat([output.sample(generator) for output in outputs])
        goes_on = torch.cat([output.probability_of_going_on for output in outputs])
        return Predicted(obs + change[:, :-1], change[:, -1:], goes_on)


def make_dynamics_model(
    actor: Actor, codec: ActionCodec, size: int, generator: torch.Generator, algorithm: str, *, probabilistic: bool
) -> DynamicsModel:
    """Make the networks of a model, and register them with the actor as "model".

    Args:
        actor: makes the networks.
        codec: of the actions.
        size: number of networks.
        generator: of the updates.
        algorithm: its name, for errors.
        probabilistic: whether the networks predict a variance.

    Raises:
        ValueError: observations are not a Box of floating-point numbers, or the actor has a memory.
    """
    space = actor.observation_space
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{algorithm} predicts observations, which must be a Box of floating-point numbers, got {space}; "
            f"wrappers=['FlattenObservation'] makes one of a Dict"
        )
    if actor.memory is not None:
        raise ValueError(
            f"{algorithm} predicts the next observation from the present one alone; leave out "
            f"memory={actor.memory!r}, or stack observations by wrappers"
        )
    head = TransitionHead(math.prod(space.shape), probabilistic)
    return DynamicsModel(actor.make_ensemble("model", head, size, codec=codec), space.shape, generator)


_WEIGHT_OF_BOUNDS = 0.01
