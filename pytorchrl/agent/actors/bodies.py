"""Bodies: networks from observations of any space to feature vectors."""

from collections.abc import Sequence
from typing import Any, Unpack

import gymnasium as gym
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import ActionMask
from pytorchrl.agent.actors.encoders import ExtractorKind, described, features_of, output_size_of
from pytorchrl.agent.actors.layers.initialisation import Initialisation
from pytorchrl.agent.actors.layers.mlp import MLP, Activation, Layers
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization

__all__ = ["MLP", "Activation", "Body", "ExtractorKind", "described"]


class Body(nn.Module):
    """Feature extractor and hidden layers: from observations, and a further vector if any, to features.

    Args:
        space: observation space of one environment.
        hidden_sizes: of the fully connected layers after the feature extractor.
        activation: as for :class:`~pytorchrl.agent.actors.layers.mlp.MLP`.
        initialisation: as for ``MLP``.
        beside: size of a vector (an action) that is concatenated to the extracted features.
        extractor: feature extractor; "auto" takes a CNN for images and vectors otherwise.
        normalization: of observations, before the feature extractor; None for none.
        action_mask: is removed from observations; None where there is none.
        layers: settings of the hidden layers, as for ``MLP``.

    Raises:
        TypeError: a user's extractor does not make a module that returns a Tensor.
        ValueError: the extractor does not fit the space.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
        beside: int = 0,
        extractor: ExtractorKind = "auto",
        normalization: ObservationNormalization | None = None,
        action_mask: ActionMask | None = None,
        **layers: Unpack[Layers],
    ) -> None:
        super().__init__()
        self.normalization = normalization
        self._action_mask = action_mask
        self.features = features_of(space, initialisation, extractor)
        size = output_size_of(self.features) + beside
        mlp = MLP(size, hidden_sizes, activation, initialisation, **layers)
        self.hidden: MLP | nn.Identity = mlp if hidden_sizes or mlp.renorms else nn.Identity()
        self.output_size = mlp.output_size

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
