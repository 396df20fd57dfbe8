"""Batches through shared memory equal those that are sent, and nothing of the memory stays behind."""

import errno
import gc
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, PERBuffer
from storages.sharded import LocalShards, Pending, ReplayShard, ShardedReplay, SliceWriter, shared_memory
from storages.sharded.offered_pieces import OfferedPieces
from storages.sharded.packed_batches import arrays_in, pack, pack_into, unpack
from storages.sharded.replay_shard import ShardReply, Update
from storages.sharded.shared_memory import OpenedPieces, Piece, Place
from storages.transition import ERRORS, INDICES, OBS, REW
from tests.support.model import equal
from tests.support.shards import PRIORITISED, maker, slice_of

FOLDER = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="shared memory has no names here")


PREFIX = f"pytorchrl-test-{os.getpid()}-"
"""Begins the names of this process alone: other tests may run at the same time."""


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No piece has a name after a test."""
    monkeypatch.setattr(shared_memory, "_PREFIX", PREFIX)
    yield
    gc.collect()
    assert not list(FOLDER.glob(f"{PREFIX}*"))


class _Answer:
    def __init__(self, pending: Pending[Any], offered: OfferedPieces, piece: Piece | None, seen: list[str]) -> None:
        self._pending, self._offered, self._piece, self._seen = pending, offered, piece, seen

    def result(self) -> ShardReply:
        reply = self._pending.result()
        if reply.batches or reply.layout:
            self._seen.append("sent" if reply.layout is None else "in memory")
        return self._offered.read(self._piece, reply)


class SharingShards(LocalShards):
    """Shards whose batches go through shared memory, mapped twice in this process."""

    def __init__(self, makers: Sequence[Any]) -> None:
        super().__init__(makers)
        self.offered = [OfferedPieces() for _ in makers]
        self.seen: list[str] = []
        """How the batches of each reply came."""

    def exchange(
        self, shard: int, updates: Sequence[Update], progress: tuple[int, int] | None, batches: int, batch_size: int
    ) -> Pending[ShardReply]:
        piece = self.offered[shard].take() if batches else None
        place = None if piece is None else piece.place
        pending = self.begin(shard, "exchange", updates, progress, batches, batch_size, place)
        return _Answer(pending, self.offered[shard], piece, self.seen)


def filled(group: LocalShards) -> ShardedReplay:
    replay = ShardedReplay(group, batches_at_once=4, rounds_ahead=1)
    replay.seed(3)
    random, writer = np.random.default_rng(0), SliceWriter(group)
    for _ in range(4):
        data = slice_of(random, 30)
        writer.write(data | {ERRORS: random.random(data[REW].shape)})
    return replay


def learn(replay: ShardedReplay, batches: int, size: int = 8) -> Iterator[Any]:
    for batch in replay.generate_batches(batches, size):
        yield batch
        shape = batch["Episode" if "Episode" in batch else INDICES].shape
        replay.after_gradients(batch, {ERRORS: torch.linspace(0.1, 2, shape.numel()).reshape(shape)})


WHOLE_EPISODES = PERBuffer.create_factory(size=64, alpha=0.7, epsilon=0.01, sequences=Episodes(packed=True))


@pytest.mark.parametrize("factory", [PRIORITISED, WHOLE_EPISODES], ids=["transitions", "episodes of all lengths"])
def test_batches_through_shared_memory_equal_those_that_are_sent(factory: Any) -> None:
    sharing = SharingShards([maker(factory) for _ in range(2)])
    theirs, ours = filled(LocalShards([maker(factory) for _ in range(2)])), filled(sharing)
    for expected, found in zip(learn(theirs, 60), learn(ours, 60), strict=True):
        assert equal(expected, found)
    assert "in memory" in sharing.seen[4:]


def test_batches_that_are_kept_are_not_overwritten() -> None:
    replay = filled(SharingShards([maker(PRIORITISED)]))
    batches = list(learn(replay, 40))
    copies = [{name: tensor.clone() for name, tensor in batch.items()} for batch in batches]
    list(learn(replay, 40))
    assert all(equal(batch, copy) for batch, copy in zip(batches, copies, strict=True))


def test_a_shard_that_replaces_another_gets_pieces_of_its_own() -> None:
    group = SharingShards([maker(PRIORITISED)])
    replay = filled(group)
    list(learn(replay, 20))
    storage = group.shards[0].storage
    group.shards[0] = ReplayShard(lambda: storage)
    group.seen.clear()
    with pytest.warns(RuntimeWarning, match="shard 0 died and was replaced"):
        list(learn(replay, 40))
    assert group.seen[-1] == "in memory"


def test_a_shard_on_another_machine_sends_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenedPieces, "memory_at", lambda self, place: None)
    made: list[str] = []
    group = SharingShards([maker(PRIORITISED)])
    take = group.offered[0].take

    def recorded() -> Piece | None:
        piece = take()
        made.extend([piece.place.path] if piece is not None else [])
        return piece

    monkeypatch.setattr(group.offered[0], "take", recorded)
    assert len(list(learn(filled(group), 60))) == 60
    assert set(group.seen) == {"sent"}
    # It is not tried forever.
    assert 1 <= len(made) <= 2


@pytest.mark.parametrize("reserves", [True, False], ids=["without room", "a system without reserved memory"])
def test_without_shared_memory_batches_are_sent(reserves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    if reserves:
        monkeypatch.setattr(os, "posix_fallocate", full)
    else:
        monkeypatch.delattr(os, "posix_fallocate")
    group = SharingShards([maker(PRIORITISED)])
    assert len(list(learn(filled(group), 30))) == 30
    assert set(group.seen) == {"sent"}


# Pieces


def test_a_piece_has_no_name_once_it_was_used_and_none_after_its_end() -> None:
    piece = Piece(1_000)
    path = Path(piece.place.path)
    assert path.stat().st_size == 1_000
    assert path.stat().st_mode & 0o777 == 0o600
    opened = OpenedPieces()
    memory = opened.memory_at(piece.place)
    assert memory is not None
    memory[:5] = b"hello"
    piece.mark_as_used()
    assert not path.exists()
    assert piece.memory[:5] == b"hello"
    assert opened.memory_at(piece.place) is memory
    assert OpenedPieces().memory_at(piece.place) is None
    other = Piece(1_000)
    other_path = Path(other.place.path)
    del other
    assert not other_path.exists()


def test_only_pieces_of_shared_memory_are_mapped(tmp_path: Path) -> None:
    piece = Piece(100)
    opened = OpenedPieces()
    file = tmp_path / f"{PREFIX}file"
    file.write_bytes(bytes(100))
    for path in (str(file), "/dev/shm/other", f"/dev/shm/../etc/{PREFIX}x"):
        with pytest.raises(ValueError, match="must be /dev/shm/pytorchrl-test-"):
            opened.memory_at(Place(path, 100))
    assert opened.memory_at(Place(piece.place.path, 200)) is None, "it has another size"
    link = FOLDER / f"{PREFIX}link"
    link.symlink_to(file)
    try:
        assert opened.memory_at(Place(str(link), 100)) is None, "links are not followed"
    finally:
        link.unlink()


# Packing


def test_batches_of_several_shapes_lie_one_after_the_other() -> None:
    batches: list[Any] = [
        {OBS: {"a": torch.arange(6.0).reshape(3, 2), "b": torch.tensor([[1], [2], [3]], dtype=torch.uint8)}},
        {OBS: {"a": torch.arange(6.0).reshape(3, 2) + 1, "b": torch.tensor([[4], [5], [6]], dtype=torch.uint8)}},
        {OBS: {"a": torch.ones(5, 2), "b": torch.zeros(5, 1, dtype=torch.uint8)}, REW: torch.tensor([True, False])},
    ]
    piece = Piece(4_096)
    layout = pack_into(piece.memory, batches)
    assert layout is not None
    assert [length for length, _ in layout] == [2, 1]
    released: list[bool] = []
    found = list(unpack(arrays_in(piece.memory, layout), lambda: released.append(True)))
    assert released == [True]
    for batch, one, sent in zip(batches, found, unpack(pack(batches)), strict=True):
        for arrays in (one, sent):
            assert equal(batch, {key: _tensors(value) for key, value in arrays.items()})
    assert pack_into(Piece(64).memory, batches) is None


def _tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: torch.from_numpy(array) for name, array in value.items()}
    return torch.from_numpy(value)
