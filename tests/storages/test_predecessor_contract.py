"""Collectors and storages written for PyTorchRL run unchanged: its names, its order of arguments, its overrides."""

import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import storages
from storages import (
    HERBuffer,
    MixedStorage,
    NStepReplayBuffer,
    PERBuffer,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    Sequences,
    Storage,
)
from storages.other_names import NEVER_CALLED, STORAGE_ARGUMENTS, STORAGE_ATTRIBUTES
from storages.sharded import ShardedReplay
from storages.transition import ACT, DONE, DONE2, ERRORS, INFO, OBS, OBS2, REQUIRED, REW, RHS, RHS2, TRUNC2
from tests.support.model import ALGORITHM, Stream

EXPORTED = [getattr(storages, name) for name in storages.__all__]
CLASSES: list[Any] = [
    cls for cls in EXPORTED if isinstance(cls, type) and issubclass(cls, Storage) and not inspect.isabstract(cls)
]
PRIORITISED: list[Any] = [cls for cls in CLASSES if issubclass(cls, PERBuffer)]
NUM_ENVS = 2
ENVS = SimpleNamespace(
    num_envs=NUM_ENVS, compute_reward=lambda achieved, desired, info: -np.abs(achieved - desired).sum(1)
)
ACTOR = SimpleNamespace(evaluate_action_values=None)


def made(cls: Any, folder: Any, **given: Any) -> Any:
    """A storage for two environments, on disk below a folder if it must be."""
    directory = {"directory": str(folder / cls.__name__)} if issubclass(cls, PersistentEpisodicBuffer) else {}
    storage = cls.create_factory(size=20, **directory, **given)("cpu", ACTOR, ALGORITHM, ENVS)
    storage.seed(0)
    return storage


def step_for(cls: Any, steps: Stream) -> dict[str, Any]:
    """A step as a class of storages needs it."""
    sample, column = steps.step(), np.zeros((NUM_ENVS, 1), np.float32)
    if issubclass(cls, HERBuffer):
        for key in (OBS, OBS2):
            sample[key] = {"achieved_goal": sample[key]["a"], "desired_goal": np.zeros_like(sample[key]["a"])}
        sample[REW] = -np.abs(sample[OBS2]["achieved_goal"]).sum(1, keepdims=True)
    return sample | ({"Value": column, "LogProbability": column} if cls.on_policy else {})


def stream(kind: str = "vector") -> Stream:
    return Stream(NUM_ENVS, kind, False, np.random.default_rng(0))


# A storage and a collector as a user of PyTorchRL has written them.


class ClippedReplay(ReplayBuffer):  # type: ignore[misc]
    """Clips rewards when they are inserted, scales them in batches, and counts updates."""

    def __init__(self, size, device, actor, algorithm, envs, clip=1.0):  # type: ignore[no-untyped-def]
        super().__init__(size, device, actor, algorithm, envs)
        self.clip = clip
        self.updates = 0

    @classmethod
    def create_factory(cls, size, clip=1.0):  # type: ignore[no-untyped-def,override]
        def create_storage(device, actor, algorithm, envs):  # type: ignore[no-untyped-def]
            return cls(size, device, actor, algorithm, envs, clip)

        return create_storage

    def insert_transition(self, sample):  # type: ignore[no-untyped-def,override]
        clipped = {key: sample[key] for key in self.storage_tensors if key in sample}
        clipped[REW] = clipped[REW].clip(-self.clip, self.clip)
        super().insert_transition(clipped)

    def generate_batches(self, num_mini_batch, mini_batch_size, num_epochs=1):  # type: ignore[no-untyped-def]
        for batch in super().generate_batches(num_mini_batch, mini_batch_size, num_epochs):
            batch[REW] = batch[REW] * 10
            yield batch

    def after_gradients(self, batch, info):  # type: ignore[no-untyped-def]
        info = super().after_gradients(batch, info)
        self.updates += 1
        info["updates"] = self.updates
        return info

    def insert_data_slice(self, new_data):  # type: ignore[no-untyped-def,override]
        super().insert_data_slice(new_data=new_data)

    def update_storage_parameter(self, parameter_name, new_parameter_value):  # type: ignore[no-untyped-def,override]
        if parameter_name == "clip":
            self.clip = new_parameter_value
        else:
            super().update_storage_parameter(parameter_name, new_parameter_value)


