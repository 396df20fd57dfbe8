"""Bodies: networks from observations of any space to feature vectors, with or without a memory."""

from collections.abc import Sequence
from typing import Any, Unpack

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import ActionMask
from pytorchrl.agent.actors.body_kinds import BodyKind, make_hidden_layers
from pytorchrl.agent.actors.encoders import ExtractorKind, features_of, output_size_of
from pytorchrl.agent.actors.layers.linear_layers import Initialisation
from pytorchrl.agent.actors.layers.mlp import MLP, Activation, Layers
from pytorchrl.agent.actors.memory import RecurrentModule


class Body(nn.Module):
    """Feature extractor and hidden layers: from observations, and a further vector if any, to features.

    Args:
        space: observation space of one environment.
        hidden_sizes: of the hidden layers after the feature extractor.
        activation: as for :class:`~pytorchrl.agent.actors.layers.mlp.MLP`.
        initialisation: as for ``MLP``.
        beside: size of a vector (an action) that is concatenated to the extracted features.
        extractor: feature extractor; "auto" takes a CNN for images and vectors otherwise.
        normalization: of observations, before the feature extractor; None for none.
        action_mask: is removed from observations; None where there is none.
        kind: of the hidden layers.
        layers: settings of the hidden layers, as for ``MLP``.

    Raises:
        TypeError: a user's extractor or hidden layers are not a module that returns a Tensor.
        ValueError: the extractor does not fit the space, or the hidden layers do not fit their settings.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
        beside: int = 0,
        extractor: ExtractorKind = "auto",
        normalization: nn.Module | None = None,
        action_mask: ActionMask | None = None,
        kind: BodyKind = "mlp",
        **layers: Unpack[Layers],
    ) -> None:
        super().__init__()
        self.normalization = normalization
        self._action_mask = action_mask
        self.features = features_of(space, initialisation, extractor)
        size = output_size_of(self.features) + beside
        hidden = make_hidden_layers(kind, size, hidden_sizes, activation, initialisation, **layers)
        is_empty = isinstance(hidden, MLP) and not hidden.layers and not hidden.renorms
        self.hidden = nn.Identity() if is_empty else hidden
        self.output_size = output_size_of(hidden)

    def forward(self, observation: Any, beside: Tensor | None = None) -> Tensor:
        """(B, *obs) or a dict of such, and (B, beside), to (B, output_size)."""
        normalization = self.normalization
        return self.of_normalised(observation if normalization is None else normalization(observation), beside)

    def of_normalised(self, observation: Any, beside: Tensor | None = None) -> Tensor:
        """Compute :meth:`forward` of observations that its ``normalization``, if it has one, has normalised already."""
        if self._action_mask is not None:
            observation = self._action_mask.without(observation)
        features = self.features(observation)
        out: Tensor = self.hidden(features if beside is None else torch.cat([features, beside], dim=1))
        return out


class VectorBody(nn.Module):
    """Hidden layers of networks of vectors, such as latent states, in place of observations.

    Args:
        hidden: from vectors to features; without layers, these are the vectors.
    """

    normalization = None

    def __init__(self, hidden: nn.Module) -> None:
        super().__init__()
        self.hidden = hidden
        self.output_size = output_size_of(hidden)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, size) to (B, output_size)."""
        features: Tensor = self.hidden(vectors)
        return features


class RecurrentBody(nn.Module):
    """A body followed by a memory.

    Args:
        body: from an observation to features.
        memory: of these features.
    """

    def __init__(self, body: Body, memory: RecurrentModule) -> None:
        super().__init__()
        self.body = body
        self.memory = memory
        self.output_size = memory.output_size
        self.state_size = memory.state_size
        self.stored_at: slice | None = None
        """Slice of its state in the stored recurrent state (RHS) of a transition; None where it is not stored."""

    @property
    def learns(self) -> bool:
        """Whether any of its weights requires gradients."""
        return _learns(self._modules["memory"]) or _learns(self._modules["body"])

    def forward(self, obs: Any, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step: features (B, size) of observations (B, *obs), and the next state; see ``Memory``."""
        features: tuple[Tensor, Tensor] = self.memory(self.body(obs), state, done)
        return features

    def unroll(self, obs: Any, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute many steps: features (T, B, size) of observations (T, B, *obs), and states; see ``Memory``."""
        return self.memory.unroll(self.features(obs, done), state, done, states=states)

    def features(self, obs: Any, done: Tensor) -> Tensor:
        """Return the inputs (T, B, features) of the memory for observations (T, B, *obs)."""
        features: Tensor = self.body(flat(obs)).unflatten(0, done.shape[:2])
        return features

    def unroll_packed(self, obs: Any, state: Tensor, done: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """Compute packed episodes, laid out as in torch's ``PackedSequence``.

        Args:
            obs: (N, *obs): first steps of all episodes, the longest episode first, then the second steps, and so on.
            state: (B, state_size) before the first steps, the longest episode first.
            done: (N, 1).
            sizes: for each of T steps, the number of episodes that have it.

        Returns:
            Features (N, size), and the state after each step (N, state_size).
        """
        shown, states = [], []
        for features, begins in zip(torch.split(self.body(obs), sizes), torch.split(done, sizes), strict=True):
            output, state = self.memory(features, state[: len(features)], begins)
            shown.append(output)
            states.append(state)
        return torch.cat(shown), torch.cat(states)

    def initial_state(self, batch: int, device: torch.device | None = None) -> Tensor:
        """Return (batch, state_size) zeros; on the CPU unless a device is given."""
        return torch.zeros((batch, self.state_size), device=device)


def _learns(module: nn.Module | None) -> bool:
    """Whether any weight requires gradients, without the cost of `parameters()` in each update."""
    if module is None:
        return False
    for parameter in module._parameters.values():
        if parameter is not None and parameter.requires_grad:
            return True
    return any(_learns(child) for child in module._modules.values())


def flat(value: Any) -> Any:
    """Flatten (T, B, ...) to (T * B, ...), of a tensor or a dict of such."""
    if isinstance(value, dict):
        return {name: part.flatten(0, 1) for name, part in value.items()}
    return value.flatten(0, 1)
