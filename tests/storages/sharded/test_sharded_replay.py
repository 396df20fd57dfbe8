"""A source with several shards behaves like one storage: probabilities, weights, errors and states."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    EmptyStorageError,
    Episodes,
    EREBuffer,
    GAEBuffer,
    HERBuffer,
    LinearSchedule,
    NStepReplayBuffer,
    PERBuffer,
    PersistentEpisodicBuffer,
    RateLimit,
    ReplayBuffer,
    Sequences,
)
from storages.sharded import LocalShards, ReplayShard, ShardedReplay, SliceWriter, factory_of_shard
from storages.transition import ACT2, ERRORS, INDICES, MASK, RTG, WEIGHTS
from tests.support.model import equal, through_a_file
from tests.support.shards import PRIORITISED, maker, slice_of


def final_number(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
    """Rewards are the number of the last step, so that they show which goal was drawn."""
    return obs, rhs, obs2, rhs2, final_state[:, :1]


AT_ONCE = {"batches_at_once": 1, "rounds_ahead": 0}
SETTINGS: dict[str, Any] = {
    "uniform": ReplayBuffer.create_factory(size=64),
    "n steps": NStepReplayBuffer.create_factory(size=64, n_step=3),
    "priority": PRIORITISED,
    "ranks": PERBuffer.create_factory(size=64, alpha=0.7, beta=0.5, prioritization="rank"),
    "uniform share": PERBuffer.create_factory(size=64, alpha=0.7, beta=0.5, epsilon=0.01, uniform_share=0.3),
    "over the batch": PERBuffer.create_factory(size=64, alpha=0.7, beta=0.5, epsilon=0.01, weights_over="batch"),
    "weights of the paper": PERBuffer.create_factory(size=64, alpha=0.7, beta=0.5, epsilon=0.01, weights_over="none"),
    "sequences": PERBuffer.create_factory(size=64, alpha=0.7, epsilon=0.01, sequences=Sequences(4, burn_in=2)),
    "episodes": PERBuffer.create_factory(size=64, alpha=0.7, epsilon=0.01, sequences=Episodes()),
    "packed": PERBuffer.create_factory(size=64, alpha=0.7, epsilon=0.01, sequences=Episodes(packed=True)),
    "passes": ReplayBuffer.create_factory(size=64, draws="passes"),
    "hindsight": HERBuffer.create_factory(size=64, her_function=final_number, alpha=0.5, epsilon=0.1),
}


def local(factory: Any, count: int, **given: Any) -> tuple[LocalShards, ShardedReplay]:
    group = LocalShards([maker(factory) for _ in range(count)])
    replay = ShardedReplay(group, **given)
    replay.seed(3)
    return group, replay


def errors_of(batch: Any) -> torch.Tensor:
    shape = next(batch[key] for key in ("Episode", MASK, INDICES) if key in batch).shape
    return torch.linspace(0.1, 3, int(np.prod(shape))).reshape(shape)


def learn(source: Any, batches: int, size: int = 8) -> Iterator[Any]:
    for batch in source.generate_batches(batches, size):
        yield batch
        source.after_gradients(batch, {ERRORS: errors_of(batch)})


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_single_shard_gives_the_batches_of_its_storage(setting: str) -> None:
    _, replay = local(SETTINGS[setting], 1, **AT_ONCE)
    twin = maker(SETTINGS[setting])()
    twin.seed(np.random.SeedSequence(3, spawn_key=(0,)))
    random = np.random.default_rng(0)
    for _ in range(4):
        data = slice_of(random, 25)
        replay.insert_data_slice(data)
        twin.insert_data_slice(data)
        for ours, theirs in zip(learn(replay, 5), learn(twin, 5), strict=True):
            assert equal(ours, theirs)
    assert len(replay) == len(twin)


@pytest.mark.parametrize("setting", SETTINGS)
def test_batches_of_every_setting_are_prefetched_from_three_shards(setting: str) -> None:
    group, replay = local(SETTINGS[setting], 3, batches_at_once=4, rounds_ahead=2)
    random = np.random.default_rng(0)
    writer = SliceWriter(group)
    for _ in range(6):
        writer.write(slice_of(random, 30))
    batches = list(learn(replay, 20))
    assert len(batches) == 20
    assert all(len(batch[INDICES]) == 8 for batch in batches)
    assert {int(batch[INDICES][0]) >> 40 for batch in batches} == {0, 1, 2}


def filled_unequally(setting: Any = PRIORITISED) -> tuple[LocalShards, ShardedReplay]:
    """Three shards of 8, 40 and 16 transitions, with errors of very different sizes."""
    group, replay = local(setting, 3, **AT_ONCE)
    random = np.random.default_rng(1)
    for shard, (steps, scale) in enumerate([(4, 5.0), (20, 0.3), (8, 1.0)]):
        errors = scale * random.random((steps, 2, 1))
        group.insert_data_slice(shard, slice_of(random, steps) | {ERRORS: errors}).result()
    return group, replay


@pytest.mark.parametrize("weights_over", ["stored", "none"])
def test_importance_weights_equal_those_of_one_storage_with_all_rows(weights_over: str) -> None:
    settings: Any = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01}
    group, replay = filled_unequally(PERBuffer.create_factory(size=64, weights_over=weights_over, **settings))
    masses = [shard.storage.priorities.values for shard in group.shards]
    everything = np.concatenate(masses)
    expected = (len(everything) * everything / everything.sum()) ** -0.5
    if weights_over == "stored":
        expected /= expected.max()
    by_shard = np.split(expected, np.cumsum([len(mass) for mass in masses])[:-1])
    for batch in replay.generate_batches(60, 8):
        shard, numbers = int(batch[INDICES][0]) >> 40, batch[INDICES][:, 0].numpy() & (1 << 40) - 1
        np.testing.assert_allclose(batch[WEIGHTS][:, 0], by_shard[shard][numbers], rtol=1e-5)


@pytest.mark.long
def test_rows_are_drawn_in_proportion_to_the_priorities_of_all_shards() -> None:
    group, replay = filled_unequally()
    everything = np.concatenate([shard.storage.priorities.values for shard in group.shards])
    sizes = [len(shard.storage) for shard in group.shards]
    counts = np.zeros(len(everything))
    for batch in replay.generate_batches(1_200, 8):
        shard, numbers = int(batch[INDICES][0]) >> 40, batch[INDICES][:, 0].numpy() & (1 << 40) - 1
        np.add.at(counts, sum(sizes[:shard]) + numbers, 1)
    expected = everything / everything.sum() * counts.sum()
    # Rows of a batch are of one shard: the variance is 8 times that of single draws, at most.
    assert (np.abs(counts - expected) < 5 * np.sqrt(8 * expected)).all()


def test_uniform_shards_are_drawn_in_proportion_to_their_rows() -> None:
    group, replay = local(SETTINGS["uniform"], 2, batches_at_once=16)
    random = np.random.default_rng(0)
    group.insert_data_slice(0, slice_of(random, 10)).result()
    group.insert_data_slice(1, slice_of(random, 30)).result()
    drawn = Counter(int(batch[INDICES][0]) >> 40 for batch in replay.generate_batches(160, 4))
    assert abs(drawn[1] - 120) <= 10
    assert all((batch[WEIGHTS] == 1).all() for batch in replay.generate_batches(5, 4))


def test_a_shard_with_priorities_of_zero_is_not_drawn_while_others_have_some() -> None:
    group, replay = local(PERBuffer.create_factory(size=64, alpha=1.0), 2, **AT_ONCE)
    random = np.random.default_rng(0)
    for shard, error in enumerate((0.0, 2.0)):
        group.insert_data_slice(shard, slice_of(random, 10) | {ERRORS: np.full((10, 2, 1), error)}).result()
    assert {int(batch[INDICES][0]) >> 40 for batch in replay.generate_batches(30, 4)} == {1}


def test_errors_are_set_in_the_shard_that_drew_the_rows() -> None:
    group, replay = filled_unequally()
    seen: dict[int, float] = {}
    for number, batch in enumerate(replay.generate_batches(40, 8)):
        error = 10.0 + number
        replay.after_gradients(batch, {ERRORS: torch.full((8, 1), error)})
        seen |= dict.fromkeys(batch[INDICES][:, 0].tolist(), error)
    replay.flush()
    for index, error in seen.items():
        shard, number = index >> 40, index & (1 << 40) - 1
        errors = group.shards[shard].storage.priorities.errors_of(number, number + 1)
        assert errors.tolist() == [error]


def test_late_errors_of_overwritten_rows_are_ignored() -> None:
    group, replay = local(PRIORITISED, 1, **AT_ONCE)
    random = np.random.default_rng(0)
    group.insert_data_slice(0, slice_of(random, 64)).result()
    (batch,) = replay.generate_batches(1, 32)
    group.insert_data_slice(0, slice_of(random, 64)).result()
    before = group.shards[0].storage.priorities.values.copy()
    replay.after_gradients(batch, {ERRORS: torch.full((32, 1), 100.0)})
    replay.flush()
    np.testing.assert_array_equal(group.shards[0].storage.priorities.values, before)


def test_schedules_of_shards_follow_the_progress_of_the_run() -> None:
    factory = PERBuffer.create_factory(size=64, alpha=0.5, beta=LinearSchedule(0.0, 1.0), epsilon=0.01)
    group, replay = local(factory, 2, **AT_ONCE)
    random = np.random.default_rng(0)
    for shard in range(2):
        errors = random.random((20, 2, 1))
        group.insert_data_slice(shard, slice_of(random, 20) | {ERRORS: errors}).result()
    assert all((batch[WEIGHTS] == 1).all() for batch in replay.generate_batches(5, 8))
    replay.set_progress(50, 100)
    list(replay.generate_batches(2, 8))
    assert [shard.storage.mass.beta for shard in group.shards] == [0.5, 0.5]
    assert any((batch[WEIGHTS] < 1).any() for batch in replay.generate_batches(5, 8))


def test_iterators_of_two_batch_sizes_do_not_take_batches_of_each_other() -> None:
    group, replay = local(ReplayBuffer.create_factory(size=64), 2)
    for shard in range(2):
        group.insert_data_slice(shard, slice_of(np.random.default_rng(0), 20)).result()
    small, large = replay.generate_batches(3, 4), replay.generate_batches(3, 8)
    assert [(len(one[INDICES]), len(other[INDICES])) for one, other in zip(small, large, strict=True)] == [(4, 8)] * 3


@pytest.mark.parametrize("ahead", [AT_ONCE, {"batches_at_once": 4, "rounds_ahead": 1}])
@pytest.mark.parametrize("setting", ["priority", "sequences", "uniform", "hindsight"])
def test_a_restored_state_gives_the_batches_of_the_uninterrupted_run(setting: str, ahead: dict[str, int]) -> None:
    group, replay = local(SETTINGS[setting], 3, **ahead)
    random, writer = np.random.default_rng(0), SliceWriter(group)
    for _ in range(6):
        writer.write(slice_of(random, 30))
    list(learn(replay, 7))
    state = through_a_file(replay.state_dict())
    _, other = local(SETTINGS[setting], 3, **ahead)
    other.load_state_dict(state)
    for one, two in zip(learn(replay, 9), learn(other, 9), strict=True):
        assert equal(one, two)


def test_shards_on_disk_are_restored_from_their_directories(tmp_path: Path) -> None:
    def opened() -> tuple[LocalShards, ShardedReplay]:
        whole = PERBuffer.create_factory(size=120, alpha=0.7, epsilon=0.01, directory=tmp_path)
        group = LocalShards([maker(factory_of_shard(whole, number, 2)) for number in range(2)])
        return group, ShardedReplay(group, **AT_ONCE)

    group, replay = opened()
    random, writer = np.random.default_rng(0), SliceWriter(group)
    for _ in range(4):
        writer.write(slice_of(random, 20))
    list(learn(replay, 5))
    state = through_a_file(replay.state_dict())
    assert "ring" not in state["shards"][0]
    expected = list(learn(replay, 5))
    replay.close()
    assert {path.name for path in tmp_path.iterdir()} == {"shard-0", "shard-1"}
    _, again = opened()
    again.load_state_dict(state)
    for one, two in zip(learn(again, 5), expected, strict=True):
        assert equal(one, two)
    again.close()


def test_updates_and_resets_apply_to_every_shard() -> None:
    group, replay = local(PRIORITISED, 2)
    random = np.random.default_rng(0)
    for shard in range(2):
        group.insert_data_slice(shard, slice_of(random, 20)).result()
    replay.include_next_actions()
    replay.include_returns_to_go()
    replay.update_storage_parameter("n_step", 4)
    assert all({ACT2, RTG} <= batch.keys() for batch in replay.generate_batches(8, 4))
    assert [shard.storage.n_step for shard in group.shards] == [4, 4]
    assert (replay.capacity, replay.num_envs) == (2 * 128, 2)
    assert replay.nbytes == sum(shard.storage.nbytes for shard in group.shards)
    assert repr(replay) == "ShardedReplay(2 shards)"
    replay.reset()
    assert len(replay) == 0
    with pytest.raises(EmptyStorageError, match="insert slices first"):
        replay.generate_batches(1, 4)


def test_metrics_cover_all_shards() -> None:
    group, replay = filled_unequally()
    (batch,) = replay.generate_batches(1, 8)
    metrics = replay.after_gradients(batch, {ERRORS: torch.ones(8, 1), "loss": 1.0})
    everything = np.concatenate([shard.storage.priorities.values for shard in group.shards])
    assert metrics["loss"] == 1.0
    assert metrics["storage/shards"] == 3
    assert metrics["storage/mean_priority"] == pytest.approx(everything.mean())
    assert metrics["storage/replay_ratio"] == 8 / 64
    assert 0 < metrics["storage/effective_sample_size"] <= 1


@pytest.mark.parametrize("kind", ["uniform", "n steps", "sequences", "episodes", "packed"])
def test_the_replay_ratio_counts_the_real_steps_of_rows_as_a_single_storage_does(kind: str) -> None:
    storage = maker(SETTINGS[kind])()
    group, replay = local(SETTINGS[kind], 1, **AT_ONCE)
    storage.insert_data_slice(slice_of(np.random.default_rng(0), 60))
    group.insert_data_slice(0, slice_of(np.random.default_rng(0), 60)).result()
    for source in (storage, replay):
        learnt = 0
        for batch in source.generate_batches(3, 8):
            learnt += int(batch[MASK].sum()) if MASK in batch else len(batch.get("Episode", batch[INDICES]))
            metrics = source.after_gradients(batch, {ERRORS: errors_of(batch)})
            assert metrics["storage/replay_ratio"] == learnt / 120


def test_missing_malformed_and_non_finite_errors_are_refused() -> None:
    _, replay = filled_unequally()
    (batch,) = replay.generate_batches(1, 8)
    with pytest.raises(ValueError, match="the update's info has no 'Errors'"):
        replay.after_gradients(batch, {})
    with pytest.raises(ValueError, match=r"must have shape \(8, 1\)"):
        replay.after_gradients(batch, {ERRORS: torch.ones(8)})
    for dtype, value in ((torch.float32, torch.nan), (torch.float32, -torch.inf), (torch.float64, 1e300)):
        errors = torch.ones(8, 1, dtype=dtype)
        errors[3] = value
        with pytest.raises(ValueError, match=r"ShardedReplay: error 3 of the update is .*; no priority was changed"):
            replay.after_gradients(batch, {ERRORS: errors})
    # Nothing of it is left for the next draw.
    assert len(list(replay.generate_batches(1, 8))) == 1


@pytest.mark.parametrize("kind", ["sequences", "episodes", "packed"])
def test_errors_of_sequences_are_refused_where_a_real_step_is_not_finite(kind: str) -> None:
    group, replay = local(SETTINGS[kind], 1, **AT_ONCE)
    group.insert_data_slice(0, slice_of(np.random.default_rng(0), 60)).result()
    (batch,) = replay.generate_batches(1, 8)
    errors = errors_of(batch).clone()
    if MASK in batch:
        # The padding is no step.
        errors[batch[MASK] == 0] = torch.nan
    replay.after_gradients(batch, {ERRORS: errors})
    real = torch.ones_like(errors, dtype=torch.bool) if MASK not in batch else batch[MASK] > 0
    errors[tuple(real.nonzero()[0])] = torch.nan
    with pytest.raises(ValueError, match=r"is nan; no priority was changed"):
        replay.after_gradients(batch, {ERRORS: errors})


def test_batches_of_another_source_are_refused() -> None:
    _, replay = filled_unequally()
    (batch,) = replay.generate_batches(1, 8)
    with pytest.raises(ValueError, match="belongs to no shard"):
        replay.after_gradients(batch | {INDICES: batch[INDICES] + (9 << 40)}, {ERRORS: torch.ones(8, 1)})


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            ReplayBuffer.create_factory(size=8, rate_limit=RateLimit(1.0)),
            "rate_limit=.* would apply to each shard on its own",
        ),
        (EREBuffer.create_factory(size=8, eta=0.99), "not the newest of all; give it eta=1"),
        (GAEBuffer.create_factory(size=8), "only replay storages"),
    ],
)
def test_storages_that_cannot_be_sharded_are_refused(factory: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReplayShard(lambda: factory("cpu", None, type("A", (), {"gamma": 0.9})(), None))


def test_persistent_episodic_buffers_cannot_be_sharded(tmp_path: Path) -> None:
    factory = PersistentEpisodicBuffer.create_factory(size=8, directory=tmp_path)
    with pytest.raises(
        ValueError, match="use PERBuffer with directory=, of which each shard holds its share in memory"
    ):
        ReplayShard(maker(factory))


def test_a_storage_larger_than_memory_is_refused_with_the_size_of_a_shard(tmp_path: Path) -> None:
    factory = PersistentEpisodicBuffer.create_factory(size=1_000_001, directory=tmp_path)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    refused = (
        rf"each shard holds 250,001 of the 1,000,001 transitions in memory, on a machine that has as much "
        rf"\(this one has {total:.0f} GiB\).*leave PersistentEpisodicBuffer undivided, in one process"
    )
    with pytest.raises(ValueError, match=refused):
        factory_of_shard(factory, 0, 4)


def test_shards_divide_the_size_memory_and_directory_of_one_storage() -> None:
    whole = PERBuffer.create_factory(size=1_001, max_bytes=10_000, alpha=0.6, directory="kept")
    parts = [factory_of_shard(whole, number, 4) for number in range(4)]
    assert [part.hyper_parameters["size"] for part in parts] == [251] * 4
    assert [part.hyper_parameters["max_bytes"] for part in parts] == [2_500] * 4
    assert [part.hyper_parameters["directory"] for part in parts] == [Path(f"kept/shard-{n}") for n in range(4)]
    assert parts[0].hyper_parameters["alpha"] == 0.6
    with pytest.raises(ValueError, match=r"number must lie in \[0, 4\), got 4"):
        factory_of_shard(whole, 4, 4)
    with pytest.raises(ValueError, match="only replay storages"):
        factory_of_shard(GAEBuffer.create_factory(size=8), 0, 2)
    with pytest.raises(ValueError, match="give it eta=1, or use PERBuffer"):
        factory_of_shard(EREBuffer.create_factory(size=8, eta=0.99), 0, 2)
    with pytest.raises(ValueError, match="size must be at least"):
        factory_of_shard(ReplayBuffer.create_factory(size=10, sequences=Sequences(8)), 0, 2)


@pytest.mark.parametrize(
    "given",
    [{"batches_at_once": 0}, {"rounds_ahead": -1}, {"patience_seconds": 0.0}, {"give_up_seconds": -1.0}],
)
def test_settings_outside_their_range_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="batches_at_once from 1"):
        ShardedReplay(LocalShards([maker(PRIORITISED)]), **given)
    with pytest.raises(ValueError, match="at least one shard"):
        ShardedReplay(LocalShards([]))
    with pytest.raises(ValueError, match="in_flight must be at least 1"):
        SliceWriter(LocalShards([maker(PRIORITISED)]), in_flight=0)


def test_invalid_calls_and_states_are_refused() -> None:
    _, replay = filled_unequally()
    with pytest.raises(ValueError, match="needs a mini_batch_size"):
        replay.generate_batches(1, None)
    with pytest.raises(ValueError, match="num_mini_batch"):
        replay.generate_batches(0, 4)
    with pytest.raises(NotImplementedError, match="use one ReplayBuffer"):
        replay.newest_steps(3)
    with pytest.raises(ValueError, match="saved with 1 shards, made with 3"):
        replay.load_state_dict(replay.state_dict() | {"shards": [{}]})
    with pytest.raises(ValueError, match="the state lacks"):
        replay.load_state_dict({})
