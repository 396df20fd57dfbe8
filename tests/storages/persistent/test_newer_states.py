"""Recurrent states that updates replace are in the directory as of every checkpoint, flush and close."""

import copy
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, PERBuffer, PersistentEpisodicBuffer, ReplayBuffer, Sequences
from storages.persistent import DamageError, PersistenceError, read_state, repair
from storages.persistent.log import records as blocks
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.records import Record
from storages.persistent.replay import write_ahead_log
from storages.persistent.replay.snapshot_records import NEWER_STATES, STATE_OFFSETS
from storages.transition import DONE, ERRORS, MASK, RHS
from tests.storages.persistent.test_small_logs import bytes_in
from tests.support.directories import PRIORITIES, files_no_longer_than, longest_file_bytes, small_segments
from tests.support.model import ALGORITHM, Stream, contents, environments, equal

SIZE, ENVS = 24, 2
WAYS: dict[str, Callable[..., Any]] = {
    "sequences": lambda **given: ReplayBuffer.create_factory(sequences=Sequences(4), **given),
    "priorities": lambda **given: PERBuffer.create_factory(
        sequences=Sequences(4, burn_in=2, across_episodes=True), **PRIORITIES, **given
    ),
    "ahead": lambda **given: ReplayBuffer.create_factory(
        sequences=Sequences(4, across_episodes=True), prefetch=2, **given
    ),
    "episodes": lambda **given: PERBuffer.create_factory(sequences=Episodes(whole=False), **PRIORITIES, **given),
    "packed": lambda **given: ReplayBuffer.create_factory(sequences=Episodes(whole=False, packed=True), **given),
}


class Pair:
    """A storage with a directory and its twin in memory, whose updates give newer recurrent states.

    Args:
        directory: of the first one.
        way: a key of :data:`WAYS`.
        kind: of observations.
    """

    def __init__(self, directory: Path, way: str = "sequences", kind: str = "vector", **given: Any) -> None:
        self.directory, self.way, self.given = directory, way, {"size": SIZE, "commit_every": 4} | given
        self.envs = environments(kind, ENVS)
        self.stream, self.random = Stream(ENVS, kind, True, np.random.default_rng(0)), np.random.default_rng(1)
        self.kept, self.twin = self.open(), self.made(None)
        for storage in (self.kept, self.twin):
            storage.seed(0)

    def made(self, directory: Path | None) -> Any:
        return WAYS[self.way](directory=directory, **self.given)("cpu", None, ALGORITHM, self.envs)

    def open(self, directory: Path | None = None) -> Any:
        return self.made(directory or self.directory)

    def insert(self, steps: int = 1) -> None:
        for _ in range(steps):
            sample = self.stream.step()
            for storage in (self.kept, self.twin):
                storage.insert_transition(sample)

    def update(self) -> None:
        """Update both by two batches, which must be equal."""
        seed = int(self.random.integers(2**30))
        drawn = [dict(enumerate(update(storage, seed))) for storage in (self.kept, self.twin)]
        assert equal(*drawn)

    def assert_same(self) -> None:
        assert contents(self.kept) == contents(self.twin)
        self.update()

    def killed(self, copied_to: Path) -> None:
        """Go on in a copy of the directory, with what a killed process would leave there."""
        assert self.kept.position
        shutil.copytree(self.directory, copied_to)
        self.kept.close()
        self.directory = copied_to
        self.kept = self.open()


def update(storage: Any, seed: int) -> list[Any]:
    random, drawn = np.random.default_rng(seed), []
    for batch in storage.generate_batches(2, 5):
        drawn.append(batch)
        of_rows = batch[MASK].shape if MASK in batch else batch[DONE].shape
        states = random.normal(size=(*batch[DONE].shape[:-1], 4)).astype(np.float32)
        errors = torch.from_numpy(random.exponential(size=of_rows))
        storage.after_gradients(batch, {RHS: torch.from_numpy(states), ERRORS: errors})
    return drawn


def states_of(storage: Any) -> torch.Tensor:
    states: torch.Tensor = storage.get_all_buffer_data()[RHS]
    return states


def records_in(directory: Path) -> list[Record]:
    found = (one for path in sorted(directory.glob("*.steps")) for one in blocks.read(path))
    return [one.record for one in found if isinstance(one, blocks.StoredRecord)]


