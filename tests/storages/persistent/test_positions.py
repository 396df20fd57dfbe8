"""A checkpoint refers to a commit: loading the checkpoint drops later commits."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import PersistenceError, read_state
from tests.support.directories import WAYS, Pair, made, small_segments
from tests.support.model import contents, through_a_file


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("way", WAYS)
def test_loading_a_state_rolls_the_directory_back_to_its_commit(way: str, tmp_path: Path) -> None:
    with small_segments():
        pair = Pair(way, tmp_path, "dict of frames", commit_every=4)
        pair.insert(30)
        pair.update()
        state, twin = through_a_file(pair.kept.state_dict()), pair.twin.state_dict()
        assert len(json.dumps(state)) < 5_000, "the state is small: what is stored is in the directory"
        pair.insert(40)
        pair.update()
        pair.reopen()
        for one, saved in ((pair.kept, state), (pair.twin, twin)):
            one.load_state_dict(saved)
        pair.assert_same()
        pair.insert(9)
        pair.reopen()
        pair.assert_same()
    pair.close()


def test_a_checkpoint_from_before_the_first_insertion_can_be_loaded(tmp_path: Path) -> None:
    pair = Pair("recency", tmp_path)
    states = pair.kept.state_dict(), pair.twin.state_dict()
    pair.insert(20)
    pair.update()
    for one, state in zip((pair.kept, pair.twin), states, strict=True):
        one.load_state_dict(state)
    assert len(pair.kept) == 0
    pair.insert(5)
    pair.assert_same()
    pair.reopen()
    pair.assert_same()
    pair.close()


@pytest.mark.long
def test_the_last_two_states_can_be_loaded_after_many_insertions(tmp_path: Path) -> None:
    with small_segments(1500):
        pair = Pair("priority", tmp_path, commit_every=2)
        states = []
        for _ in range(4):
            pair.insert(60)
            pair.update()
            states.append((pair.kept.state_dict(), pair.twin.state_dict()))
        for kept, twin in (states[3], states[2]):
            pair.insert(60)
            pair.reopen()
            pair.kept.load_state_dict(kept)
            pair.twin.load_state_dict(twin)
            pair.assert_same()
        before = contents(pair.kept)
        with pytest.raises(
            PersistenceError, match=r"has commits \d+ to \d+, but commit .* is missing; nothing was changed"
        ):
            pair.kept.load_state_dict(states[0][0])
        assert contents(pair.kept) == before
    pair.close()


def test_a_pinned_position_is_restored_after_all_its_steps_were_overwritten(tmp_path: Path) -> None:
    with small_segments(1500):
        pair = Pair("priority", tmp_path, commit_every=2)
        pair.insert(20)
        pair.update()
        pair.kept.flush()
        position, twin = json.loads(json.dumps(pair.kept.position)), pair.twin.state_dict()
        pair.kept.pin(position)
        pair.insert(60)
        pair.update()
        pair.reopen()
        pair.kept.roll_back(position)
        pair.twin.load_state_dict(twin)
        pair.assert_same()
    pair.close()


def test_a_new_pin_releases_the_files_and_the_position_of_an_earlier_pin(tmp_path: Path) -> None:
    with small_segments(1500):
        pair = Pair("priority", tmp_path, commit_every=2)
        pair.insert(20)
        pair.kept.flush()
        position = pair.kept.position
        pair.kept.pin(position)
        pair.insert(200)
        files = len(list(tmp_path.iterdir()))
        pair.reopen()
        pair.kept.pin(pair.kept.position)
        pair.insert(40)
        pair.kept.flush()
        assert len(list(tmp_path.iterdir())) < files
        with pytest.raises(PersistenceError, match=rf"commit {position['commit']}, .* is missing; nothing was changed"):
            pair.kept.roll_back(position)
        pair.assert_same()
    pair.close()


def test_a_position_dropped_by_a_rollback_cannot_be_restored(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(3)
    pair.kept.flush()
    first = pair.kept.position
    pair.insert(3)
    pair.kept.flush()
    dropped = pair.kept.position
    pair.kept.roll_back(first)
    for _ in range(3):
        pair.kept.insert_transition(pair._stream.step())
    pair.kept.flush()
    assert pair.kept.position["commit"] >= dropped["commit"]
    with pytest.raises(PersistenceError, match=r"but commit .* is missing"):
        pair.kept.roll_back(dropped)
    pair.close()


def test_a_state_with_a_directory_is_refused_by_a_storage_without_its_commits(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path / "one")
    pair.insert(3)
    state = pair.kept.state_dict()
    with pytest.raises(ValueError, match=r"refers to commit \d+ in the directory.*make this one with that directory="):
        pair.twin.load_state_dict(state)
    other = made("plain", tmp_path / "two")
    with pytest.raises(PersistenceError, match=r"has no commits, but commit .* is missing"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="no directory to roll back in"):
        pair.twin.roll_back({"commit": 0, "checksum": 0})
    with pytest.raises(ValueError, match="no directory to pin in"):
        pair.twin.pin({"commit": 0, "checksum": 0})
    assert pair.twin.position is None
    pair.close()
    other.close()


def test_a_state_can_be_loaded_with_a_copy_of_its_directory(tmp_path: Path) -> None:
    pair = Pair("recency", tmp_path / "one", "image")
    pair.insert(20)
    states: Any = pair.kept.state_dict(), pair.twin.state_dict()
    pair.insert(10)
    pair.kept.flush()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    pair.close()
    pair.kept = pair.open(tmp_path / "two")
    for one, state in zip((pair.kept, pair.twin), states, strict=True):
        one.load_state_dict(state)
    pair.assert_same()
    pair.close()


@pytest.mark.parametrize("way", ["plain", "recency", "hindsight"])
def test_a_directory_can_be_read_while_it_is_in_use(way: str, tmp_path: Path) -> None:
    pair = Pair(way, tmp_path, "dict of frames")
    pair.insert(30)
    pair.update()
    pair.kept.flush()
    position, state = pair.kept.position, pair.twin.state_dict()
    read = through_a_file(read_state(tmp_path, position))
    pair.insert(4)
    pair.kept.flush()
    assert read_state(tmp_path)["inserted"] == 34 * 2
    with pytest.raises(PersistenceError, match="does not have commit 99"):
        read_state(tmp_path, {"commit": 99, "checksum": 1})
    other = Pair(way, tmp_path.parent / f"{tmp_path.name} other", "dict of frames")
    other.kept.load_state_dict(read)
    other.twin.load_state_dict(state)
    other.assert_same()
    other.insert(9)
    other.reopen()
    other.assert_same()
    other.close()
    pair.close()
    with pytest.raises(PersistenceError, match="holds no storage"):
        read_state(tmp_path / "nowhere")
