"""Rank-based priorities, clipped errors and uniform shares, compared with sorted lists and direct sums."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from storages import Episode, EREBuffer, PERBuffer, PersistentEpisodicBuffer, Sequences
from storages.transition import ACT, ERRORS, INDICES, MASK, REW, WEIGHTS
from tests.support.model import ALGORITHM, Stream, equal, through_a_file
from tests.support.profiles import examples


def rank_priorities(
    errors: Sequence[float], alpha: float, error_min: float = 0.0, error_max: float = np.inf
) -> NDArray[np.float64]:
    """``(1 / rank)**alpha`` of each error, equal ones sharing their mean rank."""
    known = [_bucket(min(max(abs(error), error_min), error_max)) for error in errors]
    falling = sorted(known, reverse=True)
    ranks = [Fraction(2 * falling.index(one) + falling.count(one) + 1, 2) for one in known]
    return np.array([float(_rounded(rank)) ** -alpha for rank in ranks])


def _bucket(error: float) -> float:
    """The largest number below that is a power of two times a multiple of 1/512."""
    mantissa, exponent = np.frexp(np.float32(error))
    return float(np.ldexp(np.floor(mantissa * 1024) / 1024, exponent))


def _rounded(rank: Fraction) -> Fraction:
    if rank < 16:
        return rank
    unit = 1
    while rank >= 4 * 2 * unit:
        unit *= 2
    # Halves are rounded up.
    return (rank / unit + Fraction(1, 2)).__floor__() * Fraction(unit)


RANKS: dict[str, Any] = {"prioritization": "rank", "default_error": 1.0}


def filled(kind: Any = PERBuffer, size: int = 20, steps: int = 50, num_envs: int = 2, **given: Any) -> Any:
    storage = kind.create_factory(size=size, **({"alpha": 0.7} | given))("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(num_envs, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    next(storage.generate_batches(1, 1))
    return storage


def learn(storage: Any, numbers: Any, errors: Any) -> Any:
    """Sets the errors of transitions, as an update with a batch of them does."""
    batch = {INDICES: torch.tensor(numbers)[:, None], WEIGHTS: torch.ones(len(numbers), 1)}
    return storage.after_gradients(batch, {ERRORS: torch.tensor(errors, dtype=torch.float32)[:, None]})


def learnt(**given: Any) -> tuple[Any, NDArray[np.float64]]:
    """A storage whose 40 transitions have errors, and an array of these errors."""
    storage, errors = filled(**given), np.random.default_rng(3).exponential(size=40)
    learn(storage, np.arange(storage.ring.start, storage.ring.end), errors)
    return storage, errors


def assert_drawn_by(storage: Any, probabilities: NDArray[np.float64], batches: int = 400, size: int = 500) -> None:
    """Pearson's chi-squared test of the drawn rows, with a limit of five standard deviations."""
    drawn = torch.cat([batch[INDICES] for batch in storage.generate_batches(batches, size)])[:, 0].numpy()
    if storage.sequences is not None:
        # A sequence may begin later than its row, with an episode.
        drawn = drawn - drawn // storage.num_envs % storage.sequences.stride * storage.num_envs
    counts = np.bincount(drawn - storage.ring.start, minlength=len(probabilities))
    expected = probabilities * len(drawn)
    assert not counts[expected == 0].any()
    alive = expected > 0
    statistic = ((counts - expected)[alive] ** 2 / expected[alive]).sum()
    freedom = np.count_nonzero(alive) - 1
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_up_to_fifteen_ranks_have_the_exact_priorities_of_the_paper(alpha: float) -> None:
    storage = filled(size=15, num_envs=1, alpha=alpha, **RANKS)
    errors = np.random.default_rng(0).permutation(2.0 ** np.arange(15))
    learn(storage, np.arange(35, 50), errors)
    ranks = np.argsort(np.argsort(-errors)) + 1
    np.testing.assert_allclose(storage.priorities.values, (1 / ranks) ** alpha)
    assert_drawn_by(storage, (1 / ranks) ** alpha / ((1 / ranks) ** alpha).sum())


