"""Observations as targets of a world model, and the decoder that predicts them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.encoders import features_of, output_size_of
from pytorchrl.agent.actors.encoders.convolutions import ImageLayout, image_layout, suitable_cnn
from pytorchrl.agent.ops.two_hot import symlog

_COARSEST = 8
"""Largest height or width of the images from which the decoder's convolutions begin."""
_FEWEST_CHANNELS, _MOST_CHANNELS = 16, 64


class SymlogObservations(nn.Module):
    """Observations whose numbers, but not pixels and choices, are compressed by a symmetric logarithm.

    Args:
        space: of one observation.
        normalization: of the numbers before that; None for none.
    """

    def __init__(self, space: gym.Space[Any], normalization: nn.Module | None) -> None:
        super().__init__()
        self.normalization = normalization
        self._names = [
            name
            for name, part in _parts_of(space).items()
            if isinstance(part, spaces.Box) and suitable_cnn(part) is None
        ]
        self._is_dict = isinstance(space, spaces.Dict)

    def forward(self, observation: Any) -> Any:
        """Convert observations (B, *obs), or a dict of such."""
        if self.normalization is not None:
            observation = self.normalization(observation)
        if not self._is_dict:
            return _compressed(observation) if self._names else observation
        return observation | {name: _compressed(observation[name]) for name in self._names}


def _compressed(numbers: Tensor) -> Tensor:
    # Large float64 numbers have digits that float32 lacks.
    return symlog(numbers if numbers.dtype is torch.float64 else numbers.float()).float()


class ObservationTargets(nn.Module):
    """What a decoder predicts of observations, part by part: pixels in [0, 1], all else as vectors.

    Args:
        space: of one observation.
        symlog: converts the numbers.
    """

    def __init__(self, space: gym.Space[Any], symlog: SymlogObservations) -> None:
        super().__init__()
        self._symlog = symlog
        self._is_dict = isinstance(space, spaces.Dict)
        parts = _parts_of(space)
        self.images = {name: _Image.of(part) for name, part in parts.items() if suitable_cnn(part) is not None}
        self._names = [name for name in parts if name not in self.images]
        self.vectors = nn.ModuleList(features_of(parts[name], "uniform", "mlp") for name in self._names)

    def forward(self, observation: Any) -> list[Tensor]:
        """Return vectors (N, size) and images (N, C, H, W) for observations (N, *obs), or a dict of such."""
        raw = observation if self._is_dict else {"": observation}
        converted = self._symlog(observation)
        converted = converted if self._is_dict else {"": converted}
        vectors = [features(converted[name]) for name, features in zip(self._names, self.vectors, strict=True)]
        return [*vectors, *(image.scaled(raw[name]) for name, image in self.images.items())]


def squared_error(predicted: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Return the squared error (N, 1), summed over all numbers and pixels of an observation."""
    errors = [
        (ours - theirs).square().flatten(1).sum(1, keepdim=True) for ours, theirs in zip(predicted, target, strict=True)
    ]
    return torch.stack(errors).sum(0)


@dataclass(frozen=True)
class ObservationHead:
    """The last layers of a decoder.

    Args:
        targets: what it predicts.
    """

    targets: ObservationTargets

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to predictions as :class:`ObservationTargets` returns them."""
        return _ObservationLayers(features, self.targets, actor)


class _ObservationLayers(nn.Module):
    def __init__(self, features: int, targets: ObservationTargets, actor: Actor) -> None:
        super().__init__()
        self._sizes = [output_size_of(part) for part in targets.vectors]
        self.vectors = actor.linear(features, sum(self._sizes)) if self._sizes else None
        self.images = nn.ModuleList(_ImageDecoder(features, image.layout) for image in targets.images.values())

    def forward(self, features: Tensor) -> list[Tensor]:
        vectors = [] if self.vectors is None else self.vectors(features).split(self._sizes, 1)
        return [*vectors, *(image(features) for image in self.images)]


class _ImageDecoder(nn.Module):
    """Convolutions of images whose height and width double from layer to layer.

    Args:
        features: numbers in.
        layout: of the images.
    """

    def __init__(self, features: int, layout: ImageLayout) -> None:
        super().__init__()
        # The finest first.
        self._sizes = [(layout.height, layout.width)]
        while max(self._sizes[-1]) > _COARSEST:
            height, width = self._sizes[-1]
            self._sizes.append((-(-height // 2), -(-width // 2)))
        channels = [min(_FEWEST_CHANNELS * 2**level, _MOST_CHANNELS) for level in range(len(self._sizes))]
        height, width = self._sizes[-1]
        self._coarsest = channels[-1], height, width
        self.linear = nn.Linear(features, channels[-1] * height * width)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels[level], channels[level - 1], 3, padding=1) for level in range(len(channels) - 1, 0, -1)
        )
        self.last = nn.Conv2d(channels[0], layout.channels, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        """(N, features) to (N, C, H, W) in [0, 1]."""
        image = F.silu(self.linear(features)).view(-1, *self._coarsest)
        for convolution, size in zip(self.convolutions, self._sizes[-2::-1], strict=True):
            image = F.silu(convolution(F.interpolate(image, size)))
        pixels: Tensor = self.last(image).sigmoid()
        return pixels


@dataclass(frozen=True)
class _Image:
    layout: ImageLayout
    low: float
    high: float

    @classmethod
    def of(cls, space: gym.Space[Any]) -> "_Image":
        layout = image_layout(space)
        assert layout is not None
        if isinstance(space, spaces.Box):
            return cls(layout, float(space.low.min()), float(space.high.max()))
        return cls(layout, 0.0, 1.0)

    def scaled(self, image: Tensor) -> Tensor:
        """(N, *obs) to (N, C, H, W) in [0, 1]."""
        return (self.layout.channels_first(image).float() - self.low) / max(self.high - self.low, 1e-8)


def _parts_of(space: gym.Space[Any]) -> dict[str, gym.Space[Any]]:
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
