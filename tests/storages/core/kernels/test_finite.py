"""A single NaN or infinity is found in every position."""

import numpy as np
import pytest

from storages.core.kernels.insert import all_finite


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_single_non_finite_number_is_found_in_every_position(dtype: type, number: float) -> None:
    limits = np.finfo(dtype)
    values = np.array([0, -0.0, limits.max, limits.min, limits.smallest_subnormal] * 3, dtype)
    assert all_finite(values)
    assert all_finite(values[:0])
    for position in range(len(values)):
        kept, values[position] = values[position], number
        assert not all_finite(values)
        values[position] = kept
