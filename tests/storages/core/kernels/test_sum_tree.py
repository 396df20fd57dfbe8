"""The sum tree draws the leaves that a cumulative sum over a plain array draws, and never a dead leaf."""

import copy
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from numpy.typing import NDArray

from storages.core.kernels.sum_tree import LARGEST_MASS, SumTree
from tests.support.profiles import examples

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LAST_BELOW_ONE = math.nextafter(1.0, 0.0)
SIZES = (1, 2, 7, 8, 9, 63, 64, 65, 500, 513, 4097)
# A sum of n numbers has at most n rounding errors, and a search subtracts once per level.
ROUNDING = 1e-11


def masses_of_all_sizes(generator: np.random.Generator, count: int, dead: float = 0.3) -> Floats:
    """Masses from 1e-12 to 1e12, some of them 0."""
    masses = 10 ** generator.uniform(-12, 12, count)
    masses[generator.random(count) < dead] = 0
    return masses


def tree_of(size: int, seed: int = 0) -> SumTree:
    return SumTree.from_leaves(0.05 + np.random.default_rng(seed).random(size))


def assert_bitwise_equal(tree: SumTree, other: SumTree) -> None:
    """Includes inner sums, minima and maxima."""
    np.testing.assert_array_equal(tree._nodes, other._nodes)


def assert_drawn_as_by_a_cumulative_sum(
    leaves: Floats, uniforms: Floats, first: int, last: int, stratified: bool, numbers: Integers
) -> None:
    """Each draw is a live leaf of the window, and lies in the interval of its mass up to rounding errors."""
    everything = last - first == len(leaves)
    order = np.arange(len(leaves)) if everything else np.arange(first, last) % len(leaves)
    assert ((first <= numbers) & (numbers < last)).all()
    assert (leaves[numbers % len(leaves)] > 0).all()
    ends = np.cumsum(leaves[order])
    sought = uniforms * ends[-1]
    if stratified:
        sought = (np.arange(len(uniforms)) + uniforms) / len(uniforms) * ends[-1]
    place = np.empty(len(leaves), np.int64)
    place[order] = np.arange(len(order))
    places = place[numbers % len(leaves)]
    slack = ROUNDING * ends[-1]
    assert (sought <= ends[places] + slack).all()
    assert (sought >= ends[places] - leaves[order][places] - slack).all()


def chi_square_is_plausible(counts: Integers, shares: Floats) -> bool:
    """Whether these counts are no worse than the 0.999 quantile (Wilson and Hilferty) for draws by these shares."""
    expected = shares / shares.sum() * counts.sum()
    assert expected.min() > 5
    freedom = len(counts) - 1
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    return bool((((counts - expected) ** 2) / expected).sum() < quantile)


