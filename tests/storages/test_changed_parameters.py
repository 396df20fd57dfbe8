"""The state of a storage holds the hyper-parameters that were changed since it was made, in memory and on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    GAEBuffer,
    LinearSchedule,
    MixedStorage,
    PERBuffer,
    PersistenceError,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    SampleError,
    Storage,
)
from storages.component.factory import Factory
from storages.saving import load_state_without_contents, state_without_contents
from storages.sharded import LocalShards, ShardedReplay
from storages.transition import ERRORS, REW
from tests.storages.off_policy.test_strategies import through_a_file
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, Stream
from tests.support.shards import FragileShards, maker, slice_of

PRIORITIES: dict[str, Any] = {"n_step": 3, "alpha": 0.6, "beta": 0.4, "epsilon": 0.01}
CHANGES: dict[str, Any] = {"alpha": 0.9, "n_step": 2, "beta": LinearSchedule(0.4, 1.0), "default_error": "largest"}


def in_memory(_: Path) -> Storage:
    return PERBuffer.create_factory(size=40, **PRIORITIES)("cpu", None, ALGORITHM, None)


def on_disk(folder: Path) -> Storage:
    return PERBuffer.create_factory(size=40, **PRIORITIES, directory=folder)("cpu", None, ALGORITHM, None)


def episodes_on_disk(folder: Path) -> Storage:
    return PersistentEpisodicBuffer.create_factory(None, folder, **PRIORITIES)("cpu", None, ALGORITHM, None)


MADE: list[Callable[[Path], Storage]] = [in_memory, on_disk, episodes_on_disk]


def learn(storage: Storage, stream: Stream, updates: int = 6) -> list[Any]:
    batches = []
    for update in range(updates):
        storage.insert_transition(stream.step())
        batch = next(iter(storage.generate_batches(1, 8)))
        storage.after_gradients(batch, {ERRORS: torch.linspace(0.5, 1.5 + update, 8)[:, None]})
        batches.append(batch)
    return batches


def filled(make: Callable[[Path], Storage], folder: Path) -> tuple[Storage, Stream]:
    storage, stream = make(folder), Stream(2, "vector", False, np.random.default_rng(0))
    storage.seed(0)
    for _ in range(30):
        storage.insert_transition(stream.step())
    learn(storage, stream)
    return storage, stream


def change(storage: Any) -> None:
    for name, value in CHANGES.items():
        storage.update_storage_parameter(name, value)


@pytest.mark.parametrize("make", [in_memory, on_disk, pytest.param(episodes_on_disk, marks=pytest.mark.long)])
def test_a_loaded_state_draws_on_under_its_changed_hyper_parameters(
    make: Callable[[Path], Storage], tmp_path: Path
) -> None:
    storage, stream = filled(make, tmp_path)
    change(storage)
    learn(storage, stream)
    storage.set_progress(30, 100)
    state = through_a_file(storage.state_dict())
    whole = learn(storage, stream)
    storage.close()
    loaded = make(tmp_path)
    assert loaded.changed_parameters == {}, "a storage that is made again has the hyper-parameters of its factory"
    loaded.load_state_dict(state)
    assert loaded.changed_parameters == CHANGES
    loaded.set_progress(30, 100)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(30 + 6 + 6):
        stream.step()
    assert_equal(learn(loaded, stream), whole)
    loaded.close()


@pytest.mark.parametrize("make", MADE)
def test_a_state_from_before_a_change_restores_the_hyper_parameters_as_made(
    make: Callable[[Path], Storage], tmp_path: Path
) -> None:
    storage, _ = filled(make, tmp_path)
    state = through_a_file(storage.state_dict())
    change(storage)
    storage.load_state_dict(state)
    assert storage.changed_parameters == {}
    change(storage)
    del state["changed"]
    storage.load_state_dict(state)
    assert storage.changed_parameters == CHANGES, "states of earlier versions say nothing of hyper-parameters"
    storage.close()


@pytest.mark.parametrize("make", MADE)
def test_a_changed_value_that_is_invalid_leaves_the_storage_as_it_is(
    make: Callable[[Path], Storage], tmp_path: Path
) -> None:
    storage, stream = filled(make, tmp_path)
    state = through_a_file(storage.state_dict())
    change(storage)
    learn(storage, stream)
    stored = len(storage)
    state["changed"] = {"beta": 0.75, "n_step": 0}
    with pytest.raises(ValueError, match="Buffer: n_step must be at least 1, got 0"):
        storage.load_state_dict(state)
    assert (len(storage), storage.changed_parameters) == (stored, CHANGES)
    storage.close()


@pytest.mark.parametrize("make", [on_disk, episodes_on_disk])
def test_a_state_whose_commit_is_not_there_changes_no_hyper_parameter(
    make: Callable[[Path], Storage], tmp_path: Path
) -> None:
    storage, _ = filled(make, tmp_path / "one")
    change(storage)
    state = through_a_file(storage.state_dict())
    storage.close()
    other, _ = filled(make, tmp_path / "other")
    other.flush()
    other.update_storage_parameter("alpha", 0.1)
    with pytest.raises(PersistenceError):
        other.load_state_dict(state)
    assert other.changed_parameters == {"alpha": 0.1}
    other.close()


def test_rollouts_and_states_without_contents_hold_changed_hyper_parameters() -> None:
    factory = GAEBuffer.create_factory(size=4)
    storage, other = (factory("cpu", None, ALGORITHM, None) for _ in range(2))
    storage.update_storage_parameter("gae_lambda", 0.5)
    storage.update_storage_parameter("allow_nonfinite", True)
    other.load_state_dict(through_a_file(storage.state_dict()))
    assert (other.gae_lambda, other.allow_nonfinite, other.ring.allow_nonfinite) == (0.5, True, True)
    per, again = (in_memory(Path()) for _ in range(2))
    change(per)
    load_state_without_contents(again, through_a_file(state_without_contents(per)))
    assert again.changed_parameters == CHANGES


@pytest.mark.parametrize("make", MADE)
def test_values_that_are_not_finite_are_accepted_once_they_are_allowed(
    make: Callable[[Path], Storage], tmp_path: Path
) -> None:
    storage, stream = filled(make, tmp_path)
    sample = {**stream.step(), REW: np.full((2, 1), np.nan, np.float32)}
    with pytest.raises(SampleError):
        storage.insert_transition(sample)
    state = through_a_file(storage.state_dict() | {"changed": {"allow_nonfinite": True}})
    storage.load_state_dict(state)
    storage.insert_transition(sample)
    storage.close()


def test_a_mix_knows_whether_its_shares_were_changed() -> None:
    mix = MixedStorage({"a": in_memory(Path()), "b": in_memory(Path())}, {"a": 0.5, "b": 0.5})
    assert mix.changed_parameters == {}
    mix.take_changes({"shares": {"b": 0.75, "a": 0.25}})
    assert mix.changed_parameters == {"shares": {"a": 0.25, "b": 0.75}}
    with pytest.raises(ValueError, match="only 'shares' can change, got 'alpha'"):
        mix.take_changes({"alpha": 0.5})
    with pytest.raises(ValueError, match="shares must be numbers by name, got 3"):
        mix.take_changes({"shares": 3})
    mix.take_changes({})
    assert mix.shares == {"a": 0.5, "b": 0.5}


# Shards

SHARD: Factory[Any] = PERBuffer.create_factory(size=64, **PRIORITIES)


def local() -> tuple[LocalShards, ShardedReplay]:
    group = LocalShards([maker(SHARD) for _ in range(2)])
    for shard in range(2):
        group.insert_data_slice(shard, slice_of(np.random.default_rng(shard), 20)).result()
    return group, ShardedReplay(group, batches_at_once=1, rounds_ahead=0)


def values_of(group: LocalShards) -> list[dict[str, Any]]:
    return [shard.storage.changed_parameters for shard in group.shards]


def test_shards_restore_their_changed_hyper_parameters() -> None:
    group, replay = local()
    change(replay)
    assert values_of(group) == [CHANGES, CHANGES]
    other_group, other = local()
    other.load_state_dict(through_a_file(replay.state_dict()))
    assert values_of(other_group) == [CHANGES, CHANGES]
    assert other.changed_parameters == CHANGES
    other.take_changes({"alpha": 0.2})
    assert values_of(other_group) == [{"alpha": 0.2}] * 2
    assert other.changed_parameters == {"alpha": 0.2}


def test_a_replacement_of_a_shard_has_the_changed_hyper_parameters_and_discount() -> None:
    class Algorithm:
        gamma = ALGORITHM.gamma

    algorithm, group = Algorithm(), FragileShards(SHARD, 2)
    replay = ShardedReplay(group, "cpu", algorithm, batches_at_once=1, rounds_ahead=0)
    for shard in range(2):
        group.insert_data_slice(shard, slice_of(np.random.default_rng(shard), 20)).result()
    list(replay.generate_batches(4, 8))
    change(replay)
    algorithm.gamma = 0.25
    list(replay.generate_batches(4, 8))
    assert [shard.storage.algorithm.gamma for shard in group.shards] == [0.25, 0.25]
    group.kill(1)
    with pytest.warns(RuntimeWarning, match="shard 1 died and was replaced"):
        list(replay.generate_batches(8, 8))
    assert values_of(group) == [CHANGES, CHANGES]
    assert group.shards[1].storage.algorithm.gamma == 0.25


def test_batches_of_shards_follow_a_changed_discount_factor() -> None:
    class Algorithm:
        gamma = 0.5

    def drawn(gamma: float, **given: Any) -> list[Any]:
        algorithm, group = Algorithm(), LocalShards([maker(SHARD) for _ in range(2)])
        for shard in group.shards:
            shard.storage.algorithm = Algorithm()
        replay = ShardedReplay(group, "cpu", algorithm, **given)
        for shard in range(2):
            group.insert_data_slice(shard, slice_of(np.random.default_rng(shard), 20)).result()
        # With rounds ahead, later batches are requested already.
        list(replay.generate_batches(1, 8))
        algorithm.gamma = gamma
        return list(replay.generate_batches(5, 8))

    for given in ({"batches_at_once": 1, "rounds_ahead": 0}, {}):
        for batch in drawn(0.25, **given):
            assert set(batch["Discount"].flatten().tolist()) <= {0.0, 0.25, 0.25**2, 0.25**3}


def test_a_hyper_parameter_assigned_to_a_storage_is_checked_used_and_kept() -> None:
    storage: Any = PERBuffer("cpu", None, ALGORITHM, None, 40, **PRIORITIES)
    storage.beta = 0.7
    assert (storage.sampler.beta, storage.changed_parameters) == (0.7, {"beta": 0.7})
    with pytest.raises(ValueError, match="PERBuffer: beta must lie in"):
        storage.beta = 3.0
    with pytest.raises(ValueError, match="PERBuffer: size is fixed once the object is made"):
        storage.size = 50
    assert (storage.beta, storage.size) == (0.7, 40)


@pytest.mark.parametrize(
    ("cls", "name", "message"),
    [
        (ReplayBuffer, "beta", "ReplayBuffer: there is no hyper-parameter 'beta', .*; here it is beta of PERBuffer"),
        (PERBuffer, "beta_schedule", "here it is beta, which may be a LinearSchedule"),
        (PERBuffer, "uniformshare", "did you mean 'uniform_share'"),
    ],
)
def test_an_attribute_of_a_storage_that_changes_nothing_warns(cls: Any, name: str, message: str) -> None:
    storage = cls.create_factory(size=40)("cpu", None, ALGORITHM, None)
    with pytest.warns(UserWarning, match=message):
        setattr(storage, name, 0.5)


class HasItsOwnInit(ReplayBuffer):
    """Sets attributes of its own after the ``__init__`` of the base class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.beta = 0.5


def test_a_storage_may_set_attributes_of_its_own_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    made = [HasItsOwnInit.create_factory(size=40)("cpu", None, ALGORITHM, None)]
    made.append(HasItsOwnInit("cpu", None, ALGORITHM, None, 40))
    for storage in made:
        storage.draws_seen = 3  # type: ignore[attr-defined]
    assert ([storage.beta for storage in made], list(recwarn)) == ([0.5, 0.5], [])
