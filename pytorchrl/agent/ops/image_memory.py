"""A buffer for large batches of images, which each thread reuses.

256 stacks of four frames of 84 x 84 pixels take 29 MB as float32. Freed blocks of that size are returned to the
operating system, so that the next update causes a page fault for every page again: 7 to 14% of an update of PPO on
Atari.
"""

import threading
import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LARGE = 1 << 20
"""Elements of the smallest batch that uses the buffer."""


class ImageMemory(threading.local):
    """A buffer for one large batch in each thread, which lives as long as the thread."""

    def __init__(self) -> None:
        self._numbers: NDArray[np.float32] = np.empty(0, np.float32)
        self._lent: weakref.ref[NDArray[np.float32]] | None = None
        """To the array that tensors in the buffer, and autograd graphs that saved them, keep alive."""

    def empty(self, shape: torch.Size, *, channels_last: bool) -> Tensor:
        """Return an uninitialised float32 tensor (B, C, H, W), in the buffer if it is large and the buffer is free.

        Args:
            shape: of the tensor.
            channels_last: whether to use the channels-last memory format.
        """
        count = shape.numel()
        if count < _LARGE or (self._lent is not None and self._lent() is not None):
            order = torch.channels_last if channels_last else torch.contiguous_format
            return torch.empty(shape, dtype=torch.float32, memory_format=order)
        if len(self._numbers) < count:
            self._numbers = np.empty(0, np.float32)
            # Freed at once, which makes glibc raise its trim threshold to twice the size, up to 64 MB: then the
            # network's other memory is not returned to the operating system either.
            torch.empty(count, dtype=torch.float32)
            self._numbers = torch.empty(count, dtype=torch.float32).numpy()
        lent = self._numbers[:count]
        self._lent = weakref.ref(lent)
        numbers = torch.from_numpy(lent)
        if not channels_last:
            return numbers.view(shape)
        images, channels, height, width = shape
        return numbers.view(images, height, width, channels).permute(0, 3, 1, 2)
