"""Insertions and batches keep to the ratio that a storage's rate limit allows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import PERBuffer, RateLimit, RateLimitError, ReplayBuffer, Sequences
from tests.support.model import Stream, through_a_file
from tests.support.profiles import examples

ALGORITHM = SimpleNamespace(gamma=0.9)


def made(limit: RateLimit | None, num_envs: int = 1, **given: Any) -> tuple[ReplayBuffer, Stream]:
    storage = PERBuffer.create_factory(size=50, rate_limit=limit, **given)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage, Stream(num_envs, "vector", False, np.random.default_rng(0))


def inserted(storage: ReplayBuffer, stream: Stream) -> bool:
    try:
        storage.insert_transition(stream.step())
    except RateLimitError:
        return False
    return True


def drew(storage: ReplayBuffer, batches: int, rows: int) -> bool:
    try:
        batches_drawn = storage.generate_batches(batches, rows)
    except RateLimitError:
        return False
    assert len(list(batches_drawn)) == batches
    return True


@settings(max_examples=examples(60), deadline=None)
@given(
    ratio=st.sampled_from([0.25, 1.0, 3.5]),
    min_size=st.integers(1, 9),
    tolerance=st.sampled_from([0.0, 4.0, 30.0]),
    num_envs=st.sampled_from([1, 3]),
    draws=st.lists(st.integers(0, 5), min_size=30, max_size=60),
)
def test_exactly_the_calls_that_the_ratio_does_not_allow_are_refused(
    ratio: float, min_size: int, tolerance: float, num_envs: int, draws: list[int]
) -> None:
    storage, stream = made(RateLimit(ratio, min_size, tolerance), num_envs)
    steps = drawn = 0
    for rows in draws:
        transitions = steps * num_envs
        balance = ratio * (transitions - min_size) - drawn
        if rows:
            allowed = transitions >= min_size and balance >= -tolerance
            assert storage.rate_limiter is not None
            assert storage.rate_limiter.may_draw() == allowed
            if transitions:
                assert drew(storage, rows, 2) == allowed
                drawn += 2 * rows * allowed
        else:
            allowed = transitions < min_size or balance <= tolerance
            assert storage.rate_limiter is not None
            assert storage.rate_limiter.may_insert() == allowed
            assert inserted(storage, stream) == allowed
            steps += allowed
        # One of the two is always allowed.
        assert storage.rate_limiter.may_draw() or storage.rate_limiter.may_insert()


def test_errors_of_the_rate_limit_name_the_ratio_and_a_remedy() -> None:
    storage, stream = made(RateLimit(2.0, min_size=3, tolerance=2.0))
    assert inserted(storage, stream)
    with pytest.raises(
        RateLimitError,
        match=r"PERBuffer: RateLimit\(.*\) allows no batches now, with 1 transitions inserted and 0 rows drawn; insert",
    ):
        storage.generate_batches(1, 4)
    while inserted(storage, stream):
        pass
    with pytest.raises(RateLimitError, match=r"no insertion now, with 5 transitions inserted and 0 rows drawn; draw"):
        storage.insert_transition(stream.step())
    assert len(storage) == 5


def test_the_counts_of_a_rate_limit_are_saved_and_restored() -> None:
    limit = RateLimit(2.0, min_size=3, tolerance=2.0)
    (one, stream), (two, _) = made(limit, alpha=0.5), made(limit, alpha=0.5)
    while inserted(one, stream):
        pass
    assert drew(one, 2, 4)
    two.load_state_dict(through_a_file(one.state_dict()))
    assert one.rate_limiter is not None
    assert two.rate_limiter is not None
    assert (two.rate_limiter.inserted, two.rate_limiter.drawn) == (5, 8)
    assert not drew(two, 1, 1)
    assert inserted(one, stream)
    two.insert_data_slice(one.get_data_slice(5, 6))
    assert two.rate_limiter.inserted == 6
    unlimited, _ = made(None, alpha=0.5)
    two.load_state_dict(unlimited.state_dict() | {"ring": one.state_dict()["ring"]})
    assert (two.rate_limiter.inserted, two.rate_limiter.drawn) == (6, 0)


def test_a_slice_is_inserted_as_far_as_the_limit_allows() -> None:
    source, stream = made(None, 2)
    for _ in range(40):
        source.insert_transition(stream.step())
    storage, _ = made(RateLimit(2.0, min_size=5, tolerance=10.0), 2)
    with pytest.raises(RateLimitError, match="no insertion now"):
        storage.insert_data_slice(source.get_data_slice(0, 40))
    alone, _ = made(RateLimit(2.0, min_size=5, tolerance=10.0), 2)
    while inserted(alone, stream):
        pass
    assert len(storage) == len(alone) == 12


def test_a_rate_limit_counts_sequences_as_rows() -> None:
    storage, stream = made(RateLimit(1.0, min_size=8), sequences=Sequences(4))
    for _ in range(8):
        assert inserted(storage, stream)
    assert drew(storage, 1, 3)
    assert storage.rate_limiter is not None
    assert storage.rate_limiter.drawn == 3


def test_a_rate_limit_is_fixed_and_must_be_positive() -> None:
    storage, _ = made(RateLimit(1.0))
    with pytest.raises(ValueError, match="PERBuffer: rate_limit is fixed once"):
        storage.update_storage_parameter("rate_limit", RateLimit(2.0))
    with pytest.raises(ValueError, match="RateLimit: samples_per_insert must be greater than 0, got 0"):
        RateLimit(0)