@pytest.mark.parametrize("stratified", [True, False])
def test_transitions_are_drawn_in_proportion_to_their_rank_priorities(stratified: bool) -> None:
    storage, errors = learnt(stratified=stratified, **RANKS)
    priorities = rank_priorities(errors, 0.7)
    assert_drawn_by(storage, priorities / priorities.sum())


def test_large_ranks_have_a_relative_error_of_about_one_ninth_at_most() -> None:
    storage = filled(size=3_000, num_envs=1, steps=3_000, alpha=1.0, **RANKS)
    errors = np.random.default_rng(0).lognormal(size=3_000)
    learn(storage, np.arange(3_000), errors)
    ranks = np.argsort(np.argsort(-errors)) + 1
    # Errors that differ by less than 1/512 share their mean rank.
    assert np.abs(1 / storage.priorities.values / ranks - 1).max() < 1 / 9 + 0.05


def test_rank_priorities_ignore_outliers_and_the_scale_of_errors() -> None:
    values = []
    for errors in ([1.0, 2.0, 3.0, 4.0], [0.01, 0.02, 0.03, 1e30]):
        storage = filled(size=4, num_envs=1, **RANKS)
        learn(storage, np.arange(46, 50), errors)
        values.append(storage.priorities.values.tolist())
    assert values[0] == values[1]


def test_with_recency_only_the_newest_transitions_are_drawn_by_rank() -> None:
    storage, errors = learnt(kind=EREBuffer, eta=0.5, cmin=12, **RANKS)
    priorities = rank_priorities(errors, 0.7)
    priorities[:28] = 0
    assert_drawn_by(storage, priorities / priorities.sum())


def test_sequences_are_drawn_by_rank_among_the_starts_at_their_stride() -> None:
    storage = filled(sequences=Sequences(3, overlap=0), **RANKS)
    for _ in range(50):
        for batch in storage.generate_batches(1, 8):
            storage.after_gradients(
                batch, {ERRORS: torch.from_numpy(np.random.default_rng(0).random(batch[MASK].shape))}
            )
    start, errors = storage.ring.start, storage.priorities.errors(storage.ring.oldest).ravel()
    steps = np.arange(start, storage.ring.end) // 2
    drawn = steps % 3 == 0
    priorities = np.zeros(40)
    priorities[drawn] = rank_priorities(errors[drawn], 0.7)
    priorities[steps > steps[-1] - 2] = 0
    assert_drawn_by(storage, priorities / priorities.sum())


@dataclass
class Model:
    """Errors of the stored transitions, oldest first; new transitions have the error 1."""

    size: int
    errors: list[float] = field(default_factory=list)

    def insert(self, count: int) -> None:
        self.errors = [*self.errors, *[1.0] * count][-self.size :]


_errors = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(2**-20, 1.0, width=32))
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 30)),
        st.tuples(st.just("learn"), st.lists(st.tuples(st.integers(0, 100), _errors), min_size=1, max_size=30)),
        st.tuples(st.sampled_from(["alpha", "error_min"]), st.sampled_from([0.25, 0.5, 1.0])),
        st.tuples(st.just("prioritization"), st.sampled_from(["rank", "proportional"])),
        st.tuples(st.sampled_from(["save", "copy", "reset"]), st.none()),
    ),
    max_size=15,
)


