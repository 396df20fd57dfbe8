"""Which observations are images, and how their pixels lie."""

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor

PIXELS_OF_NATURE_CNN = 36
"""That it needs each way."""
PIXELS_OF_SMALL_CNN = 3
"""That it needs each way."""


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
    if layout.axes == 2 and (space.dtype != "uint8" or pixels < PIXELS_OF_NATURE_CNN):
        return None
    if isinstance(space, spaces.Box) and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        return None
    if pixels >= PIXELS_OF_NATURE_CNN:
        return "nature_cnn"
    return "small_cnn" if pixels >= PIXELS_OF_SMALL_CNN else None
