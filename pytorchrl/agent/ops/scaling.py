"""Conversion of uint8 images to float32 in [0, 1], in the memory format of convolutions."""

import threading
import weakref
from typing import Any

import numpy as np
import torch
from numba.np.numpy_support import carray
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.ops.dispatch import MOST_THREADS, address_of, is_recorded
from storages.core.kernels.compilation import inlined_kernel, parallel_kernel
from storages.core.kernels.memory import pointer


def scaled(image: Tensor, largest: int, *, channels_last: bool) -> Tensor:
    """Convert images (B, C, H, W) of any dtype to float32, divided by ``largest``.

    Args:
        image: not changed.
        largest: divisor, at least 1.
        channels_last: whether to use the channels-last memory format; False leaves the format.
    """
    if _is_of_bytes(image):
        is_reordered = channels_last and not image.is_contiguous(memory_format=torch.channels_last)
        channels = image.shape[1] if is_reordered else 1
        pixels = image[:1].numel() // channels
        numbers = _memory.empty(image.shape, channels_last=is_reordered or not image.is_contiguous())
        _scale(image.data_ptr(), numbers.data_ptr(), len(image), channels, pixels, np.float32(largest))
        return numbers
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    # Dividing the bytes themselves would take one more copy in newly allocated memory.
    return image.float() if largest == 1 else image.to(torch.float32, copy=True).div_(largest)


def _is_of_bytes(image: Tensor) -> bool:
    """Whether the kernel takes these images: uint8, contiguous in one of the two memory formats."""
    return (
        not is_recorded()
        and image.dtype is torch.uint8
        and torch.get_num_threads() <= MOST_THREADS
        and (image.is_contiguous() or image.is_contiguous(memory_format=torch.channels_last))
        and address_of(image) is not None
    )


@parallel_kernel
def _scale(bytes_at: int, numbers_at: int, images: int, channels: int, pixels: int, largest: Any) -> None:
    """Write (images, channels, pixels) bytes as (images, pixels, channels) quotients by ``largest``."""
    source = carray(pointer(bytes_at), (images, channels, pixels), np.uint8)
    target = carray(pointer(numbers_at), (images, pixels, channels), np.float32)
    # With a constant number of channels, the compiler vectorises the loops.
    if channels == 1:
        _interleave(source, target, 1, largest)
    elif channels == 3:
        _interleave(source, target, 3, largest)
    elif channels == 4:
        _interleave(source, target, 4, largest)
    else:
        _interleave(source, target, channels, largest)


@inlined_kernel
def _interleave(source: NDArray[np.uint8], target: NDArray[np.float32], channels: int, largest: Any) -> None:
    for image in range(source.shape[0]):
        for pixel in range(source.shape[2]):
            for channel in range(channels):
                target[image, pixel, channel] = np.float32(source[image, channel, pixel]) / largest


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


_memory = ImageMemory()
