"""Detection of image observations, and the layout of their axes."""

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor

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