def collect(storage: Any, steps: int, rhs: Any) -> list[Any]:
    """Insert transitions as tensors, as a collector of PyTorchRL does, and return their rewards."""
    draw = torch.Generator().manual_seed(0)
    obs, done, rewards = torch.randn(NUM_ENVS, 3, generator=draw), torch.ones(NUM_ENVS, 1), []
    for _ in range(steps):
        action = torch.randn(NUM_ENVS, 1, generator=draw)
        obs2, reward = torch.randn(NUM_ENVS, 3, generator=draw), 3 * torch.randn(NUM_ENVS, 1, generator=draw)
        done2 = (torch.rand(NUM_ENVS, 1, generator=draw) < 0.2).float()
        storage.insert_transition(
            {OBS: obs, RHS: rhs, DONE: done, ACT: action, REW: reward, OBS2: obs2, RHS2: rhs, DONE2: done2, INFO: {}}
        )
        rewards.append(reward)
        done, obs = done2, torch.where(done2 > 0, torch.randn(NUM_ENVS, 3, generator=draw), obs2)
    return rewards


@pytest.mark.parametrize("rhs", [{}, {"policy": torch.zeros(NUM_ENVS, 1)}], ids=["no memory", "dummy memory"])
def test_a_collector_and_a_subclass_written_for_pytorchrl_run_unchanged(rhs: Any) -> None:
    factory = ClippedReplay.create_factory(size=100, clip=2.0)  # type: ignore[no-untyped-call]
    worker, learner = (factory("cpu", None, ALGORITHM, ENVS) for _ in range(2))
    rewards = torch.stack(collect(worker, 30, rhs)).clip(-2, 2)
    assert (worker.get_all_buffer_data(data_to_cpu=True)[REW] == rewards).all()

    learner.update_storage_parameter(parameter_name="clip", new_parameter_value=1.0)
    learner.insert_data_slice(new_data=worker.get_data_slice(start_pos=5, end_pos=30))
    worker.reset()
    assert (len(worker), len(learner)) == (0, 25 * NUM_ENVS)
    assert (learner.data[REW] == rewards[5:].clip(-1, 1).numpy()).all()
    assert set(learner.data) - {RHS, RHS2, TRUNC2} == {*REQUIRED}

    learner.before_gradients()
    learner.seed(0)
    batches = 0
    for batch in learner.generate_batches(2, 8, num_epochs=3):
        assert batch[REW].abs().max() > 1
        assert set(batch[REW].flatten().tolist()) <= set((10 * torch.tensor(learner.data[REW])).flatten().tolist())
        batches += 1
        assert learner.after_gradients(batch, {"loss": 1.0})["updates"] == batches
    assert batches == 6
    assert next(learner.generate_batches(1, 4))[OBS].shape == (4, 3)


def test_the_factory_of_a_subclass_of_pytorchrl_is_logged_pickled_and_compared() -> None:
    factory = ClippedReplay.create_factory(50, clip=2.0)  # type: ignore[no-untyped-call]
    assert factory.config == {"name": "ClippedReplay", "hyper_parameters": {"size": 50, "clip": 2.0}}
    again = pickle.loads(pickle.dumps(factory))
    assert again == factory
    storage = again(device="cpu", actor=None, algorithm=ALGORITHM, envs=None)
    assert (storage.size, storage.clip) == (50, 2.0)


