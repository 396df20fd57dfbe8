"""The replay buffer: uniform draws, independent batches, and no observation in memory twice."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from storages import ReplayBuffer
from storages.core.ring import ring
from storages.transition import ACT, DISCOUNT, DONE, DONE2, INDICES, OBS, OBS2, REW, TRUNC2, WEIGHTS
from tests.support.model import (
    ALGORITHM,
    KINDS,
    Stream,
    all_leaves,
    contents,
    equal,
    map_leaves,
    replay_buffer,
)


def filled(kind: str = "vector", size: int = 10, num_envs: int = 3, steps: int = 25, recurrent: bool = False) -> Any:
    storage = replay_buffer(size)
    stream = Stream(num_envs, kind, recurrent, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage, stream


def batch_of(storage: Any, size: int = 32) -> Any:
    return next(iter(storage.generate_batches(1, size)))


def test_uniform_draws_are_fair_after_the_ring_has_wrapped() -> None:
    storage, _ = filled()
    drawn = torch.cat([batch[INDICES] for batch in storage.generate_batches(200, 1000)])[:, 0].numpy()
    first, last = 15 * 3, 25 * 3
    assert first <= drawn.min() <= drawn.max() < last
    counts, expected = np.bincount(drawn - first, minlength=30), 200_000 / 30
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 58.3  # 0.999 quantile of 29 degrees of freedom


def test_generate_batches_yields_the_requested_number_of_batches() -> None:
    storage, _ = filled()
    batches = list(storage.generate_batches(3, 8, num_epochs=2))
    assert len(batches) == 6
    assert all(len(batch[REW]) == 8 for batch in batches)


@pytest.mark.parametrize("kind", KINDS)
def test_returned_batches_and_slices_do_not_change_later(kind: str) -> None:
    storage, stream = filled(kind, recurrent=True)
    handed = [batch_of(storage), storage.get_all_buffer_data(), storage.get_data_slice(2, 5)]
    copies = map_leaves(dict(enumerate(handed)), torch.clone)
    for _ in range(40):
        storage.insert_transition(stream.step())
    storage.insert_single_tensor_slice(REW, np.zeros((10, 3, 1), np.float32))
    storage.reset()
    for now, then in zip(all_leaves(dict(enumerate(handed))), all_leaves(copies), strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("kind", KINDS)
def test_writing_to_a_batch_or_a_sample_does_not_change_the_storage(kind: str) -> None:
    storage, stream = filled(kind, recurrent=True)
    sample = stream.step()
    storage.insert_transition(sample)
    before = contents(storage)
    for leaf in all_leaves(sample):
        leaf.fill(1)
    for handed in (batch_of(storage), storage.get_all_buffer_data(), storage.get_data_slice(0, 3)):
        for leaf in all_leaves(handed):
            leaf.zero_()
    assert contents(storage) == before


@pytest.mark.parametrize("kind", KINDS)
def test_writing_to_a_saved_state_changes_neither_the_saved_nor_the_loaded_storage(kind: str) -> None:
    storage, _ = filled(kind, recurrent=True)
    loaded, state, before = replay_buffer(10), storage.state_dict(), contents(storage)
    loaded.load_state_dict(state)
    for leaf in _tensors_in(state):
        leaf.fill_(1)
    assert contents(storage) == contents(loaded) == before
    assert equal(batch_of(storage), batch_of(loaded))


@pytest.mark.parametrize("kind", KINDS)
def test_inserted_samples_may_be_read_only_and_are_not_changed(kind: str) -> None:
    storage, stream = filled(kind, recurrent=True)
    for _ in range(20):
        sample = stream.step()
        copy = map_leaves(sample, np.array)
        for leaf in all_leaves(sample):
            leaf.setflags(write=False)
        storage.insert_transition(sample)
        for now, then in zip(all_leaves(sample), all_leaves(copy), strict=True):
            np.testing.assert_array_equal(now, then)
        stream.continued, stream.rhs = map_leaves(stream.continued, np.array), np.array(stream.rhs)


def test_a_tensor_that_requires_a_gradient_is_stored_without_it() -> None:
    storage = replay_buffer(3)
    sample = Stream(2, "vector", False, np.random.default_rng(0)).step()
    storage.insert_transition(sample | {REW: torch.ones((2, 1), requires_grad=True)})
    assert not batch_of(storage)[REW].requires_grad


def test_negative_zero_is_distinguished_from_zero() -> None:
    storage = replay_buffer(3)
    sample = Stream(1, "vector", False, np.random.default_rng(0)).step() | {DONE: np.zeros((1, 1), bool)}
    zero, minus_zero = np.zeros((1, 3), np.float32), np.full((1, 3), -0.0, np.float32)
    flags = {DONE2: np.zeros((1, 1), bool), TRUNC2: np.zeros((1, 1), bool)}
    storage.insert_transition(sample | flags | {OBS2: minus_zero})
    storage.insert_transition(sample | flags | {OBS: zero})
    assert storage.get_all_buffer_data()[OBS2][0].numpy().tobytes() == minus_zero.tobytes()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("vector", torch.float32),
        ("double", torch.float64),
        ("image", torch.uint8),
        ("discrete", torch.int64),
        ("bits", torch.bool),
    ],
)
def test_batches_keep_the_dtypes_of_the_environment(kind: str, dtype: torch.dtype) -> None:
    storage, _ = filled(kind)
    batch = batch_of(storage)
    assert batch[OBS].dtype == batch[OBS2].dtype == storage.get_all_buffer_data()[OBS2].dtype == dtype
    assert batch[ACT].dtype == torch.int64
    assert {batch[key].dtype for key in (REW, DONE, DONE2, TRUNC2, DISCOUNT, WEIGHTS)} == {torch.float32}
    assert {batch[key].shape for key in (REW, DONE, DONE2, TRUNC2, DISCOUNT, WEIGHTS, INDICES)} == {(32, 1)}
    assert batch[INDICES].dtype == torch.int64


def test_batches_keep_the_dtypes_of_dict_observations() -> None:
    batch = batch_of(filled("dict")[0])
    for key in (OBS, OBS2):
        assert {name: leaf.dtype for name, leaf in batch[key].items()} == {"a": torch.float32, "b": torch.uint8}


def test_a_missing_truncation_field_means_no_truncation() -> None:
    storage = replay_buffer(5)
    sample = Stream(2, "vector", False, np.random.default_rng(0)).step()
    storage.insert_transition({key: value for key, value in sample.items() if key != TRUNC2})
    assert not storage.get_all_buffer_data()[TRUNC2].any()


def test_custom_fields_are_stored() -> None:
    storage = replay_buffer(5)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for number in range(8):
        storage.insert_transition(stream.step() | {"Cost": np.full((2, 4), number, np.int16)})
    costs = storage.get_all_buffer_data()["Cost"]
    assert costs.dtype == torch.int16
    assert costs[:, 0, 0].tolist() == [3, 4, 5, 6, 7]


def test_equal_seeds_draw_equal_batches_and_different_seeds_do_not() -> None:
    one, two, other = (filled()[0] for _ in range(3))
    one.seed(7), two.seed(7), other.seed(8)
    first = batch_of(one)
    assert equal(first, batch_of(two))
    assert not torch.equal(first[INDICES], batch_of(other)[INDICES])
    assert not torch.equal(first[INDICES], batch_of(one)[INDICES])
    one.seed(7)
    assert equal(first, batch_of(one))


def test_draws_do_not_depend_on_global_random_generators() -> None:
    one, two = filled()[0], filled()[0]
    np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    first = batch_of(one)
    before = torch.get_rng_state()
    np.random.seed(2), torch.manual_seed(1)  # noqa: NPY002
    assert equal(first, batch_of(two))
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_and_slices_are_on_the_device_of_the_storage_except_with_data_to_cpu() -> None:
    storage = ReplayBuffer.create_factory(size=5)("meta", None, ALGORITHM, None)
    stream = Stream(2, "dict", True, np.random.default_rng(0))
    for _ in range(3):
        storage.insert_transition(stream.step())
    for handed in (batch_of(storage), storage.get_all_buffer_data(), storage.get_data_slice(0, 2)):
        assert {leaf.device.type for leaf in all_leaves(handed)} == {"meta"}
    assert {leaf.device.type for leaf in all_leaves(storage.get_all_buffer_data(data_to_cpu=True))} == {"cpu"}


def test_a_changed_gamma_changes_the_discount_of_the_next_batch() -> None:
    storage, _ = filled()
    storage.algorithm = type("Algorithm", (), {"gamma": 0.5})()
    batch = batch_of(storage)
    torch.testing.assert_close(batch[DISCOUNT], 0.5 * (1 - batch[DONE2]))


def test_each_observation_is_stored_only_once() -> None:
    size, num_envs, observation_bytes = 200, 2, 4 * 1000
    storage = replay_buffer(size)
    sample = {
        DONE: np.zeros((num_envs, 1), bool),
        ACT: np.zeros((num_envs, 1), np.float32),
        REW: np.zeros((num_envs, 1), np.float32),
        DONE2: np.zeros((num_envs, 1), bool),
        TRUNC2: np.zeros((num_envs, 1), bool),
    }
    observation = np.zeros((num_envs, 1000), np.float32)
    for step in range(300):
        following = np.full((num_envs, 1000), step, np.float32)
        storage.insert_transition(sample | {OBS: observation, OBS2: following})
        observation = following
    values_once = size * num_envs * (observation_bytes + 4 + 4 + 3)
    assert values_once <= storage.nbytes <= 1.1 * values_once


@pytest.mark.parametrize("probability_of_an_end", [0.0, 0.5])
def test_nbytes_equals_the_memory_that_arrays_take(probability_of_an_end: float) -> None:
    def fill() -> ReplayBuffer:
        generator, storage = np.random.default_rng(0), replay_buffer(300)
        following = np.zeros((4, 200), np.float32)
        zeros = {key: np.zeros((4, 1), np.float32) for key in (ACT, REW, DONE, TRUNC2)}
        for step in range(700):
            observation, following = following, np.full((4, 200), step, np.float32)
            ends = generator.random((4, 1)) < probability_of_an_end
            storage.insert_transition(zeros | {OBS: observation, OBS2: following, DONE2: ends})
        return storage

    fill()  # Compiles the kernels, which takes additional memory.
    tracemalloc.start()
    storage = fill()
    arrays = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)])
    tracemalloc.stop()
    taken = sum(trace.size for trace in arrays.traces)
    assert storage.nbytes == pytest.approx(taken, rel=0.02)


def test_reset_keeps_the_memory_and_never_reuses_an_index() -> None:
    storage, stream = filled()
    nbytes, before = storage.nbytes, batch_of(storage)[INDICES].max()
    storage.reset()
    assert (len(storage), storage.nbytes) == (0, nbytes)
    storage.insert_transition(stream.step())
    assert batch_of(storage)[INDICES].min() > before


def test_after_gradients_returns_the_info_with_metrics_and_does_not_change_it() -> None:
    storage, _ = filled()
    info = {"loss": 1.0}
    returned = storage.after_gradients(batch_of(storage), info)
    assert returned["loss"] == 1.0
    # Steps 15 to 24 are live, and 32 rows were drawn of the 75 transitions inserted.
    assert 0 <= returned["storage/row_age"] <= 9
    assert returned["storage/replay_ratio"] == 32 / 75
    assert info == {"loss": 1.0}
    assert returned is not info


def test_without_memory_the_error_names_the_bytes_and_a_size_that_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ring.Columns

    def without_memory(layout: Any, rows: int, *others: Any, **named: Any) -> Any:
        if rows > 1_000:
            raise MemoryError("Unable to allocate")
        return columns(layout, rows, *others, **named)

    monkeypatch.setattr(ring, "Columns", without_memory)
    storage, stream = replay_buffer(40_000_000), Stream(4, "vector", False, np.random.default_rng(0))
    with pytest.raises(MemoryError) as refused:
        storage.insert_transition(stream.step())
    said = str(refused.value)
    assert "no memory for 40,000,000 steps of 4 environments, 160,000,000 transitions, which take " in said
    assert "reduce size: size=10000000 (--storage.size 10000000 of a command) takes " in said
    monkeypatch.undo()
    small, fitting = (replay_buffer(size) for size in (400, 100))
    for other in (small, fitting):
        other.insert_transition(Stream(4, "vector", False, np.random.default_rng(0)).step())
    gigabytes = [float(text.split(" GB")[0]) for text in said.split(" take ")[1:] + said.split(" takes ")[1:]]
    assert gigabytes == pytest.approx([small.nbytes * 100_000 / 1e9, fitting.nbytes * 100_000 / 1e9], rel=0.05)


def test_init_tensors_fixes_the_fields_without_storing_anything() -> None:
    storage = replay_buffer(5)
    sample = Stream(2, "vector", False, np.random.default_rng(0)).step()
    storage.init_tensors(sample)
    assert len(storage) == 0
    assert storage.capacity == 10
    assert storage.nbytes > 0
    storage.insert_transition(sample)
    assert len(storage) == 2


def _tensors_in(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list):
        for part in state.values() if isinstance(state, dict) else state:
            yield from _tensors_in(part)
