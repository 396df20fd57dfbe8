"""Convolutional feature extractors, and which observations are images."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.initialisation import Initialisation, orthogonal
from pytorchrl.agent.actors.quick_module import QuickModule

_PIXELS_OF_NATURE_CNN = 36
_PIXELS_OF_SMALL_CNN = 3


@dataclass(frozen=True)
class ImageLayout:
    """How the pixels of an image lie in an observation: (H, W), (C, H, W), (H, W, C), or a stack of the latter two."""

    channels: int
    """Of all images of a stack together."""
    height: int
    width: int
    axes: int
    """Of one observation: 2 without channels, 4 for a stack."""
    channels_last: bool

    def channels_first(self, observation: Tensor) -> Tensor:
        """Observations of any of the layouts to (B, C, H, W)."""
        if self.axes == 2:
            return observation.unsqueeze(1)
        image = observation.movedim(-1, -3) if self.channels_last else observation
        return image.flatten(1, 2) if self.axes == 4 else image

    def __str__(self) -> str:
        return f"{self.height} x {self.width} pixels in {self.channels} channel{'s' * (self.channels > 1)}"


def image_layout(space: gym.Space[Any]) -> ImageLayout | None:
    """The layout of a space that could be one of images; the smaller side is taken for the channels."""
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or len(space.shape) not in (2, 3, 4):
        return None
    axes = len(space.shape)
    if axes == 2:
        height, width = space.shape
        return ImageLayout(1, height, width, axes, channels_last=False)
    stack = space.shape[0] if axes == 4 else 1
    first, middle, last = space.shape[-3:]
    if last < first:
        return ImageLayout(stack * last, first, middle, axes, channels_last=True)
    return ImageLayout(stack * first, middle, last, axes, channels_last=False)


def suitable_cnn(space: gym.Space[Any]) -> Literal["nature_cnn", "small_cnn"] | None:
    """The network for images of a space, None where its observations are no images.

    Images have three axes (four, if stacked) and bounds, or are tables of uint8 large enough for Nature's network.
    """
    layout = image_layout(space)
    if layout is None:
        return None
    pixels = min(layout.height, layout.width)
    if layout.axes == 2 and (space.dtype != "uint8" or pixels < _PIXELS_OF_NATURE_CNN):
        return None
    if isinstance(space, spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return None
    if pixels >= _PIXELS_OF_NATURE_CNN:
        return "nature_cnn"
    return "small_cnn" if pixels >= _PIXELS_OF_SMALL_CNN else None


class ConvolutionalFeatures(QuickModule):
    """Convolutions and a fully connected layer; uint8 images are scaled to [0, 1] here, on the device.

    Args:
        space: of images.
        convolutions: take (B, C, H, W).
        smallest: pixels that an image needs each way.
        output_size: features out.
        initialisation: "orthogonal" or torch's "uniform".

    Raises:
        ValueError: the observations are no images, or too small.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        convolutions: tuple[tuple[int, int, int], ...],
        smallest: int,
        output_size: int,
        initialisation: Initialisation,
    ) -> None:
        super().__init__()
        layout = image_layout(space)
        if layout is None or min(layout.height, layout.width) < smallest:
            raise ValueError(
                f"{type(self).__name__}: images must be at least {smallest} pixels high and wide, the space is {space}"
            )
        self._layout = layout
        self._bytes = space.dtype == "uint8"
        layers: list[nn.Module] = []
        channels = layout.channels
        for following, kernel, stride in convolutions:
            layers += [nn.Conv2d(channels, following, kernel, stride), nn.ReLU()]
            channels = following
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            shape = self.convolutions(torch.zeros(1, layout.channels, layout.height, layout.width)).shape
        self.linear = nn.Linear(math.prod(shape), output_size)
        self.output_size = output_size
        if initialisation == "orthogonal":
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.Linear):
                    orthogonal(module, math.sqrt(2))

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        image = self._layout.channels_first(observation)
        image = image.float() / 255 if self._bytes else image.float()
        return torch.relu(self.linear(self.convolutions(image).flatten(1)))


class NatureCNN(ConvolutionalFeatures):
    """The network of Mnih et al., "Human-level control through deep reinforcement learning" (2015): 512 features.

    Args:
        space: of images, at least 36 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), _PIXELS_OF_NATURE_CNN, 512, initialisation)


class SmallCNN(ConvolutionalFeatures):
    """The network of Young and Tian, "MinAtar" (arXiv 1903.03176), for images of a few pixels: 128 features.

    Args:
        space: of images, at least 3 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, ((16, 3, 1),), _PIXELS_OF_SMALL_CNN, 128, initialisation)