def test_an_inherited_factory_makes_a_subclass_whose_size_comes_first() -> None:
    class Scaled(PERBuffer):
        def __init__(self, size: int, device: Any, actor: Any, algorithm: Any, envs: Any, scale: float = 1.0) -> None:
            super().__init__(size, device, actor, algorithm, envs, 3, 0.01)  # type: ignore[arg-type]
            self.scale = scale

    factory = Scaled.create_factory(40, scale=0.5)  # type: ignore[arg-type,call-arg,misc]
    assert factory.config["hyper_parameters"] == {"size": 40, "scale": 0.5}
    storage: Any = factory("cpu", None, ALGORITHM, None)
    assert (storage.size, storage.n_step, storage.epsilon, storage.scale) == (40, 3, 0.01, 0.5)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_insertion_without_environments_receives_whole_steps(cls: Any, tmp_path: Any) -> None:
    seen = []

    class Own(cls):  # type: ignore[misc]
        def insert_transition(self, sample):  # type: ignore[no-untyped-def]
            seen.append(sample[REW])
            super().insert_transition(sample)

    class Further(Own):
        def insert_transition(self, sample, envs=None):  # type: ignore[no-untyped-def]
            super().insert_transition(sample, envs)

    samples = [step_for(cls, stream("dict")) for _ in range(2)]
    for kind in (Own, Further):
        seen.clear()
        storage = made(kind, tmp_path)
        storage.insert_transition(samples[0])
        for env in range(NUM_ENVS):
            storage.insert_transition({key: rows_of(value, env) for key, value in samples[1].items()}, envs=[env])
        assert storage.inserted == 2 * NUM_ENVS
        assert [len(reward) for reward in seen] == [NUM_ENVS, NUM_ENVS]
        assert (seen[1] == samples[1][REW]).all()


def rows_of(value: Any, env: int) -> Any:
    return {name: leaf[[env]] for name, leaf in value.items()} if isinstance(value, dict) else value[[env]]


# Fields


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_names_the_fields_of_its_transitions(cls: Any, tmp_path: Any) -> None:
    assert isinstance(cls.storage_tensors, tuple)
    assert {*REQUIRED, *cls.computed_fields} <= set(cls.storage_tensors)
    storage = made(cls, tmp_path)
    storage.insert_transition(step_for(cls, stream("dict")))
    assert set(storage.data) <= set(cls.storage_tensors)


def test_a_subclass_with_own_storage_tensors_stores_these_fields_alone() -> None:
    class Few(ReplayBuffer):
        storage_tensors = (OBS, ACT, "Colour")

    sample = stream().step() | {key: np.ones((NUM_ENVS, 1), np.float32) for key in ("Colour", "Weather")}
    storage = Few.create_factory(10)("cpu", None, ALGORITHM, None)
    storage.init_tensors(sample)
    storage.insert_transition(sample)
    storage.insert_data_slice({key: value[None] for key, value in sample.items()})
    assert set(storage.data) == {*REQUIRED, TRUNC2, "Colour"}
    assert len(storage) == 2 * NUM_ENVS
    with pytest.raises(TypeError, match=r"Wrong.storage_tensors must be a tuple of names of fields, got 'Reward'"):
        type("Wrong", (ReplayBuffer,), {"storage_tensors": REW})


@pytest.mark.parametrize("cls", CLASSES)
def test_fields_that_are_not_stored_reach_an_insertion_of_ones_own(cls: Any, tmp_path: Any) -> None:
    seen = []

    class Own(cls):  # type: ignore[misc]
        storage_tensors = (*cls.storage_tensors, "Colour")

        def init_tensors(self, sample):  # type: ignore[no-untyped-def]
            seen.append("init")
            super().init_tensors(sample)

        def insert_transition(self, sample):  # type: ignore[no-untyped-def]
            seen.append(float(sample["Weather"][0, 0]))
            super().insert_transition(sample)

    storage, steps, column = made(Own, tmp_path), stream("dict"), np.ones((NUM_ENVS, 1), np.float32)
    for step in range(3):
        sample = step_for(cls, steps) | {"Colour": column, "Weather": step * column, DONE2: column}
        storage.insert_transition(sample)
    assert seen == ["init", 0, 1, 2]
    assert "Colour" in storage.data
    assert "Weather" not in storage.data


def test_data_reads_the_stored_fields_oldest_first_and_refuses_to_be_written_to() -> None:
    storage = ReplayBuffer(6, "cpu", None, ALGORITHM, None)  # type: ignore[arg-type]
    assert dict(storage.data) == {}
    steps = stream("dict")
    rewards = []
    for _ in range(9):
        sample = steps.step()
        rewards.append(sample[REW])
        storage.insert_transition(sample)
    stored = storage.get_all_buffer_data()
    assert set(storage.data) == set(stored)
    assert len(storage.data) == len(stored)
    assert (storage.data[REW] == rewards[-6:]).all()
    assert (storage.data[OBS]["b"] == stored[OBS]["b"].numpy()).all()
    with pytest.raises(ValueError, match="read-only"):
        storage.data[REW][0] = 1
    with pytest.raises(KeyError, match="ReplayBuffer: there is no field 'Colour', only Observation"):
        storage.data["Colour"]


