"""Storages without a given size: those that grow as steps are inserted, and those that ``max_bytes`` limits."""

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import storages
from storages import DeviceMemoryError, Episodes, SampleError, Sequences, Storage
from storages.core.device import device_cache
from storages.persistent import PersistenceError
from storages.transition import ACT, DONE, DONE2, ERRORS, MASK, OBS, OBS2, REW, TRUNC2
from tests.support.model import (
    ALGORITHM,
    KINDS,
    Model,
    Stream,
    assert_slice_is,
    contents,
    environments,
    equal,
    through_a_file,
    unchanged,
)
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, assert_windows

PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
WAYS: dict[str, Any] = {
    "uniform": storages.NStepReplayBuffer.create_factory,
    "priority": lambda **given: storages.PERBuffer.create_factory(**PRIORITIES, **given),
    "hindsight, priority and recency": lambda **given: storages.HERBuffer.create_factory(
        her_function=unchanged,
        **PRIORITIES,
        eta=0.999,
        cmin=6,
        **given,
    ),
}
WINDOWS = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2, overlap=1),
    "episodes": Episodes(),
    "pieces": Episodes(longest=3, whole=False),
}
STEPS = 300
"""So many that a growing storage doubles its size more than twice."""


def made(way: str, size: int | None, kind: str = "vector", num_envs: int = 2, **given: Any) -> Storage:
    storage: Storage = WAYS[way](size=size, **given)("cpu", None, ALGORITHM, environments(kind, num_envs))
    storage.seed(0)
    return storage


def learnt(storage: Storage) -> dict[int, Any]:
    """Draws batches, and gives the storage their errors."""
    drawn = {}
    for number, batch in enumerate(storage.generate_batches(2, 6)):
        shape = batch[MASK].shape if MASK in batch else (6, 1)
        storage.after_gradients(batch, {ERRORS: torch.linspace(0.1, 3, int(np.prod(shape))).reshape(shape)})
        drawn[number] = batch
    return drawn


@pytest.mark.quick_share(0.1)
@pytest.mark.parametrize(
    ("way", "window", "kind"),
    [
        (way, window, ("vector", "dict of frames")[(row + column) % 2])
        for row, way in enumerate(WAYS)
        for column, window in enumerate(WINDOWS)
    ],
)
def test_a_growing_storage_equals_one_that_was_large_enough_from_the_beginning(
    way: str, window: str, kind: str
) -> None:
    given: dict[str, Any] = {"sequences": WINDOWS[window], "n_step": 3}
    growing, large = (made(way, size, kind, **given) for size in (None, 1000))
    stream, episodic = Stream(2, kind, True, np.random.default_rng(1)), Episodic(Model(1000), 2)
    for step in range(STEPS):
        sample = stream.step()
        for one in (growing, large, episodic):
            one.insert_transition(sample) if isinstance(one, Storage) else one.insert(sample)
        if step % 37 == 36:
            assert_windows(episodic, next(growing.generate_batches(1, 5)), WINDOWS[window], 3)
            next(large.generate_batches(1, 5))
            learnt(growing), learnt(large)
        if step == 150:
            state = through_a_file(growing.state_dict())
            growing = made(way, None, kind, **given)
            growing.load_state_dict(state)
            assert len(growing) == len(large)
        if step == 222:
            for one in (growing, large):
                one.end_episode([1])
            episodic.model.end_episode([1])
            stream.end_episode([1])
    assert contents(growing) == contents(large)
    if growing.priorities is not None and large.priorities is not None:
        for one in (growing, large):
            assert one.priorities is not None
        assert np.array_equal(growing.priorities.errors(0), large.priorities.errors(0))
        assert growing.priorities.mean == pytest.approx(large.priorities.mean)


