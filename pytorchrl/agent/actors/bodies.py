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

from pytorchrl.agent.actors.quick_module import QuickModule, linear

Activation: TypeAlias = Literal["relu", "tanh", "elu", "silu", "gelu"]
Initialisation: TypeAlias = Literal["orthogonal", "uniform"]

_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "elu": F.elu, "silu": F.silu, "gelu": F.gelu}
_NATURE_CNN_FEATURES = 512


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


class NatureCNN(QuickModule):
    """The convolutional network of Mnih et al., "Human-level control through deep reinforcement learning" (2015).

    Images may have their channels first or last (the smaller side is taken for the channels); uint8 images are scaled
    to [0, 1] here, on the device.

    Args:
        space: a Box of three axes, at least 36 pixels each way.
        initialisation: as for :class:`MLP`.
    """

    def __init__(self, space: spaces.Box, initialisation: Initialisation = "orthogonal") -> None:
        super().__init__()
        self._channels_last = space.shape[2] < space.shape[0]
        channels, *pixels = (space.shape[2], *space.shape[:2]) if self._channels_last else space.shape
        if min(pixels) < 36:
            raise ValueError(f"NatureCNN: images must be at least 36 pixels high and wide, the space is {space.shape}")
        self._bytes = space.dtype == "uint8"
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
        )
        with torch.no_grad():
            flattened = self.convolutions(torch.zeros(1, channels, *pixels)).numel()
        self.linear = nn.Linear(flattened, _NATURE_CNN_FEATURES)
        self.output_size = _NATURE_CNN_FEATURES
        if initialisation == "orthogonal":
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.Linear):
                    orthogonal(module, math.sqrt(2))

    def forward(self, observation: Tensor) -> Tensor:
        """(B, C, H, W) or (B, H, W, C) to (B, 512)."""
        image = observation.movedim(-1, 1) if self._channels_last else observation
        image = image.float() / 255 if self._bytes else image.float()
        return torch.relu(self.linear(self.convolutions(image).flatten(1)))


class DictFeatures(QuickModule):
    """The features of every part of a dict observation, side by side in the order of the space."""

    def __init__(self, space: spaces.Dict, initialisation: Initialisation = "orthogonal") -> None:
        super().__init__()
        # By position: a key of the user's may be no legal name of a submodule.
        self.parts = nn.ModuleList(features_of(part, initialisation) for part in space.spaces.values())
        self._keys = list(space.spaces)
        self.output_size: int = sum(part.output_size for part in self.parts)  # type: ignore[misc]

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """A dict of (B, ...) to (B, output_size)."""
        return torch.cat([part(observation[key]) for key, part in zip(self._keys, self.parts, strict=True)], dim=1)


FeatureExtractor: TypeAlias = VectorFeatures | OneHotFeatures | NatureCNN | DictFeatures


def features_of(space: gym.Space[Any], initialisation: Initialisation) -> FeatureExtractor:
    """The feature extractor that suits a space: images through a CNN, dicts part by part, the rest as vectors."""
    if isinstance(space, spaces.Dict):
        return DictFeatures(space, initialisation)
    if isinstance(space, spaces.Discrete):
        return OneHotFeatures(space)
    if is_image(space):
        assert isinstance(space, spaces.Box)
        return NatureCNN(space, initialisation)
    return VectorFeatures(space)


def is_image(space: gym.Space[Any]) -> bool:
    """Whether a space is one of uint8 images, a few channels of pixels."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == "uint8"


class Body(QuickModule):
    """Feature extractor and hidden layers: an observation, and numbers beside it if any, to features.

    Args:
        space: observation space of one environment.
        hidden_sizes: of the fully connected layers behind the feature extractor.
        activation: as for :class:`MLP`.
        initialisation: as for :class:`MLP`.
        beside: numbers (an action) that join the extracted features before the hidden layers.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        hidden_sizes: Sequence[int],
        activation: Activation,
        initialisation: Initialisation,
        beside: int = 0,
    ) -> None:
        super().__init__()
        self.features = features_of(space, initialisation)
        self.hidden = MLP(self.features.output_size + beside, hidden_sizes, activation, initialisation)
        self.output_size = self.hidden.output_size

    def forward(self, observation: Any, beside: Tensor | None = None) -> Tensor:
        """(B, *obs) or a dict of such, and (B, beside), to (B, output_size)."""
        features = self.features(observation)
        out: Tensor = self.hidden(features if beside is None else torch.cat([features, beside], dim=1))
        return out


def orthogonal(layer: nn.Module, gain: float) -> None:
    """Orthogonal weights of a gain, no bias."""
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