@given(size=st.integers(3, 60), actions=_actions)
@settings(max_examples=examples(80), deadline=None)
def test_priorities_equal_those_of_a_sorted_list(size: int, actions: Any) -> None:
    storage, model = filled(size=size, steps=1, num_envs=1, **RANKS), Model(size)
    stream = Stream(1, "vector", False, np.random.default_rng(0))
    model.insert(1)
    for name, argument in actions:
        if name == "insert":
            for _ in range(argument):
                storage.insert_transition(stream.step())
            model.insert(argument)
        elif name == "learn":
            chosen = {position % len(model.errors): error for position, error in argument}
            has_errors = storage.priorities.knows_errors
            # The largest error stays 1, so that new transitions have the error 1 as in the model.
            chosen = chosen if has_errors else chosen | {0: 1.0}
            learn(storage, [storage.ring.start + position for position in chosen], list(chosen.values()))
            for position, error in chosen.items():
                model.errors[position] = error
        elif name == "save":
            state, storage = through_a_file(storage.state_dict()), _like(storage)
            storage.load_state_dict(state)
        elif name == "copy":
            storage = copy.deepcopy(storage)
        elif name == "reset":
            storage.reset()
            storage.insert_transition(stream.step())
            model.errors = [1.0]
        else:
            storage.update_storage_parameter(name, argument)
        if storage.prioritization == "rank":
            expected = rank_priorities(model.errors, storage.alpha, storage.error_min)
        else:
            expected = np.maximum(np.float32(model.errors), storage.error_min).astype(float) ** storage.alpha
        np.testing.assert_allclose(storage.priorities.values, expected, rtol=1e-12)
        assert storage.priorities.largest == pytest.approx(expected.max(), rel=1e-12)


def _like(storage: Any) -> Any:
    names = ("size", "alpha", "prioritization", "default_error", "error_min")
    return PERBuffer.create_factory(**{name: getattr(storage, name) for name in names})("cpu", None, ALGORITHM, None)


def train(storage: Any, seed: int) -> list[Any]:
    random, batches = np.random.default_rng(seed), []
    for batch in storage.generate_batches(4, 8):
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=batch[REW].shape))})
        batches.append(batch)
    return batches


ALL: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "uniform_share": 0.3, "error_min": 0.1, "error_max": 2.0, **RANKS}


def test_a_reopened_directory_gives_the_same_next_batch(tmp_path: Path) -> None:
    def opened(name: str) -> Any:
        given = {"size": 20, "n_step": 3, "directory": tmp_path / name, "commit_every": 7, **ALL}
        return PERBuffer.create_factory(**given)("cpu", None, ALGORITHM, None)

    one, two = opened("one"), opened("two")
    one.seed(0), two.seed(0)
    streams = [Stream(2, "vector", False, np.random.default_rng(0)) for _ in range(2)]
    for step in range(60):
        for storage, stream in zip((one, two), streams, strict=True):
            storage.insert_transition(stream.step())
        for batch, other in zip(train(one, step), train(two, step), strict=True):
            assert equal(batch, other)
        if step % 11 == 0:
            two.close()
            two = opened("two")
    one.close(), two.close()


@pytest.mark.parametrize("memory_bytes", [pytest.param(None, marks=pytest.mark.long), 4_000_000])
def test_a_reopened_episodic_buffer_draws_the_same_next_batches(memory_bytes: int | None, tmp_path: Path) -> None:
    def opened() -> Any:
        given = {"size": None, "directory": tmp_path / "episodes", "memory_bytes": memory_bytes, **ALL}
        return PersistentEpisodicBuffer.create_factory(**given)("cpu", None, ALGORITHM, None)

    storage = opened()
    storage.seed(0)
    fields = {ACT: np.zeros((200, 1), np.float32), REW: np.ones((200, 1), np.float32)}
    for number in range(25):
        observation = np.full((201, 64), number, np.float32)
        storage.add_episode(Episode(observation, fields, terminated=True, truncated=False))
        train(storage, number)
    assert memory_bytes is None or storage.ring.live_steps < len(storage)
    assert storage.nbytes < (memory_bytes or 2**40)
    state = through_a_file(storage.state_dict())
    expected = train(storage, 50)
    storage.close()
    again = opened()
    again.load_state_dict(state)
    assert all(equal(one, two) for one, two in zip(train(again, 50), expected, strict=True))
    errors = again.priorities.errors(again.ring.oldest).ravel()
    np.testing.assert_allclose(again.priorities.values, rank_priorities(errors.tolist(), 0.7, 0.1, 2.0))
    again.close()