class TreeAndArray(RuleBasedStateMachine):
    """The tree compared with a plain array. An operation sets or draws a leaf, or sums a window."""

    operations = 0

    @initialize(size=st.one_of(st.integers(1, 9), st.integers(10, 700)))
    def begin(self, size: int) -> None:
        self.tree = SumTree(size)
        self.model = np.zeros(size)

    @rule(data=st.data())
    def set_some(self, data: st.DataObject) -> None:
        leaf = st.integers(0, len(self.model) - 1)
        mass = st.one_of(st.just(0.0), st.floats(1e-12, 1e12))
        chosen = data.draw(st.lists(st.tuples(leaf, mass), min_size=1, max_size=5))
        self.set_leaves(np.array([leaf for leaf, _ in chosen]), np.array([mass for _, mass in chosen]))

    @rule(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 100), dead=st.sampled_from([0.0, 0.5, 1.0]))
    def set_many(self, seed: int, count: int, dead: float) -> None:
        generator = np.random.default_rng(seed)
        leaves = generator.integers(0, len(self.model), count)
        self.set_leaves(leaves, masses_of_all_sizes(generator, count, dead))

    @rule(data=st.data(), mass=st.sampled_from([0.0, 1.0, 1e6]))
    def set_a_range_to_one_mass(self, data: st.DataObject, mass: float) -> None:
        first = data.draw(st.integers(0, len(self.model) - 1))
        count = data.draw(st.integers(0, min(50, len(self.model) - first)))
        self.tree.set(np.arange(first, first + count), mass)
        self.model[first : first + count] = mass
        self.count(count)

    @rule(data=st.data(), mass=st.sampled_from([0.0, 1e-12, 3.0, 1e12]))
    def set_a_stretch_that_wraps_around(self, data: st.DataObject, mass: float) -> None:
        size = len(self.model)
        first = data.draw(st.integers(0, size - 1))
        count = data.draw(st.integers(0, min(50, size)))
        cleared = data.draw(st.integers(0, min(20, size - count)))
        self.tree.set_stretch(first, count, mass, cleared)
        self.model[np.arange(first, first + count) % size] = mass
        self.model[np.arange(first + count, first + count + cleared) % size] = 0
        self.count(count + cleared)

    @rule(seed=st.integers(0, 2**32 - 1), stratified=st.booleans(), count=st.integers(1, 60))
    def draw_from_all(self, seed: int, stratified: bool, count: int) -> None:
        self.draw(0, len(self.model), seed, stratified, count)

    @rule(data=st.data(), seed=st.integers(0, 2**32 - 1), stratified=st.booleans(), count=st.integers(1, 60))
    def draw_from_a_window(self, data: st.DataObject, seed: int, stratified: bool, count: int) -> None:
        first = data.draw(st.integers(0, 3 * len(self.model)))
        self.draw(first, first + data.draw(st.integers(1, len(self.model))), seed, stratified, count)

    @rule(clear=st.integers(0, 9))
    def rarely_clear(self, clear: int) -> None:
        if clear == 0:
            self.tree.clear()
            self.model[:] = 0
            self.count(1)

    @invariant()
    def equals_the_array(self) -> None:
        live = self.model[self.model > 0]
        assert self.tree.total == pytest.approx(math.fsum(live), rel=1e-13)
        assert self.tree.minimum == live.min(initial=math.inf)
        assert self.tree.maximum == live.max(initial=0)
        np.testing.assert_array_equal(self.tree.leaves, self.model)
        assert_bitwise_equal(self.tree, SumTree.from_leaves(self.model))

    def set_leaves(self, leaves: Integers, masses: Floats) -> None:
        self.tree.set(leaves, masses)
        for leaf, mass in zip(leaves, masses, strict=True):
            self.model[leaf] = mass
        self.count(len(leaves))

    def draw(self, first: int, last: int, seed: int, stratified: bool, count: int) -> None:
        masses = self.model[np.arange(first, last) % len(self.model)]
        assert self.tree.mass(first, last) == pytest.approx(math.fsum(masses), rel=1e-13)
        uniforms = np.random.default_rng(seed).random(count)
        uniforms[0], uniforms[-1] = 0.0, LAST_BELOW_ONE
        if not masses.any():
            with pytest.raises(ValueError, match="no mass"):
                self.tree.sample(uniforms, first, last, stratified)
            return
        numbers, drawn = self.tree.sample(uniforms, first, last, stratified)
        np.testing.assert_array_equal(drawn, self.model[numbers % len(self.model)])
        assert_drawn_as_by_a_cumulative_sum(self.model, uniforms, first, last, stratified, numbers)
        self.count(count + 1)

    def count(self, operations: int) -> None:
        type(self).operations += operations


@pytest.mark.long
def test_thousands_of_operations_agree_with_a_plain_array() -> None:
    TreeAndArray.operations = 0
    run_state_machine_as_test(
        TreeAndArray,
        settings=settings(max_examples=examples(250), stateful_step_count=80, deadline=None, derandomize=True),
    )
    assert TreeAndArray.operations > 400 * examples(250)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("size", SIZES)