# Parameters by name


def call_of(storage: Any, name: str, spelling: int, leave_out: str = "") -> Any:
    values = {"start": 0, "end": 2, "data": {}, "name": "allow_nonfinite", "value": True}
    given = {
        (theirs, ours)[spelling]: values[ours] for theirs, ours in STORAGE_ARGUMENTS[name].items() if ours != leave_out
    }
    return getattr(storage, name)(**given)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", STORAGE_ARGUMENTS)
def test_parameters_have_the_names_here_and_those_of_pytorchrl(cls: Any, name: str, tmp_path: Any) -> None:
    class Theirs(cls):  # type: ignore[misc]
        """Overrides the methods with the names of PyTorchRL."""

        def get_data_slice(self, start_pos, end_pos):  # type: ignore[no-untyped-def]
            return super().get_data_slice(start_pos, end_pos)

        def insert_data_slice(self, new_data):  # type: ignore[no-untyped-def]
            super().insert_data_slice(new_data)

        def update_storage_parameter(self, parameter_name, new_parameter_value):  # type: ignore[no-untyped-def]
            super().update_storage_parameter(parameter_name, new_parameter_value)

    for kind in (cls, Theirs):
        storage = made(kind, tmp_path)
        sample = step_for(cls, stream("dict"))
        sample[DONE2] = np.ones_like(sample[DONE2])
        for _ in range(3):
            storage.insert_transition(sample)
        call_of(storage, name, 0)
        assert storage.allow_nonfinite is (name == "update_storage_parameter")
        theirs, ours = (call_of(storage, name, spelling) for spelling in (0, 1))
        if name == "get_data_slice":
            assert (theirs[REW] == ours[REW]).all()
        for other, own in STORAGE_ARGUMENTS[name].items():
            with pytest.raises(TypeError, match=rf"{kind.__name__}.{name}: .* (is missing|one parameter)"):
                call_of(storage, name, 0, leave_out=own)
            with pytest.raises(TypeError, match=rf"{kind.__name__}.{name}: \w+ and \w+ are one parameter"):
                getattr(storage, name)(**{other: 0, own: 0})
        storage.close()


def test_mixed_and_sharded_storages_take_both_names(tmp_path: Any) -> None:
    parts = {name: ReplayBuffer.create_factory(10)("cpu", None, ALGORITHM, None) for name in ("a", "b")}
    mixed = MixedStorage(parts, {"a": 0.5, "b": 0.5})
    mixed.update_storage_parameter(parameter_name="shares", new_parameter_value={"a": 0.25, "b": 0.75})
    assert mixed.shares == {"a": 0.25, "b": 0.75}
    for name in ("insert_data_slice", "update_storage_parameter"):
        with pytest.raises(TypeError, match=f"ShardedReplay.{name}: .*, which may be named .*, is missing"):
            getattr(ShardedReplay, name)(object.__new__(ShardedReplay))


def test_an_own_insert_single_tensor_slice_overwrites_and_dicts_are_appended_to() -> None:
    class Own(ReplayBuffer):
        def insert_single_tensor_slice(self, key: str, values: Any, start: int = 0) -> int:  # type: ignore[override]
            return super().insert_single_tensor_slice(key, values * 2, start)

    storage, fields = Own.create_factory(10)("cpu", None, ALGORITHM, None), {}
    storage.insert_transition(stream().step())
    ones = np.ones((1, NUM_ENVS, 1), np.float32)
    assert storage.insert_single_tensor_slice(fields, REW, ones) == 1  # type: ignore[arg-type]
    assert (fields[REW] == 1).all()
    assert storage.insert_single_tensor_slice(REW, ones) == 1
    assert (storage.data[REW] == 2).all()


