"""Image observations, and convolutional feature extractors."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.linear_layers import Initialisation, orthogonal
from pytorchrl.agent.ops.products import LINEAR
from pytorchrl.agent.ops.scaling import scaled

_PIXELS_OF_IMPALA_CNN = 3
_PIXELS_OF_DRQ_CONVOLUTIONS = 15
_PIXELS_OF_DATA_EFFICIENT_CONVOLUTIONS = 25


class ConvolutionalFeatures(nn.Module, ABC):
    """Convolutions and a fully connected layer; uint8 images are scaled to [0, 1] here, on the device.

    Subclasses define the convolutions in :meth:`layers`.

    Args:
        space: of images.
        smallest: minimum height and width of an image, in pixels.
        output_size: number of features; None for those of the convolutions, without a fully connected layer.
        initialisation: "orthogonal" or torch's "uniform".

    Raises:
        ValueError: the observations are not images, or too small.
    """

    def __init__(
        self, space: gym.Space[Any], smallest: int, output_size: int | None, initialisation: Initialisation
    ) -> None:
        super().__init__()
        layout = image_layout(space)
        if layout is None or min(layout.height, layout.width) < smallest:
            raise ValueError(
                f"{type(self).__name__}: images must be at least {smallest} pixels high and wide, the space is {space}"
            )
        self._layout = layout
        self._largest = _largest_byte(space)
        self.convolutions = nn.Sequential(*self.layers(layout.channels))
        with torch.no_grad():
            shape = self.convolutions(torch.zeros(1, layout.channels, layout.height, layout.width)).shape
        self.maps: tuple[int, int, int] | None = None
        """Channels, height and width of the features, of convolutions without a fully connected layer."""
        if output_size is None:
            self.maps = shape[1], shape[2], shape[3]
        self.linear = None if output_size is None else LINEAR(math.prod(shape), output_size)
        self.output_size = output_size or math.prod(shape)
        if initialisation == "orthogonal":
            for module in self.modules():
                if isinstance(module, nn.Conv2d | nn.Linear):
                    orthogonal(module, math.sqrt(2))

    @abstractmethod
    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Return the convolutions of (B, channels, H, W), without the last activation."""

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        image = self._layout.channels_first(observation)
        # On a CPU, gradients of convolutions are faster in the channels-last format.
        channels_last = torch.is_grad_enabled() and image.device.type == "cpu"
        image = scaled(image, self._largest, channels_last=channels_last)
        # After flattening, which copies, the activation and its gradient are faster.
        features = torch.relu(self.convolutions(image).flatten(1))
        return features if self.linear is None else torch.relu(self.linear(features))


class NatureConvolutions(ConvolutionalFeatures):
    """The convolutions of :class:`NatureCNN` alone: 3,136 features of 84 x 84 pixels.

    Args:
        space: of images, at least 36 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    features: int | None = None

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, PIXELS_OF_NATURE_CNN, self.features, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Three convolutions."""
        return (
            *(nn.Conv2d(channels, 32, 8, 4), nn.ReLU(inplace=True)),
            *(nn.Conv2d(32, 64, 4, 2), nn.ReLU(inplace=True)),
            nn.Conv2d(64, 64, 3, 1),
        )


class NatureCNN(NatureConvolutions):
    """The network of Mnih et al., "Human-level control through deep reinforcement learning" (2015): 512 features."""

    features = 512


class DataEfficientConvolutions(ConvolutionalFeatures):
    """The convolutions of data-efficient Rainbow, without a fully connected layer: 576 features of 84 x 84 pixels.

    Van Hasselt et al., "When to use parametric models in reinforcement learning?" (arXiv 1906.05243), appendix. On a
    CPU they take less than a third of the time of Nature's.

    Args:
        space: of images, at least 25 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, _PIXELS_OF_DATA_EFFICIENT_CONVOLUTIONS, None, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Two convolutions of patches that do not overlap."""
        return nn.Conv2d(channels, 32, 5, 5), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 5, 5)


class DrQConvolutions(ConvolutionalFeatures):
    """The convolutions of DrQ and DrQ-v2, without a fully connected layer: 39,200 features of 84 x 84 pixels.

    Yarats et al., "Mastering Visual Continuous Control" (arXiv 2107.09645), section 3.1. Pixels are scaled
    to [-0.5, 0.5].

    Args:
        space: of images, at least 15 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, _PIXELS_OF_DRQ_CONVOLUTIONS, None, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Four convolutions of 32 channels, the first of stride 2."""
        return (
            *(_Centred(), nn.Conv2d(channels, 32, 3, 2), nn.ReLU(inplace=True)),
            *(nn.Conv2d(32, 32, 3, 1), nn.ReLU(inplace=True)),
            *(nn.Conv2d(32, 32, 3, 1), nn.ReLU(inplace=True)),
            nn.Conv2d(32, 32, 3, 1),
        )


