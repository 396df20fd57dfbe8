"""Convolutional feature extractors."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders.images import PIXELS_OF_NATURE_CNN, PIXELS_OF_SMALL_CNN, image_layout
from pytorchrl.agent.actors.layers.initialisation import Initialisation, orthogonal
from pytorchrl.agent.ops.products import LINEAR
from pytorchrl.agent.ops.scaling import scaled

_PIXELS_OF_IMPALA_CNN = 3


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
        # On a CPU, gradients of convolutions take two thirds of the time in the channels-last format.
        channels_last = torch.is_grad_enabled() and image.device.type == "cpu"
        image = scaled(image, self._largest, channels_last=channels_last)
        # After flattening, which copies, the activation and its gradient are faster: 2% of an update of PPO.
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


class SmallCNN(ConvolutionalFeatures):
    """The network of Young and Tian, "MinAtar" (arXiv 1903.03176), for images of a few pixels: 128 features.

    Args:
        space: of images, at least 3 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, PIXELS_OF_SMALL_CNN, 128, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """One convolution."""
        return (nn.Conv2d(channels, 16, 3, 1),)


class ImpalaCNN(ConvolutionalFeatures):
    """The residual network of Espeholt et al., "IMPALA" (arXiv 1802.01561, figure 3, right): 256 features.

    Args:
        space: of images, at least 3 pixels each way.
        initialisation: "orthogonal" or torch's "uniform".
    """

    def __init__(self, space: gym.Space[Any], initialisation: Initialisation = "orthogonal") -> None:
        super().__init__(space, _PIXELS_OF_IMPALA_CNN, 256, initialisation)

    def layers(self, channels: int) -> Sequence[nn.Module]:
        """Three times a convolution, a max pooling of stride 2, and two residual blocks."""
        modules: list[nn.Module] = []
        for following in (16, 32, 32):
            modules += [nn.Conv2d(channels, following, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            modules += [ResidualBlock(following), ResidualBlock(following)]
            channels = following
        return modules


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