def test_values_of_a_field_are_appended_to_a_dict_as_in_pytorchrl() -> None:
    storage = PERBuffer.create_factory(30)("cpu", None, ALGORITHM, None)
    plain, collected, steps = PERBuffer.create_factory(30)("cpu", None, ALGORITHM, None), {}, stream()
    fields: dict[str, Any] = collected
    for _ in range(4):
        sample = steps.step()
        plain.insert_transition(sample)
        for key, value in sample.items():
            assert storage.insert_single_tensor_slice(fields, key, torch.as_tensor(value)[None]) == 1
    more = np.full((2, NUM_ENVS, 1), 7, np.float32)
    ours: dict[str, Any] = {}
    given = {"tensor_storage": ours, "tensor_key": REW, "tensor_values": more}
    assert storage.insert_single_tensor_slice(**given) == 2
    assert storage.insert_single_tensor_slice(**given) == 2
    assert ours[REW].shape == (4, NUM_ENVS, 1)
    storage.insert_data_slice(new_data=fields)
    assert (storage.data[OBS2] == plain.data[OBS2]).all()
    assert storage.insert_single_tensor_slice(REW, more, start=1) == 2
    assert (storage.data[REW][1:3] == 7).all()


@pytest.mark.parametrize(
    ("arguments", "named", "error", "message"),
    [
        ((), {"tensor_key": REW, "tensor_values": 0}, TypeError, "missing a required argument: 'tensor_storage'"),
        (({}, REW), {}, TypeError, "missing a required argument: 'tensor_values'"),
        ((REW,), {"tensor_values": 0}, TypeError, "missing a required argument: 'tensor_key'"),
        ((REW,), {}, TypeError, "missing a required argument: 'values'"),
        (({}, REW, 3.0), {}, TypeError, "Reward: values must be an array or a tensor"),
        (("data", REW, np.ones((1, 2, 1))), {}, ValueError, "data must be an array or a tensor, got str"),
    ],
)
def test_calls_that_mix_both_meanings_are_refused(arguments: Any, named: Any, error: Any, message: str) -> None:
    storage = PERBuffer.create_factory(30)("cpu", None, ALGORITHM, None)
    with pytest.raises(error, match=message):
        storage.insert_single_tensor_slice(*arguments, **named)


def test_only_a_dict_is_appended_to_and_only_values_of_the_same_shape() -> None:
    storage = PERBuffer.create_factory(30)("cpu", None, ALGORITHM, None)
    values, fields = np.ones((2, NUM_ENVS, 1), np.float32), {REW: np.ones((1, 3, 1), np.float32)}
    with pytest.raises(
        TypeError, match=r"must be a dict to append to, got StoredFields; insert_data_slice\(new_data\)"
    ):
        storage.insert_single_tensor_slice(storage.data, REW, values)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"Reward: values of a step have shape \(3, 1\) so far, got \(2, 1\)"):
        storage.insert_single_tensor_slice(fields, REW, values)
    assert fields[REW].shape == (1, 3, 1)


# Construction


@pytest.mark.parametrize("cls", CLASSES)
def test_the_size_may_come_before_the_device(cls: Any, tmp_path: Any) -> None:
    more = [str(tmp_path / "a")] if cls is PersistentEpisodicBuffer else []
    theirs = cls(30, torch.device("cpu"), ACTOR, ALGORITHM, ENVS, *more)
    more = [str(tmp_path / "b")] if cls is PersistentEpisodicBuffer else []
    ours = cls("cpu", ACTOR, ALGORITHM, ENVS, 30, *more)
    by_name = {"directory": str(tmp_path / "c")} if cls is PersistentEpisodicBuffer else {}
    mixed = cls(30, device="cpu", actor=ACTOR, algorithm=ALGORITHM, envs=ENVS, **by_name)
    for storage in (theirs, ours, mixed):
        assert (storage.size, storage.device, storage.actor) == (30, torch.device("cpu"), ACTOR)
        assert storage.algorithm is ALGORITHM