# Shares of uniform rows


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("given", [{}, RANKS, {"epsilon": 0.1, "error_max": 1.0}])
def test_a_uniform_share_mixes_the_draws_and_the_importance_weights(given: Any, share: float) -> None:
    storage, errors = learnt(uniform_share=share, beta=0.6, **({"default_error": 1.0} | given))
    learn(storage, [storage.ring.start + 5], [0.0])
    errors[5] = 0.0
    if "prioritization" in given:
        priorities = rank_priorities(errors, 0.7)
    else:
        priorities = (np.minimum(errors, given.get("error_max", np.inf)) + given.get("epsilon", 0.0)) ** 0.7
    probabilities = share / 40 + (1 - share) * priorities / priorities.sum()
    assert_drawn_by(storage, probabilities, batches=1_000, size=200)
    batch = next(storage.generate_batches(1, 300))
    weights = (40 * probabilities) ** -0.6
    drawn = batch[INDICES][:, 0].numpy() - storage.ring.start
    np.testing.assert_allclose(batch[WEIGHTS][:, 0], (weights / weights.max())[drawn], rtol=1e-5)
    storage.update_storage_parameter("weights_over", "batch")
    batch = next(storage.generate_batches(1, 300))
    drawn = batch[INDICES][:, 0].numpy() - storage.ring.start
    np.testing.assert_allclose(batch[WEIGHTS][:, 0], weights[drawn] / weights[drawn].max(), rtol=1e-5)
    storage.update_storage_parameter("weights_over", "none")
    batch = next(storage.generate_batches(1, 300))
    drawn = batch[INDICES][:, 0].numpy() - storage.ring.start
    np.testing.assert_allclose(batch[WEIGHTS][:, 0], weights[drawn], rtol=1e-5)


@pytest.mark.parametrize("ranks", [{}, RANKS])
def test_with_recency_the_uniform_share_covers_only_the_newest_rows(ranks: Any) -> None:
    storage, errors = learnt(kind=EREBuffer, eta=0.5, cmin=12, uniform_share=0.4, **({"default_error": 1.0} | ranks))
    priorities = rank_priorities(errors, 0.7) if ranks else errors**0.7
    probabilities = np.zeros(40)
    probabilities[28:] = 0.4 / 12 + 0.6 * priorities[28:] / priorities[28:].sum()
    assert_drawn_by(storage, probabilities)


def test_sequences_are_drawn_with_a_uniform_share() -> None:
    storage = filled(sequences=Sequences(3, overlap=1), uniform_share=0.5, default_error=1.0)
    learn_first = next(storage.generate_batches(1, 8))
    storage.after_gradients(learn_first, {ERRORS: torch.full(learn_first[MASK].shape, 0.01)})
    start, values = storage.ring.start, np.zeros(40)
    values[storage.priorities.drawn - start] = storage.priorities.values
    steps = np.arange(start, storage.ring.end) // 2
    values[steps > steps[-1] - 2] = 0
    may_begin = values > 0
    assert_drawn_by(storage, 0.5 * may_begin / may_begin.sum() + 0.5 * values / values.sum())


# Clipped errors


def test_errors_are_clipped_to_error_min_and_error_max() -> None:
    storage = filled(size=4, num_envs=1, alpha=0.5, epsilon=0.25, error_min=0.75, error_max=2.0, default_error=1.0)
    learn(storage, np.arange(46, 50), [0.0, -1.0, 1.5, 100.0])
    assert storage.priorities.values.tolist() == [1.0, 1.25**0.5, 1.75**0.5, 1.5]
    storage.update_storage_parameter("error_max", None)
    assert storage.priorities.values[-1] == 100.25**0.5
    with pytest.raises(ValueError, match=r"PERBuffer: error_min must be at most error_max=0\.5, got 0\.75"):
        storage.update_storage_parameter("error_max", 0.5)
    assert storage.error_max is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prioritization": "ranks"}, "prioritization must be one of 'proportional', 'rank', got 'ranks'"),
        ({"uniform_share": 1.5}, r"uniform_share must lie in \[0, 1\], got 1.5"),
        ({"error_min": -1}, "error_min must be at least 0, got -1"),
        ({"error_min": 2.0, "error_max": 1.0}, "error_min must be at most error_max=1, got 2"),
    ],
)
def test_invalid_hyper_parameters_are_refused_when_a_factory_is_made(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PERBuffer.create_factory(size=10, **given)
