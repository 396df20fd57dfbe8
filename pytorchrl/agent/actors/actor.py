"""What every actor is: networks over the spaces of some environments, made by the algorithm on the user's body."""

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Activation, Body, Initialisation
from pytorchrl.agent.actors.memory import MemoryKind, RecurrentBody
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
        memory: what follows the body, "gru" or "lstm"; None sees one observation at a time.
        memory_size: features that the memory makes.
    """

    context = ("device", "envs")

    def __init__(
        self,
        device: torch.device | str,
        envs: Spaces,
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
        memory: MemoryKind | None,
        memory_size: int,
    ) -> None:
        super().__init__()
        self.device = torch.device(device)
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self._hidden_sizes = hidden_sizes
        self._activation: Activation = activation
        self._initialisation: Initialisation = initialisation
        self.memory: MemoryKind | None = memory
        """The kind of memory; None for none."""
        self._memory_size = memory_size

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """(E, *hidden): what an actor remembers before its first observation; None without a memory."""
        return None

    def _body(self, beside: int = 0) -> Body:
        return Body(self.observation_space, self._hidden_sizes, self._activation, self._initialisation, beside)

    def _recurrent_body(self) -> RecurrentBody:
        assert self.memory is not None
        return RecurrentBody(self._body(), self.memory, self._memory_size)