@pytest.mark.parametrize(
    ("arguments", "named", "error", "message"),
    [
        ((100, 1, None, ALGORITHM, None), {}, TypeError, "begin with device, actor, .*, got int"),
        ((1, None, ALGORITHM, None, 100), {}, TypeError, "begin with device, actor, .*, got NoneType"),
        ((100, None, ALGORITHM, None), {}, TypeError, "missing a required argument: 'envs'"),
        ((100, "cpu", None, ALGORITHM, None), {"size": 5}, TypeError, "multiple values for argument 'size'"),
        ((0, "cpu", None, ALGORITHM, None), {}, ValueError, "ReplayBuffer: size must be at least 1, got 0"),
        (("cpu", None, ALGORITHM, None, -3), {}, ValueError, "ReplayBuffer: size must be at least 1, got -3"),
        ((100.5, "cpu", None, ALGORITHM, None), {}, ValueError, "ReplayBuffer: size must be an int, got 100.5"),
    ],
)
def test_an_order_that_is_neither_is_refused_with_the_way_out(
    arguments: Any, named: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        ReplayBuffer(*arguments, **named)


@pytest.mark.parametrize("number", [3.0, np.float32(3), np.int64(3), 3])
def test_a_count_may_be_a_float_without_a_fraction(number: Any) -> None:
    factory = NStepReplayBuffer.create_factory(size=1e2, n_step=number)  # type: ignore[arg-type]
    assert factory == NStepReplayBuffer.create_factory(size=100, n_step=3)
    made_at_once: Any = NStepReplayBuffer(1e2, "cpu", None, ALGORITHM, None, number)  # type: ignore[arg-type]
    for storage in (factory("cpu", None, ALGORITHM, None), made_at_once):
        assert (type(storage.size), type(storage.n_step), storage.n_step) == (int, int, 3)
    storage.update_storage_parameter("n_step", 5.0)
    assert type(storage.n_step) is int


# Priorities and hindsight


@pytest.mark.parametrize("cls", PRIORITISED)
@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 0.01, "alpha": 0.6},
        {"alpha": 0.0},
        {"epsilon": 0.1, "alpha": 1.0, "error_min": 0.2, "error_max": 1.5},
        {"alpha": 0.7, "uniform_share": 0.1},
    ],
)
def test_get_priority_is_the_priority_that_an_update_sets(cls: Any, given: Any, tmp_path: Any) -> None:
    storage = made(cls, tmp_path, **given)
    before = storage.get_priority(0.5)
    for _ in range(6):
        sample = step_for(cls, stream("dict"))
        storage.insert_transition({**sample, DONE2: np.ones_like(sample[DONE2])})
    batch = next(storage.generate_batches(1, 64))
    errors = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 1)))
    storage.after_gradients(batch, {ERRORS: errors})
    assert storage.get_priority(0.5) == before
    low, high = given.get("error_min", 0), given.get("error_max", np.inf)
    expected = (errors.abs().clip(low, high).numpy() + given.get("epsilon", 0)) ** given["alpha"]
    assert storage.get_priority(errors) == pytest.approx(expected, rel=1e-6)
    assert storage.get_priority(errors.tolist()) == pytest.approx(expected, rel=1e-6)
    if storage.priorities is not None:
        # The last error of a transition counts.
        last = {int(row): error for row, error in zip(batch["Indices"][:, 0], errors[:, 0], strict=True)}
        numbers = np.array(list(last))
        assert (
            storage.priorities.of(numbers) == storage.get_priority(np.array([float(e) for e in last.values()]))
        ).all()