@pytest.mark.long
@given(
    way=st.sampled_from(list(WAYS)),
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 3),
    stretches=st.lists(st.tuples(st.integers(1, 90), st.sampled_from(["slice", "reset", "again", "copy", ""]))),
    keep_on_device=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_growing_storage_keeps_all_inserted_steps(
    way: str, kind: str, num_envs: int, stretches: list[tuple[int, str]], keep_on_device: bool, seed: int
) -> None:
    given = {"keep_on_device": keep_on_device and way != "hindsight, priority and recency", "prefetch": seed % 3}
    storage, model = made(way, None, kind, num_envs, **given), Model(sys.maxsize)
    stream = Stream(num_envs, kind, False, np.random.default_rng(seed))
    for steps, then in stretches:
        samples = [stream.step() for _ in range(steps)]
        for sample in samples:
            model.insert(sample)
        if then == "slice":
            other = made("uniform", steps, kind, num_envs)
            for sample in samples:
                other.insert_transition(sample)
            storage.insert_data_slice(other.get_all_buffer_data())
        else:
            for sample in samples:
                storage.insert_transition(sample)
        for _ in storage.generate_batches(2, 5):
            pass
        assert_slice_is(storage.get_all_buffer_data(), model.live())
        assert storage.ring.size < 2 * max(64, storage.ring.steps)
        assert storage.nbytes >= storage.ring.columns.nbytes
        if then == "reset":
            storage.reset()
            model.reset(storage.ring.steps)
        elif then == "again":
            state = through_a_file(storage.state_dict())
            storage = made(way, None, kind, num_envs, **given)
            storage.load_state_dict(state)
        elif then == "copy":
            storage = copy.deepcopy(storage)


def test_growth_does_not_change_prefetched_batches() -> None:
    growing, fixed = (made("priority", size, prefetch=2, keep_on_device=True) for size in (None, 100))
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for step in range(65):
        sample = stream.step()
        if step == 64:
            begun = [one.generate_batches(3, 5) for one in (growing, fixed)]
            assert equal(*(next(one) for one in begun))
        for one in (growing, fixed):
            one.insert_transition(sample)
    assert growing.ring.size == 128
    assert equal(*(dict(enumerate(one)) for one in begun))


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("way", WAYS)
def test_a_growing_storage_is_restored_from_its_directory(way: str, tmp_path: Path) -> None:
    growing, large = made(way, None, directory=tmp_path, commit_every=7), made(way, 1000)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for steps in (60, 5, 90, 200):
        for _ in range(steps):
            sample = stream.step()
            growing.insert_transition(sample)
            large.insert_transition(sample)
        learnt(growing), learnt(large)
        position = growing.position
        expected = contents(growing)
        growing.close()
        growing = made(way, None, directory=tmp_path, commit_every=7)
        growing._generator.bit_generator.state = large._generator.bit_generator.state
        assert contents(growing) == contents(large) == expected
    growing.flush()
    growing.pin(growing.position)
    assert position != growing.position
    growing.roll_back(growing.position)
    assert contents(growing) == expected
    growing.close()
    with pytest.raises(PersistenceError, match="holds a storage with size 512, this one has 100"):
        made(way, 100, directory=tmp_path)


def test_growth_beyond_the_device_memory_is_refused_and_keeps_the_stored_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, stream = made("priority", None, keep_on_device=True), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(64):
        storage.insert_transition(stream.step())
    before, sample = contents(storage), stream.step()
    monkeypatch.setattr(device_cache, "free_bytes", lambda device: 3_000)
    with pytest.raises(DeviceMemoryError, match="keep_on_device needs"):
        storage.insert_transition(sample)
    assert contents(storage) == before
    assert storage.ring.size == 64
    learnt(storage)
    monkeypatch.undo()
    storage.insert_transition(sample)
    assert (len(storage), storage.ring.size) == (130, 128)


