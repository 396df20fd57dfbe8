"""Samplers draw all rows with equal probability, or each row once."""

import numpy as np
import pytest

from storages.core.parts import Request
from storages.core.ring.ring import Ring
from storages.core.sampling import uniform as samplers
from storages.core.windows.n_step import NSteps


def test_uniform_draws_cover_exactly_the_stored_rows() -> None:
    ring = Ring(5, "test", 1)
    ring.steps = 10**12 + 5
    request = Request(np.random.default_rng(0), ring, NSteps(), 1000, 10**12, 1, 1)
    rows = samplers.UniformSampler().draw(request)
    assert rows.transitions.dtype == np.int64
    assert set(rows.transitions.tolist()) == set(range(10**12, 10**12 + 5))
    assert rows.weights.shape == (1000, 1)
    assert (rows.weights == 1).all()


@pytest.mark.parametrize(("count", "parts"), [(1, 1), (12, 3), (13, 3), (5, 5)])
def test_a_permutation_has_every_row_once_in_parts_of_nearly_equal_size(count: int, parts: int) -> None:
    permuted = list(samplers.permuted(np.random.default_rng(0), np.arange(7, 7 + count), parts))
    assert len(permuted) == parts
    assert sorted(np.concatenate(permuted).tolist()) == list(range(7, 7 + count))
    assert max(map(len, permuted)) - min(map(len, permuted)) <= 1


def test_permutations_are_uniform_at_every_position() -> None:
    generator, counts = np.random.default_rng(0), np.zeros((5, 5))
    for _ in range(4000):
        order = np.concatenate(list(samplers.permuted(generator, np.arange(5), 2)))
        counts[np.arange(5), order] += 1
    chi_square = ((counts - 800) ** 2 / 800).sum()
    assert chi_square < 39.3  # 0.999 quantile of 16 degrees of freedom