# Checkpoints and kills


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("kind", ["vector", "frames"])
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_storage_returns_to_the_states_of_its_checkpoint(way: str, kind: str, tmp_path: Path) -> None:
    with small_segments():
        pair = Pair(tmp_path / "0", way, kind)
        pair.insert(8)
        for number in range(1, 9):
            for _ in range(int(pair.random.integers(1, 4))):
                pair.insert(int(pair.random.integers(1, 9)))
                pair.update()
            saved = pair.kept.state_dict(), copy.deepcopy(pair.twin.state_dict())
            if pair.random.random() < 0.5:
                pair.kept.close()
                pair.kept = pair.open()
                pair.kept.pin(saved[0]["position"])
            for _ in range(int(pair.random.integers(3))):
                pair.insert(int(pair.random.integers(1, 2 * SIZE)))
                pair.update()
            pair.killed(tmp_path / str(number))
            pair.kept.load_state_dict(saved[0])
            pair.twin.load_state_dict(saved[1])
            pair.assert_same()
        assert pair.kept.ring.steps > 2 * SIZE
        pair.kept.close()


@pytest.mark.parametrize("how", ["flush", "close", "state_dict"])
def test_another_process_has_the_newest_states_after_a_flush_close_or_checkpoint(how: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept", "priorities")
    pair.insert(20)
    pair.update()
    getattr(pair.kept, how)()
    read = pair.made(None)
    read.load_state_dict(read_state(tmp_path / "kept"))
    assert contents(read) == contents(pair.twin)
    pair.kept.close()


def test_commits_between_checkpoints_hold_no_replaced_states(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(12)
    pair.kept.flush()
    before = len(records_in(pair.directory))
    for _ in range(8):
        pair.update()
        pair.insert()
    assert pair.kept.position
    between = records_in(pair.directory)[before:]
    assert len(between) > 2
    assert all(NEWER_STATES not in record.arrays for record in between)
    pair.kept.flush()
    held = records_in(pair.directory)[-1].arrays
    assert 1 < len(held[STATE_OFFSETS][0]) == len(set(held[STATE_OFFSETS][0].tolist())) <= len(pair.kept)
    pair.kept.close()


@pytest.mark.parametrize("before", ["a flush", "a reset", "a rollback"])
def test_a_replaced_state_is_written_once(before: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept", commit_every=100)
    pair.insert(12)
    saved = pair.kept.state_dict()
    pair.update()
    if before == "a reset":
        pair.kept.reset()
    elif before == "a rollback":
        pair.kept.load_state_dict(saved)
    else:
        pair.kept.flush()
    sample = pair.stream.step
    for _ in range(8):
        pair.kept.insert_transition(sample())
    ring, (batch,) = pair.kept.ring, pair.kept.generate_batches(1, 3)
    pair.kept.after_gradients(batch, {RHS: torch.ones(*batch[DONE].shape[:-1], 4)})
    committed = pair.kept.observers.log.wal.written * ENVS
    for expected in (np.flatnonzero((states_of(pair.kept) == 1).all(-1)) + ring.start, np.empty(0)):
        pair.kept.flush()
        record = records_in(pair.directory)[-1]
        held = record.arrays[STATE_OFFSETS][0] + record.facts["start"] if STATE_OFFSETS in record.arrays else []
        # Steps of the commit itself have their states with them.
        assert sorted(held) == expected[expected < committed].tolist()
    pair.kept.close()


def test_a_storage_that_was_killed_after_a_checkpoint_has_the_states_of_that(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(12)
    pair.update()
    pair.kept.state_dict()
    saved, at_insertion = states_of(pair.twin), []
    for _ in range(3):
        pair.insert()
        at_insertion.append(states_of(pair.twin)[-1])
        pair.update()
    pair.killed(tmp_path / "copy")
    there = states_of(pair.kept)
    assert len(there) >= 12
    assert torch.equal(there[:12], saved)
    assert any(not torch.equal(row, other) for row, other in zip(saved, states_of(pair.twin)[:12], strict=True))
    pair.kept.close()


def test_a_log_without_replaced_states_has_the_arrays_of_before(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(12)
    pair.kept.close()
    for record in records_in(pair.directory):
        assert {key.role for key in record.arrays} == {
            "rows",
            "following",
            "ended",
            "has final",
            "cut before",
            "final",
        }
    pair.kept = pair.open()
    pair.assert_same()
    pair.kept.close()


# The size of the ring


@pytest.mark.parametrize("bound", [{"size": None}, {"size": None, "max_bytes": 20_000}], ids=["grows", "shrinks"])
def test_replaced_states_follow_a_change_of_the_capacity(bound: dict[str, Any], tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept", **bound)
    sizes = set()
    with small_segments():
        for _ in range(30):
            pair.insert(4)
            pair.update()
            sizes.add(pair.kept.ring.size)
            pair.kept.flush()
            read = pair.made(None)
            read.load_state_dict(read_state(pair.directory))
            assert contents(read) == contents(pair.twin)
        assert len(sizes) > 1
        pair.kept.close()
        pair.kept = pair.open()
        pair.assert_same()
        pair.kept.close()


def test_states_of_steps_in_deleted_files_are_left_out(tmp_path: Path) -> None:
    with small_segments(1):
        pair = Pair(tmp_path, size=None, max_bytes=200_000, commit_every=200)
        pair.insert(120)
        pair.kept.flush()
        for _ in range(4):
            pair.update()
        # The next file begins with states of steps in earlier ones.
        pair.insert(4)
        pair.kept.flush()
        pair.insert(6)
        for storage in (pair.kept, pair.twin):
            storage.shrink(10)
        pair.kept.flush()
        assert STATE_OFFSETS in records_in(tmp_path)[0].arrays
        assert records_in(tmp_path)[0].first == 120
        read = pair.made(None)
        read.load_state_dict(read_state(tmp_path))
        assert contents(read) == contents(pair.twin)
        pair.kept.close()


@pytest.mark.parametrize("how", ["reset", "load"])
def test_states_of_dropped_steps_are_not_those_of_later_ones(how: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(12)
    saved = pair.twin.state_dict()
    pair.update()
    for storage in (pair.kept, pair.twin):
        storage.reset() if how == "reset" else storage.load_state_dict(saved)
    pair.insert(10)
    pair.update()
    pair.kept.close()
    pair.kept = pair.open()
    pair.assert_same()
    pair.kept.close()


def test_a_long_time_of_updates_does_not_fill_the_disk(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept", size=400, commit_every=50)
    pair.insert(400)
    most = 0
    for _ in range(150):
        pair.insert(3)
        for _ in range(4):
            pair.update()
        pair.kept.state_dict()
        most = max(most, bytes_in(pair.directory))
    assert pair.kept.position
    written = sum(
        sum(piece.nbytes for piece in record.arrays[NEWER_STATES])
        for record in records_in(pair.directory)
        if NEWER_STATES in record.arrays
    )
    assert written > 0
    assert most < 4 * pair.kept.nbytes
    pair.kept.close()


# Several records, and faults


def test_many_replaced_states_are_written_in_several_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead_log, "_LARGEST_COMMIT_BYTES", 10 * 4 * 4)
    pair = Pair(tmp_path / "kept")
    pair.insert(20)
    pair.kept.flush()
    before = len(records_in(pair.directory))
    for _ in range(3):
        pair.update()
    state = pair.kept.state_dict()
    held = [len(record.arrays[STATE_OFFSETS][0]) for record in records_in(pair.directory)[before:]]
    assert held == [10] * (len(held) - 1) + held[-1:]
    assert len(held) > 1
    twin = copy.deepcopy(pair.twin.state_dict())
    pair.update()
    pair.kept.load_state_dict(state)
    pair.twin.load_state_dict(twin)
    pair.assert_same()
    pair.kept.close()


def test_states_that_a_full_disk_refused_are_written_later(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(20)
    pair.kept.flush()
    pair.update()
    with (
        files_no_longer_than(longest_file_bytes(pair.directory) + 100),
        pytest.raises(PersistenceError, match="free disk space"),
    ):
        pair.kept.flush()
    pair.update()
    pair.kept.close()
    pair.kept = pair.open()
    pair.assert_same()
    pair.kept.close()


def test_a_commit_in_progress_holds_the_states_from_before_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path / "kept")
    pair.insert(8)
    pair.kept.flush()
    wal, update_waits = pair.kept.observers.log.wal, threading.Event()
    wait, append = wal.wait, CommitLog.append

    def append_late(log: CommitLog, record: Record) -> None:
        assert update_waits.wait(60)
        append(log, record)

    monkeypatch.setattr(CommitLog, "append", append_late)
    monkeypatch.setattr(wal, "_is_quick", lambda record: False)
    monkeypatch.setattr(wal, "wait", lambda: (update_waits.set(), wait()))
    while wal._writing is None:
        pair.insert()
    end = pair.kept.ring.steps
    before = states_of(pair.twin)
    for _ in range(4):
        pair.update()
    assert not torch.equal(states_of(pair.twin)[8:], before[8:])
    read = pair.made(None)
    read.load_state_dict(read_state(pair.directory))
    there = states_of(read)
    assert 8 < len(there) <= end
    assert torch.equal(there[8:], before[8 : len(there)])
    pair.kept.close()


# Damage


def filled(directory: Path) -> tuple[Pair, Path]:
    """A closed pair whose last commit but one holds replaced states, and the file of that."""
    pair = Pair(directory, commit_every=100)
    pair.insert(20)
    pair.kept.flush()
    pair.update()
    pair.kept.flush()
    pair.kept.close()
    (directory / "closed.json").unlink()
    return pair, max(directory.glob("*.steps"))


def test_a_damaged_record_of_states_is_named_and_repaired_to_earlier_states(tmp_path: Path) -> None:
    pair, path = filled(tmp_path)
    found = [one for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    number = next(place for place, one in enumerate(found) if NEWER_STATES in one.record.arrays)
    earlier = dict.fromkeys(range(20))
    data = bytearray(path.read_bytes())
    data[found[number].end - 60] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=f"{path.name} is damaged from byte .* where steps 20 to 20 are"):
        pair.open()
    with pytest.raises(DamageError, match=path.name):
        read_state(tmp_path)
    done = repair(tmp_path)
    assert len(done.dropped) == 1
    assert done.steps == len(earlier)
    repaired = pair.open()
    rows, twin = repaired.get_all_buffer_data(), pair.twin.get_all_buffer_data()
    assert not torch.equal(rows.pop(RHS), twin.pop(RHS))
    rows.pop("NextRecurrentHiddenStates")
    twin.pop("NextRecurrentHiddenStates")
    assert equal(rows, twin)
    repaired.close()


def test_a_repair_gives_states_to_their_steps_after_a_gap(tmp_path: Path) -> None:
    with small_segments(1):
        pair = Pair(tmp_path, commit_every=100)
        for _ in range(5):
            pair.insert(4)
            pair.kept.flush()
        pair.update()
        pair.kept.flush()
        newer = states_of(pair.twin)
        pair.kept.close()
    gone = sorted(tmp_path.glob("*.steps"))[2]
    (lost,) = (one.record for one in blocks.read(gone) if isinstance(one, blocks.StoredRecord))
    gone.unlink()
    assert len(repair(tmp_path).dropped) > 0
    repaired = pair.open()
    assert 0 < lost.first < lost.steps < 20
    assert torch.equal(states_of(repaired), torch.cat([newer[: lost.first], newer[lost.steps :]]))
    repaired.close()


def changed(**by_name: Callable[[Any], Any]) -> Callable[[Record], Record]:
    keys = {"states": NEWER_STATES, "offsets": STATE_OFFSETS}
    return lambda record: replace(
        record,
        arrays=record.arrays
        | {keys[name]: (change(record.arrays[keys[name]][0]),) for name, change in by_name.items()},
    )


DEFECTS: dict[str, Callable[[Record], Record]] = {
    "too few states": changed(states=lambda states: states[1:]),
    "states of another size": changed(states=lambda states: states[:, 1:]),
    "states of another dtype": changed(states=lambda states: states.astype(np.float64)),
    "offsets of another dtype": changed(offsets=lambda offsets: offsets.astype(np.int64)),
    "offsets of two axes": changed(offsets=lambda offsets: offsets[:, None]),
    "offsets of missing transitions": changed(offsets=lambda offsets: offsets + 10**6),
    "states without offsets": lambda record: replace(
        record, arrays={key: value for key, value in record.arrays.items() if key != STATE_OFFSETS}
    ),
    "offsets without states": lambda record: replace(
        record, arrays={key: value for key, value in record.arrays.items() if key != NEWER_STATES}
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_crafted_states_are_refused_by_name_and_dropped_by_a_repair(defect: str, tmp_path: Path) -> None:
    pair, path = filled(tmp_path)
    found = [one.record for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    copies = [replace(one, arrays={name: (pieces[0].copy(),) for name, pieces in one.arrays.items()}) for one in found]
    number = next(place for place, one in enumerate(copies) if NEWER_STATES in one.arrays)
    with path.open("wb") as file:
        for one in [*copies[:number], DEFECTS[defect](copies[number])]:
            blocks.write(file.fileno(), one)
    with pytest.raises(DamageError, match=f"{path.name} is damaged, or was not written by this package: commit"):
        pair.open()
    assert len(repair(tmp_path).dropped) == 1
    repaired = pair.open()
    assert len(repaired) == 20 * ENVS
    repaired.close()


# Where states of acting stay


def test_immutable_segments_keep_the_states_of_acting(tmp_path: Path) -> None:
    factory = PersistentEpisodicBuffer.create_factory(
        size=None, directory=tmp_path, sequences=Sequences(4, across_episodes=True)
    )
    storage: Any = factory("cpu", None, ALGORITHM, None)
    stream = Stream(ENVS, "vector", True, np.random.default_rng(0))
    for _ in range(60):
        storage.insert_transition(stream.step())
    before = states_of(storage)
    update(storage, 0)
    assert torch.equal(states_of(storage), before)
    storage.close()
