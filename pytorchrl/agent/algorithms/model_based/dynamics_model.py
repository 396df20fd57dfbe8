"""A model of the environment: an ensemble of networks that predict the next observation, reward and end of episodes."""

import math
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.batched_passes import StackedNetworks
from pytorchrl.agent.actors.heads.transition import (
    PredictedChange,
    TransitionHead,
    TransitionLayer,
    convert_numbers,
    join_predictions,
)
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError
from storages.component.setting import text_of


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
        number, observed = len(rows), torch.cat([rows.change, rows.reward], dim=1)
        goes_on = (rows.discount != 0).float()
        times = torch.zeros((len(self), number), device=observed.device)
        drawn = torch.randint(number, times.shape, device=observed.device, generator=self._generator)
        times.scatter_add_(1, drawn, torch.ones_like(times))
        loss, squares = observed.new_zeros(()), torch.zeros_like(rows.reward)
        for network, count in zip(self.networks, times.unsqueeze(2), strict=True):
            predicted: PredictedChange = network(rows.now, rows.action)
            loss = loss + rows.weighted_mean(count * predicted.loss(observed, goes_on))
            assert isinstance(network.head, TransitionLayer)
            loss = loss + _WEIGHT_OF_BOUNDS * network.head.distance_of_bounds
            squares += (predicted.mean.detach() - observed).square().mean(1, keepdim=True)
        return ModelLoss(loss, (squares / len(self)).sqrt())

    def rollouts(self) -> "ModelRollouts":
        """Return the model for several steps with the present weights."""
        return ModelRollouts(self.networks, self._shape)


class ModelRollouts:
    """Steps of a model, without gradients; outdated after the next update of its networks.

    Args:
        networks: of the model.
        shape: of an observation.
    """

    def __init__(self, networks: Ensemble, shape: tuple[int, ...]) -> None:
        self._networks, self._shape = networks, shape
        self._heads: list[Any] = [network.head for network in networks]

    @cached_property
    def _stacked(self) -> StackedNetworks | None:
        return StackedNetworks.of(self._networks)

    @torch.no_grad()
    def step(self, obs: Tensor, action: Tensor, generator: torch.Generator) -> Predicted:
        """Predict the step after observations (N, D) and actions (N, A) in [-1, 1].

        Rows are divided among the networks in order, as evenly as possible; with a variance, a sample is taken.

        Args:
            obs: (N, D), flattened observations, of which float64 ones stay so: changes may be too small for float32.
            action: (N, A), in the representation of networks.
            generator: of the samples.
        """
        shaped, count = obs.view(-1, *self._shape), len(self._networks)
        if len(obs) % count == 0 and self._stacked is not None:
            output = convert_numbers(self._heads, self._stacked.numbers(shaped, action))
        else:
            parts = zip(self._networks, shaped.tensor_split(count), action.tensor_split(count), strict=True)
            output = join_predictions([network(Observations(some), taken) for network, some, taken in parts])
        change = output.sample(generator)
        return Predicted(obs + change[:, :-1], change[:, -1:], output.probability_of_going_on)


def predictable(space: gym.Space[Any], algorithm: str) -> spaces.Box:
    """Return the space of observations that a model can predict.

    Raises:
        UnsupportedSpaceError: it is no Box of floating-point numbers.
    """
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise UnsupportedSpaceError(
            f"{algorithm} predicts observations, which must be a Box of floating-point numbers, got {space}; "
            f"wrappers=['FlattenObservation'] makes one of a Dict"
        )
    return space


def make_dynamics_model(algorithm: Algorithm, size: int, *, probabilistic: bool) -> DynamicsModel:
    """Make the networks of an algorithm's model, and register them with its actor as "model".

    Args:
        algorithm: which has the model.
        size: number of networks.
        probabilistic: whether the networks predict a variance.

    Raises:
        ValueError: observations are not a Box of floating-point numbers, or the actor has a memory.
    """
    actor, name = algorithm.actor, type(algorithm).__name__
    space = predictable(actor.observation_space, name)
    if actor.memory is not None:
        raise ValueError(
            f"{name} predicts the next observation from the present one alone; leave out "
            f"memory={text_of(actor.memory)}, or stack observations by wrappers"
        )
    head = TransitionHead(math.prod(space.shape), probabilistic)
    networks = actor.make_ensemble("model", head, size, codec=algorithm.codec)
    return DynamicsModel(networks, space.shape, algorithm.generator)


def unrounded(obs: Tensor) -> Tensor:
    """Return observations with at least the digits of float32, so that changes can be added."""
    return obs if obs.element_size() >= 4 else obs.float()


_WEIGHT_OF_BOUNDS = 0.01