def test_no_dead_leaf_is_drawn_for_any_random_number(size: int) -> None:
    generator = np.random.default_rng(size)
    edges = np.array([0.0, 5e-324, 1e-300, 0.5, LAST_BELOW_ONE, math.nextafter(LAST_BELOW_ONE, 0)])
    for _ in range(200):
        leaves = masses_of_all_sizes(generator, size, dead=generator.choice([0.1, 0.9, 0.99]))
        # Dead leaves at the end are those that a rounding error would reach.
        leaves[size - generator.integers(0, size) :] = 0
        leaves[generator.integers(0, size)] = 10 ** generator.uniform(-12, 12)
        tree = SumTree.from_leaves(leaves)
        # The borders between leaves, where rounding errors can change a draw.
        shares = np.cumsum(leaves) / leaves.sum()
        near = np.concatenate([shares, np.nextafter(shares, 0), np.nextafter(shares, 2), generator.random(20)])
        uniforms = np.concatenate([edges, near[near < 1]])
        for window in ((0, size), (size - 1, 2 * size - 1), (size // 2, size), (size // 2, size + size // 3)):
            for stratified in (False, True):
                if tree.mass(*window) > 0:
                    numbers, masses = tree.sample(uniforms, *window, stratified)
                    assert (masses > 0).all()
                    assert_drawn_as_by_a_cumulative_sum(leaves, uniforms, *window, stratified, numbers)


@pytest.mark.parametrize("mass", [5e-324, 1e-310, 1e-12, 1.0, 1e12, LARGEST_MASS])
@pytest.mark.parametrize("size", SIZES)
def test_the_only_live_leaf_is_always_drawn(size: int, mass: float) -> None:
    tree = SumTree(size)
    for leaf in {0, size // 2, size - 1}:
        tree.clear()
        tree.set(np.array([leaf]), mass)
        assert (tree.total, tree.minimum, tree.maximum) == (mass, mass, mass)
        numbers, masses = tree.sample(np.array([0.0, 0.3, LAST_BELOW_ONE]))
        assert numbers.tolist() == [leaf] * 3
        assert masses.tolist() == [mass] * 3


def test_a_million_leaves_of_the_largest_mass_have_a_finite_sum() -> None:
    tree = SumTree.from_leaves(np.full(1_000_000, LARGEST_MASS))
    assert math.isfinite(tree.total)
    assert tree.total == pytest.approx(1_000_000 * LARGEST_MASS)


@pytest.mark.parametrize(("first", "last"), [(40, 170), (250, 320), (299, 301), (1_234, 1_500), (700, 1_000)])
@pytest.mark.parametrize("stratified", [False, True])
def test_draws_from_a_window_are_proportional_even_if_it_wraps_around(first: int, last: int, stratified: bool) -> None:
    generator = np.random.default_rng(3)
    tree = tree_of(300)
    counts = np.zeros(last - first, np.int64)
    for _ in range(200):
        numbers, masses = tree.sample(generator.random(1_000), first, last, stratified)
        np.testing.assert_array_equal(masses, tree.leaves[numbers % 300])
        counts += np.bincount(numbers - first, minlength=last - first)
    assert chi_square_is_plausible(counts, tree.leaves[np.arange(first, last) % 300])


def test_a_light_window_between_heavy_leaves_keeps_its_proportions() -> None:
    leaves = np.full(1_000, 1e12)
    leaves[400:420] = np.linspace(1e-12, 5e-12, 20)
    tree = SumTree.from_leaves(leaves)
    assert tree.mass(400, 420) == pytest.approx(leaves[400:420].sum(), rel=1e-14)
    numbers, _ = tree.sample(np.random.default_rng(4).random(200_000), 400, 420, stratified=False)
    assert chi_square_is_plausible(np.bincount(numbers - 400, minlength=20), leaves[400:420])


def test_a_million_updates_accumulate_no_rounding_errors() -> None:
    generator = np.random.default_rng(6)
    tree = SumTree(10_007)
    for _ in range(4_000):
        tree.set(generator.integers(0, 10_007, 250), masses_of_all_sizes(generator, 250))
    assert_bitwise_equal(tree, SumTree.from_leaves(tree.leaves))
    assert tree.total == pytest.approx(math.fsum(tree.leaves), rel=1e-13)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda tree: pickle.loads(pickle.dumps(tree))])
@pytest.mark.parametrize("size", SIZES)
def test_a_copy_is_equal_to_the_tree_and_independent_of_it(again: Any, size: int) -> None:
    tree = SumTree.from_leaves(masses_of_all_sizes(np.random.default_rng(8), size) + 1e-3)
    other = again(tree)
    assert len(other) == size
    assert_bitwise_equal(other, tree)
    uniforms = np.random.default_rng(9).random(64)
    np.testing.assert_array_equal(other.sample(uniforms)[0], tree.sample(uniforms)[0])
    kept = tree.leaves
    other.set(np.arange(size), 2.0)
    other.sample(uniforms)
    np.testing.assert_array_equal(tree.leaves, kept)
    assert other.total == 2 * size


def test_given_and_returned_leaves_are_copies() -> None:
    leaves = np.ones(10)
    tree = SumTree.from_leaves(leaves)
    leaves[:] = 5
    tree.leaves[:] = 7
    assert tree.total == 10
    assert tree.leaves.tolist() == [1] * 10


@pytest.mark.parametrize("mass", [-1.0, -5e-324, math.nan, math.inf, -math.inf, 2 * LARGEST_MASS])
def test_an_invalid_mass_is_refused_before_any_leaf_is_set(mass: float) -> None:
    tree = tree_of(100)
    kept = copy.deepcopy(tree)
    with pytest.raises(ValueError, match=re.escape(f"mass {mass} (position 2) is not in [0, 1e+280]; nothing was set")):
        tree.set(np.array([4, 5, 6, 7]), np.array([1.0, 2.0, mass, 3.0]))
    with pytest.raises(ValueError, match=r"\(position 0\)"):
        tree.set(np.array([4, 5]), mass)
    assert_bitwise_equal(tree, kept)
    with pytest.raises(ValueError, match=r"\(position 1\)"):
        SumTree.from_leaves(np.array([0.0, mass]))


@pytest.mark.parametrize("leaf", [-1, 100, 2**62, -(2**62)])
def test_a_leaf_out_of_range_is_refused_before_any_leaf_is_set(leaf: int) -> None:
    tree = tree_of(100)
    kept = copy.deepcopy(tree)
    with pytest.raises(IndexError, match=rf"leaf {leaf} \(position 1\) is not in \[0, 100\); nothing was set"):
        tree.set(np.array([4, leaf]), np.array([1.0, 2.0]))
    assert_bitwise_equal(tree, kept)


@pytest.mark.parametrize("stretch", [(-1, 1, 0), (100, 1, 0), (3, -1, 0), (3, 1, -1), (3, 60, 41)])
def test_an_invalid_stretch_is_refused_before_any_leaf_is_set(stretch: tuple[int, int, int]) -> None:
    tree = tree_of(100)
    kept, (first, count, cleared) = copy.deepcopy(tree), stretch
    with pytest.raises(ValueError, match=rf"a stretch of {count} and {cleared} leaves from {first} on is not in 100"):
        tree.set_stretch(first, count, 1.0, cleared)
    with pytest.raises(ValueError, match=r"mass nan .*nothing was set"):
        tree.set_stretch(3, 2, math.nan, 1)
    assert_bitwise_equal(tree, kept)


@pytest.mark.parametrize("uniform", [1.0, -1e-9, math.nan, math.inf])
def test_a_random_number_outside_0_to_1_is_refused(uniform: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\), got .* \(position 1\)"):
        tree_of(10).sample(np.array([0.5, uniform]))


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (5, 4), (0, 11), (7, 18)])
def test_invalid_windows_are_refused(first: int, last: int) -> None:
    tree = tree_of(10)
    with pytest.raises(ValueError, match=rf"first \+ 10, got \[{first}, {last}\)"):
        tree.sample(np.array([0.5]), first, last)
    with pytest.raises(ValueError, match="window"):
        tree.mass(first, last)


def test_arguments_of_wrong_dtype_or_shape_are_refused() -> None:
    tree = tree_of(10)
    with pytest.raises(TypeError, match="integers, got float64"):
        tree.set(np.array([1.0]), 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="integers, got bool"):
        tree.set(np.array([True]), 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        tree.set(np.array([1, 2]), np.ones(3))
    with pytest.raises(ValueError, match=r"\(1, 2\) and \(1, 2\)"):
        tree.set(np.array([[1, 2]]), np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"uniforms must be \(B,\), got \(2, 2\)"):
        tree.sample(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        SumTree(0)
    with pytest.raises(ValueError, match=r"\(n,\), got \(2, 2\)"):
        SumTree.from_leaves(np.ones((2, 2)))
