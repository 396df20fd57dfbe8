"""Bodies: from an observation, whatever its space, to a vector of features."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.convolutions import ConvolutionalFeatures, NatureCNN, SmallCNN, image_layout, suitable_cnn
from pytorchrl.agent.actors.initialisation import Initialisation, orthogonal
from pytorchrl.agent.actors.normalization import ObservationNormalization
from pytorchrl.agent.actors.quick_module import QuickModule, linear

Activation: TypeAlias = Literal["relu", "tanh", "elu", "silu", "gelu"]
ExtractorKind: TypeAlias = Literal["auto", "mlp", "nature_cnn", "small_cnn"]

_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "elu": F.elu, "silu": F.silu, "gelu": F.gelu}
_CNNS = {"nature_cnn": NatureCNN, "small_cnn": SmallCNN}


class MLP(QuickModule):
    """Fully connected layers, each followed by the activation.

    Args:
        input_size: features in.
        hidden_sizes: features out of each layer; none makes the identity.
        activation: what follows each layer.
        initialisation: "orthogonal" with the activation's gain and no bias, or torch's "uniform" within 1/sqrt(inputs).
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        activation: Activation = "relu",
        initialisation: Initialisation = "orthogonal",
    ) -> None:
        super().__init__()
        sizes = [input_size, *hidden_sizes]
        self._layers = [nn.Linear(size, following) for size, following in itertools.pairwise(sizes)]
        self.layers = nn.ModuleList(self._layers)
        self.output_size = sizes[-1]
        self._activation = _ACTIVATIONS[activation]
        if initialisation == "orthogonal":
            for layer in self.layers:
                orthogonal(layer, 5 / 3 if activation == "tanh" else math.sqrt(2))

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, output_size)."""
        for layer in self._layers:
            features = self._activation(linear(layer, features))
        return features


class VectorFeatures(QuickModule):
    """Arrays of numbers, flattened to float32 vectors."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.output_size = math.prod(space.shape or (1,))
        self._flat = len(space.shape or (1,)) == 1

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        flat = observation if self._flat else observation.flatten(1)
        return flat if flat.dtype == torch.float32 else flat.float()


class OneHotFeatures(QuickModule):
    """A Discrete observation as a one-hot vector."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.output_size = int(space.n)
        self._start = int(space.start)

    def forward(self, observation: Tensor) -> Tensor:
        """(B, 1) to (B, output_size)."""
        return F.one_hot(observation[:, 0].long() - self._start, self.output_size).float()


class DictFeatures(QuickModule):
    """The features of every part of a dict observation, side by side in the order of the space.

    Args:
        space: of the observation.
        initialisation: as for :class:`MLP`.
        extractor: of the parts; a CNN that is named is that of the parts that are images.

    Raises:
        ValueError: a CNN is named and no part is an image.
    """

    def __init__(self, space: spaces.Dict, initialisation: Initialisation, extractor: ExtractorKind) -> None:
        super().__init__()
        kinds = {name: extractor_of(part, extractor) for name, part in space.spaces.items()}
        if extractor in _CNNS and extractor not in kinds.values():
            raise ValueError(f"feature_extractor {extractor!r} is for images, there are none in {space}")
        # By position: a key of the user's may be no legal name of a submodule.
        self.parts = nn.ModuleList(
            features_of(part, initialisation, kinds[name]) for name, part in space.spaces.items()
        )
        self._keys = list(space.spaces)
        self.output_size: int = sum(part.output_size for part in self.parts)  # type: ignore[misc]

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """A dict of (B, ...) to (B, output_size)."""
        return torch.cat([part(observation[key]) for key, part in zip(self._keys, self.parts, strict=True)], dim=1)


FeatureExtractor: TypeAlias = VectorFeatures | OneHotFeatures | ConvolutionalFeatures | DictFeatures


def features_of(
    space: gym.Space[Any], initialisation: Initialisation, extractor: ExtractorKind = "auto"
) -> FeatureExtractor:
    """The feature extractor of a space: images through a CNN, dicts part by part, the rest as vectors.

    Raises:
        ValueError: a CNN is named, and the observations are no images, or too small for it.
    """
    if isinstance(space, spaces.Dict):
        return DictFeatures(space, initialisation, extractor)
    if isinstance(space, spaces.Discrete):
        return OneHotFeatures(space)
    kind = (suitable_cnn(space) or "mlp") if extractor == "auto" else extractor
    return VectorFeatures(space) if kind == "mlp" else _CNNS[kind](space, initialisation)


def extractor_of(space: gym.Space[Any], extractor: ExtractorKind) -> ExtractorKind:
    """The extractor of one part of an observation: a CNN that is named is not for parts that are no images."""
    suitable = suitable_cnn(space) or "mlp"
    return extractor if extractor == "mlp" or (extractor != "auto" and suitable != "mlp") else suitable


def described(space: gym.Space[Any], extractor: ExtractorKind) -> str:
    """The feature extractor of a space in words."""
    if isinstance(space, spaces.Dict):
        parts = (f"{name!r}: {described(part, extractor_of(part, extractor))}" for name, part in space.spaces.items())
        return ", ".join(parts)
    if isinstance(space, spaces.Discrete):
        return f"one of {space.n}"
    kind = (suitable_cnn(space) or "mlp") if extractor == "auto" else extractor
    if kind == "mlp":
        size = math.prod(space.shape or (1,))
        return f"vector of {size} number{'s' * (size > 1)}"
    return f"{_CNNS[kind].__name__} of {image_layout(space)}"


class Body(QuickModule):
    """Feature extractor and hidden layers: an observation, and numbers beside it if any, to features.

    Args:
        space: observation space of one environment.
        hidden_sizes: of the fully connected layers behind the feature extractor.
        activation: as for :class:`MLP`.
        initialisation: as for :class:`MLP`.
        beside: numbers (an action) that join the extracted features before the hidden layers.
        extractor: of the features; "auto" takes a CNN for images and vectors else.
        normalization: of observations, before all else.
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
    ) -> None:
        super().__init__()
        self.normalization = normalization
        self.features = features_of(space, initialisation, extractor)
        self.hidden = MLP(self.features.output_size + beside, hidden_sizes, activation, initialisation)
        self.output_size = self.hidden.output_size

    def forward(self, observation: Any, beside: Tensor | None = None) -> Tensor:
        """(B, *obs) or a dict of such, and (B, beside), to (B, output_size)."""
        if self.normalization is not None:
            observation = self.normalization(observation)
        features = self.features(observation)
        out: Tensor = self.hidden(features if beside is None else torch.cat([features, beside], dim=1))
        return out
