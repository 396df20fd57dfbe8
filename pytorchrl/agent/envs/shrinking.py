"""Downscaling of images by area averaging."""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import parallel_kernel


class Shrinking:
    """Downscale images by area averaging, as OpenCV's ``INTER_AREA``.

    Args:
        shape: height and width of images.
        smaller: height and width of downscaled images, at most as large.
    """

    def __init__(self, shape: tuple[int, int], smaller: tuple[int, int]) -> None:
        self._smaller = smaller
        self._rows, self._row_weights = _areas(shape[0], smaller[0])
        self._columns, weights = _areas(shape[1], smaller[1])
        self._column_weights = np.ascontiguousarray(weights.T)

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a downscaled copy of a greyscale image."""
        shrunk = np.empty(self._smaller, np.uint8)
        _shrink(image, self._rows, self._row_weights, self._columns, self._column_weights, shrunk)
        return shrunk


def _areas(size: int, smaller: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the first pixel of each area (smaller,), and the weights of the pixels from it on (smaller, most)."""
    edges = np.arange(smaller + 1) * size / smaller
    first, beyond = np.floor(edges[:-1] + _TINY).astype(np.int64), np.ceil(edges[1:] - _TINY).astype(np.int64)
    most = int((beyond - first).max())
    # So that no area exceeds the image; pixels before the area have weight 0.
    first = np.minimum(first, size - most)
    pixels = first[:, None] + np.arange(most)
    overlap = np.minimum(pixels + 1, edges[1:, None]) - np.maximum(pixels, edges[:-1, None])
    return first, (overlap.clip(min=0) * (smaller / size)).astype(np.float32)


_TINY = 1e-9
"""Tolerance for rounding errors of pixel positions."""


@parallel_kernel
def _shrink(
    image: NDArray[np.uint8],
    rows: NDArray[np.int64],
    row_weights: NDArray[np.float32],
    columns: NDArray[np.int64],
    column_weights: NDArray[np.float32],
    shrunk: NDArray[np.uint8],
) -> None:
    """Write the downscaled image into ``shrunk``: rows first, which the compiler vectorises."""
    height, width = shrunk.shape
    line, total = np.empty(image.shape[1], np.float32), np.empty(width, np.float32)
    for y in range(height):
        line[:] = 0
        for k in range(row_weights.shape[1]):
            row, weight = image[rows[y] + k], row_weights[y, k]
            for x in range(len(line)):
                line[x] += weight * np.float32(row[x])
        total[:] = 0
        for k in range(len(column_weights)):
            weights = column_weights[k]
            for x in range(width):
                total[x] += weights[x] * line[columns[x] + k]
        for x in range(width):
            shrunk[y, x] = np.uint8(np.rint(total[x]))
