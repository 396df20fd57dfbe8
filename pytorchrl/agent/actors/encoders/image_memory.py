"""Memory for large batches of images, which a thread uses again.

The floats of 256 stacks of four frames of 84 x 84 pixels take 29 MB. What is freed in blocks of that size goes back to
the system, and the next update pays for every page of it again: 7 to 14% of an update of PPO on Atari.
"""

import threading
import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LARGE = 1 << 20
"""Numbers of the smallest batch that uses the memory."""


class ImageMemory(threading.local):
    """Keeps the memory of one large batch for each thread, as long as the thread lives."""

    def __init__(self) -> None:
        self._numbers: NDArray[np.float32] = np.empty(0, np.float32)
        self._lent: weakref.ref[NDArray[np.float32]] | None = None
        """To what tensors of the memory, and graphs of gradients that hold these, keep alive."""

    def empty(self, shape: torch.Size, *, channels_last: bool) -> Tensor:
        """An uninitialised float32 tensor (B, C, H, W), in this memory where no other tensor is.

        Args:
            shape: of the tensor.
            channels_last: whether the channels of a pixel are to lie side by side.
        """
        count = shape.numel()
        if count < _LARGE or (self._lent is not None and self._lent() is not None):
            order = torch.channels_last if channels_last else torch.contiguous_format
            return torch.empty(shape, dtype=torch.float32, memory_format=order)
        if len(self._numbers) < count:
            self._numbers = np.empty(0, np.float32)
            # Freed at once: from then on glibc keeps twice as much freed memory, up to 64 MB, so that what the network
            # needs beside the images is not given back to the system either.
            torch.empty(count, dtype=torch.float32)
            self._numbers = torch.empty(count, dtype=torch.float32).numpy()
        lent = self._numbers[:count]
        self._lent = weakref.ref(lent)
        numbers = torch.from_numpy(lent)
        if not channels_last:
            return numbers.view(shape)
        images, channels, height, width = shape
        return numbers.view(images, height, width, channels).permute(0, 3, 1, 2)
