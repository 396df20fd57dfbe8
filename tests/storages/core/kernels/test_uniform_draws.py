"""Integers that are drawn uniformly."""

import numpy as np
import pytest

from storages.core.kernels.uniform_draws import uniform_integers


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 7), (-3, 4), (10**15, 10**15 + 1_000), (5, 5 + 2**32)])
def test_integers_are_the_upper_half_of_the_product_of_random_bits_and_the_range(low: int, high: int) -> None:
    bits = np.random.default_rng(3).bit_generator.random_raw(1_000)
    expected = [low + (int(one) * (high - low) >> 64) for one in bits]
    assert uniform_integers(np.random.default_rng(3), low, high, 1_000).tolist() == expected


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low >= high"):
        uniform_integers(np.random.default_rng(6), 5, 5, 1)
