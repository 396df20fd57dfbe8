"""What compiled code reads of arrays is what NumPy says of them."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from storages.core.kernels.memory import (
    ADDRESS,
    DESCRIBED,
    KIND,
    LENGTHS,
    MOST_AXES,
    data_address,
    describe,
    kind_of,
)

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


def described(*arrays: object) -> NDArray[np.int64] | None:
    said = np.full((len(arrays), DESCRIBED), -7, np.int64)
    return said if describe(said, id(arrays), id(np.ndarray)) else None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", range(MOST_AXES + 3))
def test_where_an_array_lies_and_what_it_is_is_read(dtype: str, axes: int) -> None:
    array = np.zeros(range(1, axes + 1), dtype)
    said = described(np.zeros(3), array)
    assert said is not None
    lengths = array.shape[:MOST_AXES] + (0,) * (MOST_AXES - axes)
    assert said[1].tolist() == [data_address(array), kind_of(array.dtype, axes), *lengths]


def test_kinds_tell_dtypes_and_numbers_of_axes_apart() -> None:
    kinds = [kind_of(np.dtype(dtype), axes) for dtype in DTYPES for axes in range(2 * MOST_AXES)]
    assert len(set(kinds)) == len(kinds)


def test_an_array_of_another_kind_is_said_to_be_one() -> None:
    in_columns = np.zeros((3, 4), order="F")
    apart = np.zeros((3, 8))[:, ::2]
    begins_between = np.zeros(33, np.uint8)[1:].view(np.float64)
    other_order = np.zeros(3, np.dtype(np.float64).newbyteorder())
    for array in (in_columns, apart, begins_between, other_order):
        said = described(array)
        assert said is not None
        assert said[0, ADDRESS] == data_address(array)
        assert said[0, KIND] == -1
        assert said[0, LENGTHS] == len(array)


def test_a_view_is_read_where_it_begins() -> None:
    view = np.zeros((5, 4))[2:4]
    said = described(view)
    assert said is not None
    assert said[0].tolist() == [data_address(view), kind_of(view.dtype, 2), 2, 4, 0, 0, 0, 0]


@pytest.mark.parametrize("other", [None, 3.0, [1.0], torch.zeros(3), np.float64(1), np.ma.masked_array([1.0])])
def test_what_is_no_plain_array_is_found(other: object) -> None:
    assert described(np.zeros(3), other) is None
    assert described(other, np.zeros(3)) is None
