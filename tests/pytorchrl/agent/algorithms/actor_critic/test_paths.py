"""Sums along paths, Retrace's targets and the trust region equal those of loops and of a numeric solver."""

from typing import TypeAlias

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.algorithms.actor_critic.acer import trust_region_multiplier
from pytorchrl.agent.algorithms.actor_critic.paths import Paths, discounted_sums, later, retrace
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import SORTED_INDICES
from tests.support.profiles import examples
from tests.support.segments import PATHS, STEPS, backwards, continuing, packed, returns_by_hand, sequences_of

Numbers: TypeAlias = NDArray[np.float64]


def rows_of(batch: dict[str, torch.Tensor]) -> Rows:
    return Rows(batch, make_codec(spaces.Discrete(3), torch.device("cpu"), scaled=False))


def batch() -> dict[str, torch.Tensor]:
    return sequences_of(np.random.default_rng(1).integers(0, 3, (STEPS, PATHS, 1)))


@settings(max_examples=examples(40), deadline=None)
@given(length=st.integers(1, 9), steps=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_discounted_sums_are_those_of_a_loop(length: int, steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    terms, factors = generator.normal(size=(length, 2)), generator.choice([0.0, 0.5, 0.9, 1.0], (length, 2))
    factors[-1] = 0
    sums, products = np.zeros((length, 2)), np.ones((length, 2))
    for t in range(length):
        for k in range(t, min(t + steps, length)):
            sums[t] += products[t] * terms[k]
            products[t] *= factors[k]
    found = discounted_sums(*(torch.from_numpy(each)[..., None] for each in (terms, factors)), steps)
    for ours, theirs in zip(found, (sums, products), strict=True):
        np.testing.assert_allclose(ours[..., 0], theirs, rtol=1e-9, atol=1e-12)


def test_paths_end_with_their_episode_and_before_padding() -> None:
    one = batch()
    paths = Paths(rows_of(one))
    expected = [[float(continuing(one, t, b)) for b in range(PATHS)] for t in range(STEPS)]
    assert paths.continues[..., 0].tolist() == expected
    assert later(paths.continues, 9).eq(0).all()


def test_packed_rows_are_ordered_in_time_as_padded_ones() -> None:
    one = batch()
    (compact, places), padded = packed(one), Paths(rows_of(one))
    paths, values = Paths(rows_of(compact)), torch.randn(len(places), 1)
    in_time = paths.in_time(values)
    assert torch.equal(paths.rows(in_time), values)
    columns = compact[SORTED_INDICES].tolist()
    for number, (t, b) in enumerate(places):
        assert in_time[t, columns.index(b)] == values[number]
        assert paths.continues[t, columns.index(b)] == padded.continues[t, b]


@pytest.mark.parametrize("is_packed", [False, True])
def test_retraces_targets_are_those_of_its_recursion(is_packed: bool) -> None:
    one = batch()
    generator = np.random.default_rng(2)
    taken, value, next_value = generator.normal(size=(3, STEPS, PATHS))
    trace = np.minimum(1, generator.uniform(0, 2, (STEPS, PATHS)))
    expected = returns_by_hand(one, taken, value, next_value, trace)
    given_ = [torch.from_numpy(each).float() for each in (taken, value, next_value, trace)]
    if not is_packed:
        rows = rows_of(one)
        found = retrace(Paths(rows), rows, *(each.reshape(-1, 1) for each in given_)).view(STEPS, PATHS)
        for t, b in backwards(one):
            np.testing.assert_allclose(found[t, b], expected[t, b], rtol=1e-5, atol=1e-6)
        return
    compact, places = packed(one)
    rows = rows_of(compact)
    found = retrace(Paths(rows), rows, *(torch.stack([each[place] for place in places])[:, None] for each in given_))
    np.testing.assert_allclose(found[:, 0], [expected[place] for place in places], rtol=1e-5, atol=1e-6)


def projected_by_iteration(gradient: Numbers, slope: Numbers, limit: float) -> Numbers:
    """Argmin of half the squared distance to the gradient, by gradient ascent on the constraint's multiplier."""
    multiplier, z = 0.0, gradient
    for _ in range(300):
        z = gradient - multiplier * slope
        multiplier = max(0.0, multiplier + 0.1 / (slope @ slope) * (slope @ z - limit))
    return z


def test_the_trust_regions_projection_equals_a_numeric_solution() -> None:
    generator = np.random.default_rng(0)
    limit = 0.7
    gradients = [generator.normal(size=(20, 2, 2)), generator.normal(size=(20, 3))]
    slopes = [generator.normal(size=(20, 2, 2)), generator.normal(size=(20, 3))]
    multiplier = trust_region_multiplier(*([torch.from_numpy(e) for e in each] for each in (gradients, slopes)), limit)
    found = [
        g - multiplier.numpy().reshape(20, *[1] * (g.ndim - 1)) * k for g, k in zip(gradients, slopes, strict=True)
    ]
    flat_g, flat_k, flat_z = (
        np.concatenate([part.reshape(20, -1) for part in parts], 1) for parts in (gradients, slopes, found)
    )
    free = (flat_g * flat_k).sum(1) <= limit
    assert 0 < free.sum() < 20
    assert ((flat_z * flat_k).sum(1) <= limit + 1e-9).all()
    np.testing.assert_array_equal(flat_z[free], flat_g[free])
    for g, k, z in zip(flat_g, flat_k, flat_z, strict=True):
        np.testing.assert_allclose(z, projected_by_iteration(g, k, limit), atol=1e-6)


def test_gradients_are_not_changed_if_the_divergence_has_no_gradient() -> None:
    gradient = torch.tensor([[3.0, -2.0], [0.0, 0.0]])
    assert torch.equal(trust_region_multiplier([gradient], [torch.zeros(2, 2)], 1.0), torch.zeros(2, 1))
