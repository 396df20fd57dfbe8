"""Batches of several storages: every row equals one drawn by its own storage, and its errors return to that storage."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    EmptyStorageError,
    Episodes,
    EREBuffer,
    GAEBuffer,
    HERBuffer,
    MixedSource,
    MixedStorage,
    NStepReplayBuffer,
    PERBuffer,
    RateLimit,
    RateLimitError,
    ReplayBuffer,
    Sequences,
    Storage,
)
from storages.off_policy.mixed_batches import split
from storages.transition import BURN_IN, ERRORS, INDICES, MASK, REW, RHS, SOURCE_SIZES, WEIGHTS
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, Model, Stream, environments, map_leaves, through_a_file, unchanged
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, assert_windows

PRIORITIES = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}


WAYS: dict[str, Any] = {
    "uniform": lambda **given: NStepReplayBuffer.create_factory(**given),
    "priority": lambda **given: PERBuffer.create_factory(**PRIORITIES, **given),
    "recency": lambda **given: EREBuffer.create_factory(eta=0.999, cmin=6, **given),
    "hindsight": lambda **given: HERBuffer.create_factory(her_function=unchanged, **PRIORITIES, **given),
}
WINDOWS: dict[str, Any] = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "episodes": Episodes(),
    "packed episodes": Episodes(packed=True),
    "pieces of episodes": Episodes(longest=3, whole=False),
    "random pieces of episodes": Episodes(max_steps=3),
}
SHARES = {"demonstrations": 0.3, "main": 0.7}
OF_ROWS = {RHS, WEIGHTS, INDICES}


class Pair:
    """Two storages to be mixed, each with a slow reference model."""

    def __init__(self, ways: tuple[str, str], window: str, kind: str, n_step: int, prefetch: int, seed: int) -> None:
        self.sequences, self.n_step = WINDOWS[window], n_step
        self.num_envs = {"demonstrations": 1, "main": 3}
        self.factories = {
            name: WAYS[way](size=12, n_step=n_step, sequences=self.sequences, prefetch=prefetch)
            for name, way in zip(SHARES, ways, strict=True)
        }
        self.kind = kind
        self.storages = self.made()
        self.models = {name: Episodic(Model(12), envs) for name, envs in self.num_envs.items()}
        generator = np.random.default_rng(seed)
        self.streams = {name: Stream(envs, kind, True, generator) for name, envs in self.num_envs.items()}

    def made(self) -> dict[str, Storage]:
        storages = {}
        for position, (name, factory) in enumerate(self.factories.items()):
            storages[name] = factory("cpu", None, ALGORITHM, environments(self.kind, self.num_envs[name]))
            storages[name].seed(position)
        return storages

    def insert(self, name: str) -> None:
        sample = self.streams[name].step()
        self.storages[name].insert_transition(sample)
        self.models[name].insert(sample)

    def assert_rows(self, batch: Any) -> None:
        for (name, model), (part, _) in zip(self.models.items(), split(batch, {}), strict=True):
            assert len(part[INDICES]) == dict(zip(SHARES, batch[SOURCE_SIZES].tolist(), strict=True))[name]
            assert_windows(
                model, part if self.sequences != Episodes() else without_padding(part), self.sequences, self.n_step
            )


def without_padding(batch: Any) -> Any:
    """A batch without the steps that are masked in all of its episodes."""
    if MASK not in batch or BURN_IN in batch:
        return batch
    steps = int(batch[MASK].sum(0).max())
    cut: Any = map_leaves({key: value for key, value in batch.items() if key not in OF_ROWS}, lambda leaf: leaf[:steps])
    return cut | {key: batch[key] for key in OF_ROWS & batch.keys()}


@pytest.mark.long
@settings(max_examples=examples(24), deadline=None)
@given(
    ways=st.tuples(st.sampled_from(list(WAYS)), st.sampled_from(list(WAYS))),
    window=st.sampled_from(list(WINDOWS)),
    kind=st.sampled_from(["vector", "frames", "dict"]),
    n_step=st.sampled_from([1, 3]),
    prefetch=st.sampled_from([0, 2]),
    seed=st.integers(0, 1000),
)
def test_mixed_batches_equal_those_of_each_storage_and_errors_return_to_it(
    ways: tuple[str, str], window: str, kind: str, n_step: int, prefetch: int, seed: int
) -> None:
    pair = Pair(ways, window, kind, n_step, prefetch, seed)
    mixed = MixedStorage(pair.storages, SHARES)
    random = np.random.default_rng(seed)
    for step in range(25):
        for name in SHARES:
            pair.insert(name)
        if step % 7 != 3:
            continue
        alone = pair.made()
        for name, storage in alone.items():
            storage.load_state_dict(through_a_file(pair.storages[name].state_dict()))
        again = MixedStorage(pair.made(), SHARES)
        again.load_state_dict(through_a_file(mixed.state_dict()))
        batches = list(mixed.generate_batches(2, 10))
        assert_equal(list(again.generate_batches(2, 10)), batches)
        own = [list(alone[name].generate_batches(2, rows)) for name, rows in (("demonstrations", 3), ("main", 7))]
        for batch, parts in zip(batches, zip(*own, strict=True), strict=True):
            pair.assert_rows(batch)
            errors = torch.from_numpy(random.exponential(size=batch[REW].shape))
            info = mixed.after_gradients(batch, {ERRORS: errors, "loss": 1.0})
            assert info["loss"] == 1.0
            assert {"storage/demonstrations/row_age", "storage/main/replay_ratio"} <= info.keys()
            split_again = split(batch, {ERRORS: errors})
            for storage, part, (of_batch, of_part) in zip(alone.values(), parts, split_again, strict=True):
                steps = len(part[REW])
                assert_equal(of_batch[REW][:steps], part[REW])
                assert_equal((of_batch[INDICES], of_batch[WEIGHTS]), (part[INDICES], part[WEIGHTS]))
                storage.after_gradients(part, {ERRORS: of_part[ERRORS][:steps]})
        for name, storage in alone.items():
            assert_equal(storage.state_dict(), pair.storages[name].state_dict())


def filled(factory: Any, steps: int = 20, kind: str = "vector", num_envs: int = 1, **changes: Any) -> Storage:
    storage: Storage = factory("cpu", None, SimpleNamespace(gamma=0.9), None)
    stream = Stream(num_envs, kind, False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step() | changes)
    return storage


UNIFORM = ReplayBuffer.create_factory(size=50)


@pytest.mark.parametrize(
    ("shares", "batch_size", "rows"),
    [
        ((0.5, 0.5), 256, [128, 128]),
        ((0.5, 0.5), 5, [3, 2]),
        ((0.1, 0.9), 32, [3, 29]),
        ((0.25, 0.25, 0.5), 6, [2, 1, 3]),
        ((1 / 3, 1 / 3, 1 / 3), 3, [1, 1, 1]),
        ((0.07, 0.93), 100, [7, 93]),
    ],
)
def test_shares_are_rounded_to_whole_rows(shares: tuple[float, ...], batch_size: int, rows: list[int]) -> None:
    names = "abc"[: len(shares)]
    mixed = MixedStorage(dict.fromkeys(names, filled(UNIFORM)), dict(zip(names, shares, strict=True)))
    assert list(mixed.rows_of(batch_size).values()) == rows
    batch = next(mixed.generate_batches(1, batch_size))
    assert batch[SOURCE_SIZES].tolist() == rows
    assert batch[REW].shape == (batch_size, 1)


def test_changed_shares_apply_from_the_next_update_phase() -> None:
    mixed = MixedStorage({"a": filled(UNIFORM), "b": filled(UNIFORM)}, {"a": 0.5, "b": 0.5})
    batches = mixed.generate_batches(2, 8)
    assert next(batches)[SOURCE_SIZES].tolist() == [4, 4]
    mixed.update_storage_parameter("shares", {"b": 0.25, "a": 0.75})
    late = next(batches)
    assert late[SOURCE_SIZES].tolist() == [4, 4]
    mixed.after_gradients(late, {ERRORS: torch.ones(8, 1)})
    assert next(mixed.generate_batches(1, 8))[SOURCE_SIZES].tolist() == [6, 2]
    restored = MixedStorage({"a": filled(UNIFORM), "b": filled(UNIFORM)}, {"a": 0.5, "b": 0.5})
    restored.load_state_dict(mixed.state_dict())
    assert restored.shares == {"a": 0.75, "b": 0.25}
    assert len(restored) == 40
    assert "0.75 of 'a'" in repr(restored)
    with pytest.raises(ValueError, match="only 'shares' can change, got 'alpha'"):
        mixed.update_storage_parameter("alpha", 0.5)


def mixed_of(one: Storage, two: Storage) -> MixedStorage:
    return MixedStorage({"demonstrations": one, "main": two}, {"demonstrations": 0.5, "main": 0.5})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: filled(UNIFORM, kind="image"), "Observation of 'demonstrations' is .* of 'main' "),
        (
            lambda: filled(UNIFORM, IntrinsicReward=np.ones((1, 1), np.float32)),
            "'main' has IntrinsicReward, 'demonstrations' has none",
        ),
        (
            lambda: filled(ReplayBuffer.create_factory(size=50, sequences=Sequences(3))),
            "'main' has Mask, 'demonstrations' has none",
        ),
    ],
)
def test_incompatible_batches_raise_an_error_that_names_their_storages_and_fields(other: Any, message: str) -> None:
    batches = mixed_of(filled(UNIFORM), other()).generate_batches(1, 8)
    with pytest.raises(ValueError, match=rf"MixedStorage: incompatible batches: .*{message}"):
        next(batches)


@pytest.mark.parametrize("window", [None, Sequences(3), Episodes(packed=True, whole=False)])
def test_a_field_that_one_storage_lacks_has_a_constant_in_its_rows(window: Any) -> None:
    factory = ReplayBuffer.create_factory(size=50, sequences=window)
    lacking, having = filled(factory), filled(factory, Extra=np.full((1, 2), 3.0, np.float32))
    shares = {"demonstrations": 0.5, "main": 0.5}
    mixed = MixedStorage({"demonstrations": lacking, "main": having}, shares, {"Extra": (2, 7.0)})
    parts = [part["Extra"] for part, _ in split(next(mixed.generate_batches(1, 8)), {})]
    for part, value in zip(parts, (7.0, 3.0), strict=True):
        assert part.shape[-1] == 2
        assert (part == value).all()


@pytest.mark.parametrize(("n_step", "burn_in"), [(2, 0), (1, 2), (2, 2)])
def test_sequences_of_different_lengths_are_refused_with_n_steps_or_burn_in(n_step: int, burn_in: int) -> None:
    one, two = (
        filled(NStepReplayBuffer.create_factory(size=50, n_step=n_step, sequences=Sequences(length, burn_in)))
        for length in (3, 4)
    )
    with pytest.raises(ValueError, match=r"Reward of 'demonstrations' is 3 steps of .*, of 'main' 4 steps of"):
        next(mixed_of(one, two).generate_batches(1, 8))


def test_shorter_sequences_are_padded() -> None:
    one, two = (filled(ReplayBuffer.create_factory(size=50, sequences=Sequences(length))) for length in (3, 5))
    batch = next(mixed_of(one, two).generate_batches(1, 8))
    assert batch[REW].shape == (5, 8, 1)
    assert not batch[MASK][3:, :4].any()
    assert torch.equal(batch[REW][3, :4], batch[REW][2, :4])


def test_invalid_mixes_are_refused() -> None:
    replay, rollout = filled(UNIFORM), GAEBuffer.create_factory(size=4)("cpu", None, ALGORITHM, None)
    with pytest.raises(ValueError, match=r"'main' is a GAEBuffer, an on-policy storage"):
        mixed_of(replay, rollout)
    with pytest.raises(ValueError, match=r"shares must name the storages \['b'\], got \['a'\]"):
        MixedStorage({"b": replay}, {"a": 1.0})
    with pytest.raises(ValueError, match=r"storages must make batches on one device, got .*'meta'"):
        mixed_of(replay, UNIFORM("meta", None, ALGORITHM, None))
    mixed = mixed_of(replay, UNIFORM("cpu", None, ALGORITHM, None))
    with pytest.raises(EmptyStorageError):
        mixed.generate_batches(1, 8)
    mixed = MixedStorage({"a": replay, "b": replay}, {"a": 0.99, "b": 0.01})
    with pytest.raises(ValueError, match=r"a share of 0\.01 of a batch of 10 gives no row of 'b'"):
        mixed.generate_batches(1, 10)
    with pytest.raises(ValueError, match="a mix of storages needs a mini_batch_size"):
        mixed.generate_batches(1, None)
    with pytest.raises(ValueError, match="the state lacks 'b'"):
        mixed.load_state_dict({"storages": {"a": replay.state_dict()}, "shares": {"a": 0.5, "b": 0.5}})
    batch = next(mixed.generate_batches(1, 200))
    with pytest.raises(ValueError, match=r"Errors must have shape \(200, 1\).* no priority was changed"):
        mixed.after_gradients(batch, {ERRORS: torch.ones(200)})


@pytest.mark.parametrize(
    "shares",
    [{}, {"a": 0.5, "b": 0.6}, {"a": 1.5, "b": -0.5}, {"a": "half", "b": 0.5}, {"a": True}, {"a": 0.5, "b": np.nan}],
)
def test_shares_must_be_positive_numbers_that_sum_to_one(shares: Any) -> None:
    with pytest.raises(ValueError, match="MixedSource: shares must be positive numbers that sum to 1, got"):
        MixedSource(shares)
    assert MixedSource({"a": 1}) == MixedSource({"a": 1.0})


def test_nothing_is_counted_as_drawn_if_another_source_can_give_no_batch() -> None:
    limited = filled(ReplayBuffer.create_factory(size=50, rate_limit=RateLimit(1.0, 4, 100)))
    empty = UNIFORM("cpu", None, SimpleNamespace(gamma=0.9), None)
    with pytest.raises(EmptyStorageError):
        mixed_of(limited, empty).generate_batches(1, 8)
    closed = filled(ReplayBuffer.create_factory(size=50, rate_limit=RateLimit(1.0, 40, 100)))
    with pytest.raises(RateLimitError):
        mixed_of(limited, closed).generate_batches(1, 8)
    assert limited.rate_limiter.drawn == 0  # type: ignore[attr-defined]
