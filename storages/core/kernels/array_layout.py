"""A check that arrays lie in memory as :func:`storages.core.kernels.memory.describe` reads them."""

import ctypes
import functools
import platform
import warnings

import numpy as np

from storages.core.kernels import memory
from storages.core.kernels.memory import ADDRESS, DESCRIBED, KIND, LENGTHS, data_address, describe, kind_of

_ADDRESS_BYTES = 8


@functools.cache
def can_describe() -> bool:
    """Return whether `describe` reads arrays correctly in this process; warn once where it does not."""
    # Pointers are compared first: `describe` follows them.
    if _pointers_fit() and _descriptions_fit():
        return True
    warnings.warn(
        f"storages: Python {platform.python_version()} and NumPy {np.__version__} keep arrays in memory in another way "
        f"than is known here; steps are inserted by plain Python, which is right, but many times slower. Use NumPy 2 "
        f"with a 64-bit CPython, or a newer version of storages",
        RuntimeWarning,
        stacklevel=2,
    )
    return False


def _pointers_fit() -> bool:
    array = np.zeros((3, 5))
    expected = (
        (array, np.ndarray.__basicsize__, memory._TYPE, id(np.ndarray)),
        (array, np.ndarray.__basicsize__, memory._DATA, data_address(array)),
        (array, np.ndarray.__basicsize__, memory._DTYPE, id(array.dtype)),
        ((array,), tuple.__basicsize__ + _ADDRESS_BYTES, memory._FIRST_OF_TUPLE, id(array)),
    )
    if ctypes.sizeof(ctypes.c_void_p) != _ADDRESS_BYTES:
        return False
    return all(
        offset + _ADDRESS_BYTES <= size and ctypes.c_int64.from_address(id(owner) + offset).value == pointer
        for owner, size, offset, pointer in expected
    )


def _descriptions_fit() -> bool:
    plain = (np.zeros((2, 3, 4), np.float32), np.zeros(7, np.bool_), np.zeros((), np.int64), np.zeros((1, 2), np.uint8))
    others = (np.zeros((3, 4), order="F"), np.zeros(5, np.dtype(np.float64).newbyteorder()), np.zeros((3, 8))[:, ::2])
    arrays = plain + others
    expected = np.zeros((len(arrays), DESCRIBED), np.int64)
    for number, array in enumerate(arrays):
        expected[number, ADDRESS] = data_address(array)
        expected[number, KIND] = kind_of(array.dtype, array.ndim) if number < len(plain) else -1
        expected[number, LENGTHS : LENGTHS + array.ndim] = array.shape
    found = np.full_like(expected, -2)
    return bool(describe(found, id(arrays), id(np.ndarray))) and np.array_equal(found, expected)