@pytest.mark.parametrize("cls", PRIORITISED)
def test_get_sequence_priority_is_the_error_that_an_update_gives_a_sequence(cls: Any, tmp_path: Any) -> None:
    without_goals = {"her_ratio": 0} if issubclass(cls, HERBuffer) else {}
    storage = made(cls, tmp_path, alpha=0.5, epsilon=0.1, sequences=Sequences(3, eta=0.7), **without_goals)
    sample = step_for(cls, stream("dict"))
    never, ends = np.zeros((NUM_ENVS, 1), bool), np.ones((NUM_ENVS, 1), bool)
    for step in range(8):
        flags = {DONE: ends if step == 0 else never, DONE2: ends if step == 7 else never, TRUNC2: never}
        storage.insert_transition({**sample, **flags, OBS2: sample[OBS]})
    batch = next(storage.generate_batches(1, 1))
    errors = torch.tensor([-4.0, 1.0, 0.5]).reshape(3, 1, 1)
    assert batch[REW].shape == errors.shape
    storage.after_gradients(batch, {ERRORS: errors})
    # Sequences that reach beyond the end of an episode are padded.
    real = errors[batch["Mask"] > 0]
    of_sequence = storage.get_sequence_priority(real[:, None], eta=0.7)
    assert of_sequence == pytest.approx(np.array([0.7 * 4 + 0.3 * real.abs().mean().item()]))
    assert storage.priorities.of(batch["Indices"].numpy()[:, 0]) == pytest.approx(storage.get_priority(of_sequence))
    assert storage.get_sequence_priority([1.0, 3.0]) == pytest.approx(0.9 * 3 + 0.1 * 2)
    assert storage.get_sequence_priority(np.ones((4, 5, 1))).shape == (5, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda per: per.get_priority(float("nan")), "PERBuffer: errors must be finite as float32, got nan"),
        (lambda per: per.get_priority([1e39]), "errors must be finite as float32, got 1e\\+39"),
        (lambda per: per.get_priority("much"), "errors must be real numbers, got <U4"),
        (lambda per: per.get_sequence_priority([]), r"a first axis of at least one step, got \(0,\)"),
        (lambda per: per.get_sequence_priority(1.0), r"a first axis of at least one step, got \(\)"),
        (lambda per: per.get_sequence_priority([1.0], eta=1.5), r"eta must lie in \[0, 1\], got 1.5"),
    ],
)
def test_priorities_of_what_is_no_error_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(PERBuffer.create_factory(10, alpha=0.6)("cpu", None, ALGORITHM, None))


def test_a_rank_is_no_function_of_an_error_alone() -> None:
    storage = PERBuffer.create_factory(10, alpha=0.6, prioritization="rank")("cpu", None, ALGORITHM, None)
    with pytest.raises(ValueError, match="a priority depends on all stored errors; see priorities"):
        storage.get_priority(1.0)


def test_nothing_changes_where_a_collector_handles_the_end_of_an_episode() -> None:
    told, untold = (HERBuffer.create_factory(20, strategy="final")("cpu", None, ALGORITHM, ENVS) for _ in range(2))
    steps = stream("dict")
    for _ in range(12):
        sample = step_for(HERBuffer, steps)
        for storage in (told, untold):
            storage.insert_transition(sample)
        if sample[DONE2].any():
            told.handle_end_of_episode()
    batches = []
    for storage in (told, untold):
        storage.seed(3)
        batches.append(next(storage.generate_batches(1, 32)))
    assert (batches[0][OBS]["desired_goal"] == batches[1][OBS]["desired_goal"]).all()
    assert (batches[0][REW] == batches[1][REW]).all()


# What is not here


@pytest.mark.parametrize("name", STORAGE_ATTRIBUTES)
def test_an_attribute_that_a_storage_lacks_is_missing_with_a_word_on_what_is_here(name: str) -> None:
    storage = ReplayBuffer.create_factory(10)("cpu", None, ALGORITHM, None)
    with pytest.raises(AttributeError, match=f"no attribute '{name}': ") as missing:
        getattr(storage, name)
    assert STORAGE_ATTRIBUTES[name] in str(missing.value)
    assert not hasattr(storage, name)
    with pytest.raises(AttributeError, match=r"no attribute 'get_colour'$"):
        storage.get_colour  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", NEVER_CALLED)
@pytest.mark.parametrize("cls", CLASSES)
def test_overriding_what_is_never_called_is_refused_when_the_class_is_made(cls: Any, name: str) -> None:
    if hasattr(cls, name):
        with pytest.raises(TypeError, match=f"Own.{name} would never be used: "):
            type("Own", (cls,), {name: lambda self: None})
    else:
        assert type("Own", (cls,), {name: lambda self: None}).__name__ == "Own"


def test_overriding_the_call_that_appends_to_a_dict_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Own.insert_single_tensor_slice with tensor_storage would never be used"):

        class Own(ReplayBuffer):
            def insert_single_tensor_slice(self, tensor_storage: Any, key: Any, values: Any) -> int:  # type: ignore[override]
                return 0
