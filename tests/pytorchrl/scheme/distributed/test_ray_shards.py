"""Shards in separate processes: batches equal those of local shards, and killed shards lose no commits."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import PERBuffer, SampleError, Sequences
from storages.sharded import LocalShards, ShardedReplay, SliceWriter, factory_of_shard
from storages.sharded.shared_memory import Piece
from storages.transition import ERRORS, INDICES, MASK, OBS, REW
from tests.support.model import GAMMA, equal, through_a_file
from tests.support.profiles import FULL
from tests.support.shards import maker, slice_of

pytestmark = pytest.mark.ray
WHOLE = PERBuffer.create_factory(size=400, n_step=2, alpha=0.7, beta=0.5, epsilon=0.01)
SEQUENCES = PERBuffer.create_factory(size=400, alpha=0.7, epsilon=0.01, sequences=Sequences(5, burn_in=2))


@pytest.fixture(autouse=True)
def _in_a_cluster(cluster: None) -> None:
    """All tests here need a cluster."""


def started(factory: Any, number: int = 2) -> Any:
    from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker

    return RayShards(StorageMaker(factory, GAMMA), number)


def learn(replay: ShardedReplay, batches: int) -> Iterator[Any]:
    for batch in replay.generate_batches(batches, 16):
        yield batch
        errors = torch.linspace(0.1, 2, batch.get(MASK, batch[INDICES]).numel()).reshape(
            batch.get(MASK, batch[INDICES]).shape
        )
        replay.after_gradients(batch, {ERRORS: errors})


def fill(group: Any, slices: int = 4) -> None:
    random, writer = np.random.default_rng(0), SliceWriter(group)
    for _ in range(slices):
        data = slice_of(random, 50)
        writer.write(data | {ERRORS: random.random(data[REW].shape)})
    writer.flush()


@pytest.mark.parametrize("factory", [pytest.param(WHOLE, marks=FULL), SEQUENCES])
def test_shards_in_other_processes_draw_the_batches_of_local_shards(factory: Any) -> None:
    there = started(factory)
    here = LocalShards([maker(factory_of_shard(factory, number, 2)) for number in range(2)])
    one, other = (ShardedReplay(group, batches_at_once=4, rounds_ahead=1) for group in (there, here))
    for replay in (one, other):
        fill(replay.group)
        replay.seed(5)
    assert len(one) == len(other) == 400
    for theirs, ours in zip(learn(one, 30), learn(other, 30), strict=True):
        assert equal(theirs, ours)
    assert len(set(there.process_ids()) | {os.getpid()}) == 3
    state = through_a_file(one.state_dict())
    expected = list(learn(one, 6))
    one.load_state_dict(state)
    for theirs, ours in zip(learn(one, 6), expected, strict=True):
        assert equal(theirs, ours)
    one.close()


def test_batches_come_through_shared_memory_after_the_first_reply() -> None:
    group = started(WHOLE, 1)
    replay = ShardedReplay(group, batches_at_once=4, patience_seconds=60)

    def pieces() -> set[Piece]:
        return {piece for offered in group._offered for piece in offered._free}

    fill(group)
    list(learn(replay, 30))
    before = pieces()
    assert before
    assert all(piece.was_used and not Path(piece.place.path).exists() for piece in before)
    os.kill(group.process_ids()[0], signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="shard 0 died and was replaced"):
        replay.state_dict()
    fill(group)
    list(learn(replay, 30))
    assert pieces()
    assert not pieces() & before
    replay.close()


def test_batches_can_be_modified_in_place() -> None:
    replay = ShardedReplay(started(WHOLE))
    fill(replay.group)
    batches = list(replay.generate_batches(3, 16))
    for batch in batches:
        batch[OBS] += 1
    assert all(torch.isfinite(batch[OBS]).all() for batch in batches)
    replay.close()


def test_a_killed_shard_is_replaced_and_batches_come_from_the_other_meanwhile() -> None:
    replay = ShardedReplay(started(WHOLE), batches_at_once=4, patience_seconds=60)
    fill(replay.group)
    list(learn(replay, 10))
    os.kill(replay.group.process_ids()[1], signal.SIGKILL)  # type: ignore[attr-defined]
    assert len(list(learn(replay, 200))) == 200
    with pytest.warns(RuntimeWarning, match="shard 1 died and was replaced: it held 200 transitions, they are lost"):
        replay.state_dict()
    assert len(replay) == 200
    fill(replay.group)
    shards: set[int] = set()
    # On a busy machine, the first batches are the other one's, until the new one has answered.
    for batch in learn(replay, 20_000):
        shards.add(int(batch[INDICES][0]) >> 40)
        if len(shards) == 2:
            break
    assert shards == {0, 2}
    replay.close()


def test_a_killed_shard_on_disk_loses_no_commits(tmp_path: Path) -> None:
    given = WHOLE.hyper_parameters | {"directory": tmp_path, "commit_every": 10}
    replay = ShardedReplay(started(PERBuffer.create_factory(**given)), batches_at_once=4, patience_seconds=60)
    fill(replay.group)
    list(learn(replay, 10))
    replay.flush()
    for position in range(2):
        os.kill(replay.group.process_ids()[position], signal.SIGKILL)  # type: ignore[attr-defined]
        with pytest.warns(RuntimeWarning, match=f"shard {position} died and .* 200 were restored from its directory"):
            replay.flush()
    assert len(replay) == 400
    assert len(list(learn(replay, 10))) == 10
    state = through_a_file(replay.state_dict())
    expected = list(learn(replay, 6))
    replay.close()
    again = ShardedReplay(started(PERBuffer.create_factory(**given)), batches_at_once=4, patience_seconds=60)
    again.load_state_dict(state)
    observations = [batch[OBS] for batch in expected]
    assert all(torch.equal(batch[OBS], seen) for batch, seen in zip(learn(again, 6), observations, strict=True))
    again.close()


def test_an_exception_of_a_shard_is_raised_in_the_learner_with_its_message() -> None:
    group = started(WHOLE, 1)
    writer = SliceWriter(group)
    writer.write(slice_of(np.random.default_rng(0), 5))
    writer.write({OBS: np.zeros((3, 2, 7), np.float32)})
    with pytest.raises(SampleError, match="Observation"):
        writer.flush()
    group.close()


def test_the_error_for_a_shard_that_cannot_be_created_names_the_reason() -> None:
    from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker

    replay = ShardedReplay(RayShards(StorageMaker(WHOLE, gamma=7.0), 1), patience_seconds=60)
    with pytest.raises(RuntimeError, match=r"shard 0 could not be made(.|\n)*gamma must lie in \[0, 1\], got 7"):
        len(replay)
