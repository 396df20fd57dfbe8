"""What every actor is: networks over the spaces of some environments, made by the algorithm on the user's body."""

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium as gym
import torch
from torch import nn

from pytorchrl.agent.actors.bodies import Activation, Body, Initialisation
from storages.factory import Component


class Spaces(Protocol):
    """What an actor reads of the environments."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Of one environment."""

    @property
    def action_space(self) -> gym.Space[Any]:
        """Of one environment."""


class Actor(Component, nn.Module):
    """Networks that act and judge. Made without heads; the algorithm that gets the actor adds those it needs.

    Args:
        device: where the networks live.
        envs: say what an observation and an action are.
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
    """

    context = ("device", "envs")

    def __init__(
        self,
        device: torch.device | str,
        envs: Spaces,
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
    ) -> None:
        super().__init__()
        self.device = torch.device(device)
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self._hidden_sizes = hidden_sizes
        self._activation: Activation = activation
        self._initialisation: Initialisation = initialisation

    def _body(self, beside: int = 0) -> Body:
        return Body(self.observation_space, self._hidden_sizes, self._activation, self._initialisation, beside)
