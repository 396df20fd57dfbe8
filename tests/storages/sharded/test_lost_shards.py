"""Shards that die or fall silent: others are drawn meanwhile, replacements are used, late errors are ignored."""

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storages.component.factory import Factory
from storages.sharded import ShardedReplay, ShardLostError, SliceWriter
from storages.transition import ACT2, ERRORS, INDICES, RTG, TAKEN2
from tests.support.model import contents
from tests.support.shards import PRIORITISED, FragileShards, slice_of

WHOLE = {"batches_at_once": 4, "rounds_ahead": 1}


def fragile(count: int, folder: Path | None = None, **given: Any) -> tuple[FragileShards, ShardedReplay]:
    factory = PRIORITISED if folder is None else Factory(PRIORITISED.cls, PRIORITISED.hyper_parameters | COMMITS)
    group = FragileShards(factory, count, folder)
    replay = ShardedReplay(group, **(WHOLE | given))
    random = np.random.default_rng(0)
    for shard in range(count):
        group.insert_data_slice(shard, slice_of(random, 30)).result()
    return group, replay


COMMITS = {"commit_every": 10}


def drawn_of(replay: ShardedReplay, batches: int) -> Counter[int]:
    """The number of batches of each shard; shards and replacements are numbered in the order of their first answer."""
    counts: Counter[int] = Counter()
    for batch in replay.generate_batches(batches, 8):
        counts[int(batch[INDICES][0]) >> 40] += 1
        replay.after_gradients(batch, {ERRORS: torch.ones(8, 1)})
    return counts


def test_a_lost_shard_in_memory_is_replaced_by_an_empty_one_and_others_are_drawn() -> None:
    group, replay = fragile(3)
    assert set(drawn_of(replay, 12)) == {0, 1, 2}
    group.kill(1)
    with pytest.warns(RuntimeWarning, match="shard 1 died and was replaced: it held 60 transitions, they are lost"):
        counts = drawn_of(replay, 30)
    assert counts.total() == 30
    # Batches that arrived before it died may still be used.
    assert counts[1] <= 8
    assert not counts[3]
    group.insert_data_slice(1, slice_of(np.random.default_rng(1), 30)).result()
    assert drawn_of(replay, 30)[3] > 0


def test_batches_of_a_replacement_have_the_fields_that_were_added() -> None:
    group, replay = fragile(1)
    replay.include_next_actions()
    replay.include_returns_to_go()
    drawn_of(replay, 4)
    group.kill(0)
    group.insert_data_slice(0, slice_of(np.random.default_rng(1), 30)).result()
    with pytest.warns(RuntimeWarning, match="shard 0 died"):
        assert len(replay) == 60
    (batch,) = replay.generate_batches(1, 8)
    assert {ACT2, TAKEN2, RTG} <= batch.keys()


def test_a_lost_shard_on_disk_is_restored_to_its_last_commit(tmp_path: Path) -> None:
    group, replay = fragile(2, tmp_path)
    replay.flush()
    group.insert_data_slice(0, slice_of(np.random.default_rng(1), 7)).result()
    drawn_of(replay, 8)
    group.kill(0)
    with pytest.warns(RuntimeWarning, match=r"shard 0 died and was replaced: it held 74 .*, 6\d were restored"):
        counts = drawn_of(replay, 40)
    assert counts[2] > 0
    replay.close()


def test_a_checkpoint_can_be_loaded_after_a_shard_was_replaced(tmp_path: Path) -> None:
    group, replay = fragile(2, tmp_path)
    replay.states_kept = 3
    drawn_of(replay, 4)
    state = replay.state_dict()
    expected = [contents(shard.storage) for shard in group.shards]
    group.kill(0)
    with pytest.warns(RuntimeWarning, match="shard 0 died"):
        replay.flush()
    for _ in range(12):
        # Overwrites all rows of the checkpoint.
        group.insert_data_slice(0, slice_of(np.random.default_rng(1), 30)).result()
    assert group.shards[0].storage.states_kept == 3
    replay.load_state_dict(state)
    assert [contents(shard.storage) for shard in group.shards] == expected
    replay.close()