def test_capacity_is_reported_and_sizes_are_validated() -> None:
    growing = made("uniform", None)
    assert growing.capacity == sys.maxsize
    assert repr(growing) == "NStepReplayBuffer(0 of any number of transitions, 0 environments)"
    bounded = storages.ReplayBuffer.create_factory(size=None, max_bytes=10_000)("cpu", None, ALGORITHM, None)
    assert bounded.capacity == 0
    bounded.insert_transition(Stream(2, "vector", False, np.random.default_rng(0)).step())
    assert bounded.capacity == 2 * bounded.ring.size
    for name, value in (("size", 10), ("max_bytes", 10)):
        with pytest.raises(ValueError, match=f"ReplayBuffer: {name} is fixed once the object is made"):
            bounded.update_storage_parameter(name, value)
    with pytest.raises(ValueError, match="ReplayBuffer: size must be"):
        storages.ReplayBuffer.create_factory(size=0)
    for kind in (storages.VanillaOnPolicyBuffer, storages.GAEBuffer, storages.VTraceBuffer):
        with pytest.raises(ValueError, match=f"{kind.__name__}: size must be an int, got None"):
            kind.create_factory(size=None)


def endless(num_envs: int, kind: str) -> Stream:
    """A stream whose episodes do not end, so that there are no final observations."""
    stream = Stream(num_envs, kind, False, np.random.default_rng(0))
    stream._flag = lambda probability: np.zeros((num_envs, 1), np.bool_)  # type: ignore[method-assign]
    return stream


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize(
    ("way", "kind", "max_bytes"),
    [
        ("uniform", "vector", 123_456),
        ("priority", "image", 30_000),
        ("hindsight, priority and recency", "dict of frames", 123_456),
    ],
)
def test_max_bytes_limits_the_memory_of_a_storage(way: str, kind: str, max_bytes: int) -> None:
    storage, stream = made(way, None, kind, max_bytes=max_bytes), endless(2, kind)
    for _ in range(2):
        storage.insert_transition(stream.step())
    learnt(storage)
    assert 0.9 * max_bytes < storage.nbytes <= max_bytes
    size = storage.ring.size
    storage.reset()
    samples = [stream.step() for _ in range(size + 5)]
    for sample in samples:
        storage.insert_transition(sample)
    # Somewhat fewer where the first stacks, which are padded, let more room for padding be kept.
    assert 0.9 * size <= storage.ring.size <= size
    model = Model(storage.ring.size)
    for sample in samples:
        model.insert(sample)
    assert len(storage) == storage.capacity == 2 * model.size
    assert storage.nbytes <= max_bytes
    assert_slice_is(storage.get_all_buffer_data(), model.live())


def test_the_smaller_of_size_and_max_bytes_applies_and_too_few_bytes_are_refused() -> None:
    step = Stream(2, "vector", False, np.random.default_rng(0)).step
    sizes = []
    for size, max_bytes in ((5, 10_000), (10_000, 10_000), (None, 10_000)):
        storage = storages.ReplayBuffer.create_factory(size=size, max_bytes=max_bytes)("cpu", None, ALGORITHM, None)
        storage.insert_transition(step())
        sizes.append(storage.ring.size)
    assert sizes[0] == 5 < sizes[1] == sizes[2]
    factory = storages.ReplayBuffer.create_factory(size=None, max_bytes=500, sequences=Sequences(8))
    storage = factory("cpu", None, ALGORITHM, None)
    with pytest.raises(SampleError, match=r"ReplayBuffer: max_bytes must be at least [\d,]+ to hold 8 steps of 2 env"):
        storage.insert_transition(step())
    assert len(storage) == 0


def test_windows_are_limited_to_the_size_that_follows_from_max_bytes() -> None:
    storage = made("uniform", None, num_envs=1, max_bytes=700, n_step=100, sequences=Sequences(2))
    for number in range(30):
        obs, flag = np.full((1, 3), number, np.float32), np.zeros((1, 1), bool)
        sample = {OBS: obs, OBS2: obs + 1, DONE: flag | (number == 0), DONE2: flag, TRUNC2: flag}
        storage.insert_transition(sample | {ACT: flag.astype(int), REW: np.ones((1, 1), np.float32)})
    batch, size = next(storage.generate_batches(1, 4)), storage.ring.size
    assert 2 < size < 30
    assert len(batch["LeadOut"][OBS]) == size - 1
