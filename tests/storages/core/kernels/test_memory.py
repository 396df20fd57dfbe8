"""Compiled readers return the addresses of arrays, check their shapes, and accept only the types of their signature."""

from typing import Any

import numba
import numpy as np
import pytest
import torch
from numba.core.errors import TypingError
from numpy.typing import NDArray

from storages.core.kernels.insert import CONTEXT, ArrayReader, compiled_reader
from storages.core.kernels.memory import data_address

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]


def context_for(*arrays: NDArray[Any]) -> tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.int64]]:
    """A context for such arrays, and the addresses and lengths that it points to."""
    addresses = np.full(len(arrays), -7)
    lengths = np.array([length for array in arrays for length in array.shape], np.int64)
    context = np.zeros(1, CONTEXT)
    context["sources"], context["lengths"] = data_address(addresses), data_address(lengths)
    return context, addresses, lengths


def reader_for(*arrays: NDArray[Any]) -> ArrayReader:
    return compiled_reader(numba.typeof(arrays))  # type: ignore[no-untyped-call]


def test_a_reader_returns_the_addresses_of_arrays() -> None:
    arrays = tuple(np.zeros(range(1, 2 + number % 4), dtype) for number, dtype in enumerate(DTYPES))
    context, addresses, _ = context_for(*arrays)
    assert reader_for(*arrays)(data_address(context), 0, True, arrays)
    assert addresses.tolist() == [data_address(array) for array in arrays]


def test_the_address_of_a_view_is_that_of_its_first_element() -> None:
    arrays = (np.zeros((5, 4))[2:4], np.zeros((2, 1), bool))
    context, addresses, _ = context_for(*arrays)
    assert reader_for(*arrays)(data_address(context), 0, True, arrays)
    assert addresses.tolist() == [data_address(array) for array in arrays]


@pytest.mark.parametrize("axis", range(5))
def test_a_different_length_of_any_axis_is_detected(axis: int) -> None:
    arrays = np.zeros((2, 3, 4)), np.zeros((2, 1), bool)
    context, _, lengths = context_for(*arrays)
    lengths[axis] += 1
    assert not reader_for(*arrays)(data_address(context), 0, True, arrays)


OTHERS: dict[str, Any] = {
    "None": None,
    "a number": 3.0,
    "a list": [1.0],
    "a tensor": torch.zeros((2, 3)),
    "another dtype": np.zeros((2, 3), np.float32),
    "another number of axes": np.zeros((2, 3, 1)),
    "Fortran order": np.zeros((2, 3), order="F"),
    "not contiguous": np.zeros((2, 6))[:, ::2],
    "the other byte order": np.zeros((2, 3), np.dtype(np.float64).newbyteorder()),
    "unaligned": np.zeros(49, np.uint8)[1:].view(np.float64).reshape(2, 3),
    "fewer arrays": (),
}


@pytest.mark.parametrize("other", OTHERS)
def test_arguments_of_other_types_are_refused(other: str) -> None:
    arrays = np.zeros((2, 3)), np.zeros((2, 3))
    context, addresses, _ = context_for(*arrays)
    given = () if other == "fewer arrays" else (arrays[0], OTHERS[other])
    with pytest.raises(TypeError):
        reader_for(*arrays)(data_address(context), 0, True, given)
    assert (addresses == -7).all()


def test_no_reader_is_compiled_for_non_contiguous_arrays() -> None:
    with pytest.raises(TypingError, match="only arrays in C order"):
        reader_for(np.zeros((2, 6))[:, ::2])
