"""For arbitrary samples and orders of operations, every row of every batch equals the inserted step."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import ReplayBuffer, SampleError
from storages.transition import ACT, DONE2, OBS, OBS2, REW
from tests.support.model import (
    ALGORITHM,
    KINDS,
    Model,
    Sample,
    Stream,
    assert_batch_is_of,
    assert_slice_is,
    contents,
    dressed,
    environments,
    equal,
    map_leaves,
    replay_buffer,
    through_a_file,
)
from tests.support.profiles import examples

operations = st.lists(
    st.sampled_from(
        ["insert"] * 6
        + ["insert many", "insert slice", "batch", "slice", "copy", "continue elsewhere", "keep state", "go back"]
        + ["refuse", "replace", "reset", "interrupt", "end episode"]
    ),
    min_size=5,
    max_size=40,
)


class Machine:
    """A storage and its reference model, to which the same operations are applied."""

    def __init__(self, size: int, num_envs: int, kind: str, recurrent: bool, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.size, self.num_envs = size, num_envs
        self.new_stream = lambda: Stream(num_envs, kind, recurrent, self.generator)
        self.stream = self.new_stream()
        self.envs = environments(kind, num_envs)
        self.storage = replay_buffer(size, seed, self.envs)
        self.model = Model(size)
        self.returned: list[tuple[Sample, Sample]] = []
        self.saved = (through_a_file(self.storage.state_dict()), self.model.copy())

    def insert(self) -> None:
        sample = self.stream.step()
        self.storage.insert_transition(dressed(sample, int(self.generator.integers(6))))
        self.model.insert(sample)

    def insert_many(self) -> None:
        for _ in range(self.size + 1):
            self.insert()

    def insert_slice(self) -> None:
        """A slice of another worker, which may be longer than the storage."""
        worker = self.new_stream()
        samples = [worker.step() for _ in range(int(self.generator.integers(1, self.size + 3)))]
        other = replay_buffer(len(samples), envs=self.envs)
        for sample in samples:
            other.insert_transition(sample)
            self.model.insert(sample)
        data = other.get_all_buffer_data()
        before = map_leaves(data, torch.clone)
        as_arrays = self.generator.random() < 0.5
        self.storage.insert_data_slice(map_leaves(data, torch.Tensor.numpy) if as_arrays else data)
        assert equal(data, before), "the inserted slice was changed"

    def batch(self) -> None:
        if not len(self.storage):
            return
        for batch in self.storage.generate_batches(2, 7):
            assert_batch_is_of(self.model, batch, self.num_envs)
            self.keep(batch)

    def slice(self) -> None:
        live = self.model.live()
        start, end = sorted(self.generator.integers(0, len(live) + 1, 2).tolist())
        if live:
            part, whole = self.storage.get_data_slice(start, end), self.storage.get_all_buffer_data(data_to_cpu=True)
            assert_slice_is(part, live[start:end])
            assert_slice_is(whole, live)
            self.keep(part)
            self.keep(whole)

    def copy(self) -> None:
        """Slices of this storage, inserted into another one, give the same content."""
        live = self.model.live()
        if not live:
            return
        other = replay_buffer(self.size, envs=self.envs)
        middle = int(self.generator.integers(0, len(live) + 1))
        other.insert_data_slice(self.storage.get_data_slice(0, middle))
        other.insert_data_slice(self.storage.get_data_slice(middle, len(live)))
        assert_slice_is(other.get_all_buffer_data(), live)

    def continue_elsewhere(self) -> None:
        """The run continues with a new storage that has loaded the state of this one."""
        loaded = replay_buffer(self.size, seed=12345, envs=self.envs)
        loaded.load_state_dict(through_a_file(self.storage.state_dict()))
        if len(self.storage):
            one, two = (next(iter(storage.generate_batches(1, 5))) for storage in (self.storage, loaded))
            assert equal(one, two)
        self.storage = loaded

    def keep_state(self) -> None:
        self.saved = (through_a_file(self.storage.state_dict()), self.model.copy())

    def go_back(self) -> None:
        """A storage in use loads a state that was saved earlier."""
        state, model = self.saved
        self.storage.load_state_dict(state)
        self.model = model.copy()

    def refuse(self) -> None:
        before, steps = contents(self.storage), len(self.storage)
        good = self.new_stream().step()
        bad: list[Sample] = [
            good | {REW: np.full((self.num_envs, 1), np.nan, np.float32)},
            {key: value for key, value in good.items() if key != OBS},
            good | {ACT: np.zeros((self.num_envs + 1, 1), np.int64)},
            good | {DONE2: np.zeros(self.num_envs, bool)},
            good | {OBS2: np.zeros((self.num_envs, 17), np.complex64)},
        ]
        with pytest.raises(SampleError):
            self.storage.insert_transition(bad[int(self.generator.integers(len(bad)))])
        assert contents(self.storage) == before
        assert len(self.storage) == steps

    def replace(self) -> None:
        live = self.model.live()
        if not live:
            return
        start = int(self.generator.integers(0, len(live)))
        end = int(self.generator.integers(start, len(live) + 1))
        values = self.generator.normal(size=(end - start, self.num_envs, 1)).astype(np.float32)
        self.storage.insert_single_tensor_slice(REW, values, start)
        for sample, value in zip(live[start:end], values, strict=True):
            sample[REW][:] = value

    def reset(self) -> None:
        self.storage.reset()
        assert len(self.storage) == 0
        if self.generator.random() < 0.5:
            self.interrupt()
        # Numbers of steps are skipped, so that none is used twice.
        self.model.reset(self.storage.state_dict()["ring"]["steps"])

    def end_episode(self) -> None:
        envs = np.flatnonzero(self.generator.random(self.num_envs) < 0.5).tolist()
        self.storage.end_episode(envs)
        self.model.end_episode(envs)
        self.stream.end_episode(envs)

    def interrupt(self) -> None:
        """The environments are replaced by new ones, as after a resume."""
        self.stream = self.new_stream()

    def keep(self, returned: Sample) -> None:
        self.returned.append((returned, map_leaves(returned, torch.clone)))

    def check(self) -> None:
        assert len(self.storage) == len(self.model.steps) * self.num_envs
        if self.model.steps:
            assert self.storage.capacity == self.size * self.num_envs
        for now, then in self.returned:
            assert equal(now, then), "returned data changed later"


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(
    size=st.one_of(st.integers(1, 4), st.integers(5, 30)),
    num_envs=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    recurrent=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
    program=operations,
)
def test_every_row_equals_the_inserted_step_after_arbitrary_operations(
    size: int, num_envs: int, kind: str, recurrent: bool, seed: int, program: list[str]
) -> None:
    machine = Machine(size, num_envs, kind, recurrent, seed)
    for operation in program:
        getattr(machine, operation.replace(" ", "_"))()
        assert len(machine.storage) == len(machine.model.steps) * num_envs
    machine.batch()
    machine.slice()
    machine.check()


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_stay_correct_while_a_long_run_wraps_hundreds_of_times(kind: str) -> None:
    machine = Machine(size=7, num_envs=3, kind=kind, recurrent=True, seed=1)
    for step in range(2000):
        machine.insert()
        if step % 50 == 0:
            machine.batch()
            machine.slice()
    machine.check()


@pytest.mark.parametrize("ends", ["NextDone", "NextTruncated"])
def test_episodes_of_one_step_each_keep_all_their_last_observations(ends: str) -> None:
    storage, model = replay_buffer(20), Model(20)
    stream = Stream(4, "vector", False, np.random.default_rng(0))
    for _ in range(100):
        sample = stream.step()
        stream.ended = sample[ends] = np.ones((4, 1), bool)
        storage.insert_transition(sample)
        model.insert(sample)
    assert_batch_is_of(model, next(iter(storage.generate_batches(1, 500))), 4)
    assert_slice_is(storage.get_all_buffer_data(), model.live())


def test_an_interruption_in_one_environment_does_not_affect_the_other() -> None:
    storage = replay_buffer(4)
    zeros = {key: np.zeros((2, 1), np.float32) for key in ("Done", "Action", "Reward", "NextDone", "NextTruncated")}
    seen = lambda *numbers: np.array(numbers, np.float32)[:, None]  # noqa: E731
    storage.insert_transition(zeros | {OBS: seen(0, 10), OBS2: seen(1, 11)})
    storage.insert_transition(zeros | {OBS: seen(1, 50), OBS2: seen(2, 51)})
    data: Any = storage.get_all_buffer_data()
    assert data[OBS2][..., 0].tolist() == [[1, 11], [2, 51]]
    assert data[OBS][..., 0].tolist() == [[0, 10], [1, 50]]


@pytest.mark.parametrize(("kind", "recurrent"), [("vector", False), ("dict", True)])
def test_loading_the_state_of_an_unused_storage_removes_all_data_and_fields(kind: str, recurrent: bool) -> None:
    used, stream = replay_buffer(5), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(4):
        used.insert_transition(stream.step() | {DONE2: np.ones((2, 1), bool)})
    used.load_state_dict(replay_buffer(5).state_dict())
    assert len(used) == 0
    model, fresh = Model(5), Stream(2, kind, recurrent, np.random.default_rng(1))
    for _ in range(4):
        sample = fresh.step()
        used.insert_transition(sample)
        model.insert(sample)
    assert_slice_is(used.get_all_buffer_data(), model.live())


def test_a_storage_made_for_environments_knows_its_capacity_before_the_first_sample() -> None:
    class Envs:
        num_envs = 3

    storage = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, Envs())
    assert (storage.capacity, storage.num_envs, len(storage)) == (15, 3, 0)
    with pytest.raises(SampleError, match="made for 3 environments, the sample holds 2"):
        storage.insert_transition(Stream(2, "vector", False, np.random.default_rng(0)).step())
    assert len(storage) == 0


def test_indices_of_rows_are_unique_across_resets_and_restarts() -> None:
    machine = Machine(size=3, num_envs=2, kind="vector", recurrent=False, seed=0)
    numbers: list[int] = []
    for _ in range(5):
        machine.insert_many()
        numbers += sorted(set(next(iter(machine.storage.generate_batches(1, 200)))["Indices"][:, 0].tolist()))
        machine.reset()
        machine.continue_elsewhere()
    assert numbers == sorted(set(numbers))