class _Centred(nn.Module):
    """Subtracts 0.5 from pixels in [0, 1]."""

    def forward(self, image: Tensor) -> Tensor:
        """(B, channels, H, W) to the same."""
        return image - 0.5


class SmallConvolutions(ConvolutionalFeatures):
    """The convolution of :class:`SmallCNN` alone: 1,024 features of 10 x 10 pixels.

    Args:
        space: of images, at least 3 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    features: int | None = None

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, PIXELS_OF_SMALL_CNN, self.features, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """One convolution."""
        return (nn.Conv2d(channels, 16, 3, 1),)


class SmallCNN(SmallConvolutions):
    """The network of Young and Tian, "MinAtar" (arXiv 1903.03176), for images of a few pixels: 128 features."""

    features = 128


class ImpalaConvolutions(ConvolutionalFeatures):
    """The convolutions of :class:`ImpalaCNN` alone: 3,872 features of 84 x 84 pixels.

    Args:
        space: of images, at least 3 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    features: int | None = None
    width = 1
    """Factor of the channels."""

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, _PIXELS_OF_IMPALA_CNN, self.features, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Three times a convolution, a max pooling of stride 2, and two residual blocks."""
        modules: list[nn.Module] = []
        for narrow in (16, 32, 32):
            following = narrow * self.width
            modules += [nn.Conv2d(channels, following, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            modules += [ResidualBlock(following), ResidualBlock(following)]
            channels = following
        return modules


class WideImpalaConvolutions(ImpalaConvolutions):
    """The same with four times as many channels, as in BBF (arXiv 2305.19452): 15,488 features of 84 x 84 pixels."""

    width = 4


class ImpalaCNN(ImpalaConvolutions):
    """The residual network of Espeholt et al., "IMPALA" (arXiv 1802.01561, figure 3, right): 256 features."""

    features = 256


class ResidualBlock(nn.Module):
    """Residual block: two convolutions, each preceded by a ReLU, added to the input.

    Args:
        channels: in and out.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        """(B, channels, H, W) to the same."""
        out: Tensor = self.second(torch.relu(self.first(torch.relu(image))))
        return image + out


def _largest_byte(space: gym.Space[Any]) -> int:
    """Return the upper bound of uint8 images; 1 where there is nothing to scale."""
    return max(int(space.high.max()), 1) if isinstance(space, spaces.Box) and space.dtype == "uint8" else 1


PIXELS_OF_NATURE_CNN = 36
"""Minimum height and width of an image."""
PIXELS_OF_SMALL_CNN = 3
"""Minimum height and width of an image."""


@dataclass(frozen=True)
class ImageLayout:
    """The axes of an image observation: (H, W), (C, H, W), (H, W, C), or a stack of one of the latter two."""

    channels: int
    """Of all images of a stack together."""
    height: int
    width: int
    axes: int
    """Number of axes of one observation: 2 without channels, 4 for a stack."""
    channels_last: bool

    def channels_first(self, observation: Tensor) -> Tensor:
        """Convert observations of this layout to (B, C, H, W)."""
        if self.axes == 2:
            return observation.unsqueeze(1)
        image = observation.movedim(-1, -3) if self.channels_last else observation
        return image.flatten(1, 2) if self.axes == 4 else image

    def __str__(self) -> str:
        return f"{self.height} x {self.width} pixels in {self.channels} channel{'s' * (self.channels > 1)}"


def image_layout(space: gym.Space[Any]) -> ImageLayout | None:
    """Return the layout of a space that may hold images, else None.

    Two axes of equal length are height and width. If there are not exactly two, the smaller outer axis counts as
    channels, the last one of a cube.
    """
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or len(space.shape) not in (2, 3, 4):
        return None
    axes = len(space.shape)
    if axes == 2:
        height, width = space.shape
        return ImageLayout(1, height, width, axes, channels_last=False)
    stack = space.shape[0] if axes == 4 else 1
    first, middle, last = space.shape[-3:]
    begins_square = first == middle
    if begins_square or (last < first and middle != last):
        return ImageLayout(stack * last, first, middle, axes, channels_last=True)
    return ImageLayout(stack * first, middle, last, axes, channels_last=False)


def suitable_cnn(space: gym.Space[Any]) -> Literal["nature_cnn", "small_cnn"] | None:
    """Return the CNN for a space, None where its observations are not images.

    Images have three axes (four if stacked) and finite bounds, or are 2D arrays of uint8 large enough for Nature's CNN.
    """
    layout = image_layout(space)
    if layout is None:
        return None
    pixels = min(layout.height, layout.width)
    if layout.axes == 2 and (space.dtype != "uint8" or pixels < PIXELS_OF_NATURE_CNN):
        return None
    if isinstance(space, spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return None
    if pixels >= PIXELS_OF_NATURE_CNN:
        return "nature_cnn"
    return "small_cnn" if pixels >= PIXELS_OF_SMALL_CNN else None
