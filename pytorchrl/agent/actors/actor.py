"""What every actor is: networks over the spaces of some environments, made by the algorithm on the user's body."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Activation, Body, ExtractorKind, described
from pytorchrl.agent.actors.initialisation import Initialisation
from pytorchrl.agent.actors.memory import MemoryKind, RecurrentBody
from pytorchrl.agent.actors.normalization import ObservationNormalization
from pytorchrl.agent.device import find_device
from pytorchrl.agent.other_names import ACTOR_NAMES
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
        feature_extractor: "mlp", "nature_cnn" or "small_cnn"; "auto" takes a CNN for images, the small one where they
            are too small for Nature's, and flattens all else.
        normalize_observations: subtract the running mean of the observations collected so far, and divide by their
            standard deviation, within [-10, 10]. All copies of the environment, evaluation and target networks share
            these statistics, which are saved with the weights.

    Raises:
        ValueError: there is no such device here, the feature extractor does not fit the observations, or there is
            nothing to normalise in them.
    """

    context = ("device", "envs")
    other_names = ACTOR_NAMES

    def __init__(
        self,
        device: torch.device | str,
        envs: Spaces,
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
        memory: MemoryKind | None,
        memory_size: int,
        feature_extractor: ExtractorKind,
        normalize_observations: bool,
    ) -> None:
        super().__init__()
        self.device = find_device(device)
        self.observation_space = envs.observation_space
        self.action_space = envs.action_space
        self._hidden_sizes = hidden_sizes
        self._activation: Activation = activation
        self._initialisation: Initialisation = initialisation
        self.memory: MemoryKind | None = memory
        """The kind of memory; None for none."""
        self._memory_size = memory_size
        self._feature_extractor: ExtractorKind = feature_extractor
        self.normalization = ObservationNormalization(self.observation_space) if normalize_observations else None
        """Of observations; None where networks get them as they are."""

    def observe(self, obs: Any) -> None:
        """Count collected observations into the statistics that normalise; nothing without normalisation.

        The collector of training calls it in every step, before acting; evaluation does not.

        Args:
            obs: (E, *obs) arrays, or a dict of such.
        """
        if self.normalization is not None:
            self.normalization.add(_tensors(obs, self.device))

    def after_update_phase(self) -> None:
        """Normalise from now on with all observations counted so far; called after each update phase."""
        if self.normalization is not None:
            self.normalization.use_newest()

    @property
    def reads(self) -> str:
        """How observations are read, in words."""
        text = described(self.observation_space, self._feature_extractor)
        return text if self.normalization is None else f"{text}; normalised"

    def extra_repr(self) -> str:
        """What torch shows of the actor beside its networks."""
        return f"observations: {self.reads}"

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """(E, *hidden): what an actor remembers before its first observation; None without a memory."""
        return None

    def _body(self, beside: int = 0) -> Body:
        return Body(
            self.observation_space,
            self._hidden_sizes,
            self._activation,
            self._initialisation,
            beside,
            self._feature_extractor,
            self.normalization,
        )

    def _recurrent_body(self) -> RecurrentBody:
        assert self.memory is not None
        return RecurrentBody(self._body(), self.memory, self._memory_size)


def _tensors(observation: Any, device: torch.device) -> Any:
    if isinstance(observation, Mapping):
        return {name: _tensors(part, device) for name, part in observation.items()}
    return torch.as_tensor(observation, device=device)