@pytest.mark.parametrize("loss_is_noticed", [True, False])
def test_errors_of_a_lost_shard_are_ignored(loss_is_noticed: bool) -> None:
    group, replay = fragile(2, batches_at_once=1, rounds_ahead=0)
    batches = list(replay.generate_batches(10, 8))
    group.kill(0)
    group.insert_data_slice(0, slice_of(np.random.default_rng(1), 30)).result()
    before = group.shards[0].storage.mass
    if loss_is_noticed:
        with pytest.warns(RuntimeWarning, match="shard 0 died"):
            assert len(replay) == 120
    for batch in batches:
        replay.after_gradients(batch, {ERRORS: torch.full((8, 1), 50.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        replay.flush()
    assert group.shards[0].storage.mass == before
    assert group.shards[1].storage.priorities.largest > 10


def test_errors_of_batches_that_were_queued_when_their_shard_died_are_ignored() -> None:
    group, replay = fragile(1)
    batches = replay.generate_batches(4, 8)
    next(batches)
    group.kill(0)
    group.insert_data_slice(0, slice_of(np.random.default_rng(1), 30)).result()
    before = group.shards[0].storage.mass
    with pytest.warns(RuntimeWarning, match="shard 0 died"):
        assert len(replay) == 60
    queued = next(batches)
    replay.after_gradients(queued, {ERRORS: torch.full((8, 1), 50.0)})
    replay.flush()
    assert group.shards[0].storage.mass == before


def test_a_silent_shard_is_skipped_until_it_answers() -> None:
    group, replay = fragile(3)
    drawn_of(replay, 12)
    group.silent.add(2)
    assert drawn_of(replay, 40)[2] <= 8
    assert len(replay) == 120
    group.silent.clear()
    assert drawn_of(replay, 40)[2] > 0
    assert len(replay) == 180


def test_an_error_is_raised_if_no_shard_answers() -> None:
    group, replay = fragile(2)
    drawn_of(replay, 4)
    group.silent = {0, 1}
    with pytest.raises(ShardLostError, match="none of 2 shards has answered for 300 seconds"):
        drawn_of(replay, 20)


def test_a_slice_of_a_lost_shard_is_written_to_the_next_shard() -> None:
    group, replay = fragile(2)
    writer = SliceWriter(group, first=1, in_flight=2)
    random = np.random.default_rng(1)
    writer.write(slice_of(random, 20))
    group.kill(1)
    writer.flush()
    assert [len(shard.storage) for shard in group.shards] == [100, 0]
    for _ in range(3):
        writer.write(slice_of(random, 5))
    writer.flush()
    assert len(replay) == 130


def test_a_checkpoint_during_the_loss_of_a_shard_contains_its_replacement() -> None:
    group, replay = fragile(2)
    drawn_of(replay, 4)
    group.kill(1)
    with pytest.warns(RuntimeWarning, match="shard 1 died"):
        state = replay.state_dict()
    assert [len(shard["ring"]["leaves"]) > 0 for shard in state["shards"]] == [True, False]


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:shard . died:RuntimeWarning")
def test_batches_are_drawn_while_two_of_three_shards_die_or_fall_silent(data: st.DataObject) -> None:
    group, replay = fragile(3, batches_at_once=data.draw(st.integers(1, 6)), rounds_ahead=data.draw(st.integers(0, 2)))
    random, writer, waiting = np.random.default_rng(2), SliceWriter(group), []
    for _ in range(25):
        event = data.draw(st.sampled_from(["learn", "learn", "insert", "kill", "fall silent", "answer", "late"]))
        shard = data.draw(st.integers(0, 1))
        if event == "insert" and not group.silent:
            writer.write(slice_of(random, 10))
        elif event == "kill":
            group.kill(shard)
        elif event == "fall silent":
            group.silent.add(shard)
        elif event == "answer":
            group.silent.clear()
        elif event == "late" and waiting:
            replay.after_gradients(waiting.pop(0), {ERRORS: torch.full((8, 1), float(random.exponential()))})
        elif event == "learn":
            batches = list(replay.generate_batches(3, 8))
            assert [len(batch[INDICES]) for batch in batches] == [8, 8, 8]
            waiting += batches
    for one in group.shards:
        mass = one.storage.mass
        assert mass.rows == len(one.storage)
        assert mass.total >= 0
