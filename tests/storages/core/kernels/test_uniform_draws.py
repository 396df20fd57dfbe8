"""Integers that are drawn uniformly."""

import numpy as np
import pytest

from storages.core.kernels.uniform_draws import uniform_integers


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 7), (-3, 4), (10**15, 10**15 + 1_000), (5, 5 + 2**32)])
def test_integers_are_the_upper_half_of_the_product_of_random_bits_and_the_size_of_the_range(
    low: int, high: int
) -> None:
    bits = np.random.default_rng(3).bit_generator.random_raw(1_000)
    expected = [low + (int(one) * (high - low) >> 64) for one in bits]
    assert uniform_integers(np.random.default_rng(3), low, high, 1_000).tolist() == expected


def test_exactly_the_integers_of_the_range_are_drawn_uniformly() -> None:
    drawn = uniform_integers(np.random.default_rng(4), 100, 110, 10_000)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(100, 110))
    # Five standard deviations of a binomial count.
    assert np.abs(counts - 1_000).max() < 5 * np.sqrt(10_000 * 0.1 * 0.9)


def test_ranges_of_more_than_32_bits_are_supported() -> None:
    drawn = uniform_integers(np.random.default_rng(5), 0, 2**40, 1_000)
    assert drawn.min() >= 0
    assert 2**39 < drawn.max() < 2**40


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low >= high"):
        uniform_integers(np.random.default_rng(6), 5, 5, 1)


def test_a_restored_generator_draws_the_same_integers() -> None:
    generator = np.random.default_rng(7)
    uniform_integers(generator, 0, 10, 33)
    state = generator.bit_generator.state
    drawn = uniform_integers(generator, 0, 1_000, 33)
    generator.bit_generator.state = state
    assert uniform_integers(generator, 0, 1_000, 33).tolist() == drawn.tolist()
