"""Reopening a closed storage: its content is complete, or an error names the files with missing content."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import DamageError, read_state, repair
from storages.persistent.log.json_file import read_verified, write_verified
from tests.support.directories import Pair, made, small_segments
from tests.support.model import contents


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 20)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


@pytest.fixture
def closed(tmp_path: Path) -> Pair:
    """A closed storage of several files; ``older`` beside it is a copy of its directory from some commits earlier.

    The last file of both is the same one, which had fewer commits then.
    """
    with small_segments(4_000):
        pair = Pair("priority", tmp_path / "kept", commit_every=4)
        pair.insert(20)
        pair.update()
        pair.kept.state_dict()
        pair.insert(9)
        pair.kept.flush()
        shutil.copytree(tmp_path / "kept", tmp_path / "older")
        pair.insert(2)
        pair.close()
    return pair


def last(directory: Path) -> Path:
    return max(directory.glob("*.steps"))


@pytest.mark.parametrize("change", [truncated, emptied, Path.unlink])
def test_a_truncated_or_missing_last_file_is_named(closed: Pair, change: Callable[[Path], None]) -> None:
    path = last(closed.directory)
    change(path)
    with pytest.raises(DamageError, match=path.name):
        closed.open()
    with pytest.raises(DamageError, match=path.name):
        read_state(closed.directory)
    assert repair(closed.directory).dropped
    assert not repair(closed.directory).dropped
    made("priority", closed.directory).close()


def test_an_older_version_of_the_last_file_is_detected(closed: Pair) -> None:
    path = last(closed.directory)
    shutil.copy(closed.directory.parent / "older" / path.name, path)
    with pytest.raises(DamageError, match=rf"{path.name}.* when the storage was closed, so that commits .* are gone"):
        closed.open()


def test_older_versions_of_all_files_but_the_closing_note_are_detected(closed: Pair) -> None:
    for path in (closed.directory.parent / "older").iterdir():
        shutil.copy(path, closed.directory / path.name)
    with pytest.raises(DamageError, match="when the storage was closed"):
        closed.open()


def test_a_missing_first_file_that_only_a_checkpoint_needs_is_reported(closed: Pair) -> None:
    path = min(closed.directory.glob("*.steps"))
    path.unlink()
    with pytest.raises(DamageError, match=f"{path.name} is missing"):
        closed.open()
    assert repair(closed.directory).dropped


def test_a_damaged_closing_note_is_named_and_replaced(closed: Pair) -> None:
    note = closed.directory / "closed.json"
    note.write_bytes(note.read_bytes().replace(b"commit", b"comnit", 1))
    with pytest.raises(DamageError, match=r"closed\.json is damaged"):
        closed.open()
    assert "closed.json" in repair(closed.directory).dropped[0]
    closed.kept = closed.open()
    closed.assert_same()
    closed.close()
    assert note.exists()


@pytest.mark.parametrize("changed", [{"files": {"../other": 1}}, {"files": 7}, {"errors": "none"}, {"commit": "one"}])
def test_a_crafted_closing_note_is_refused_and_replaced_by_a_repair(closed: Pair, changed: dict[str, Any]) -> None:
    note = closed.directory / "closed.json"
    write_verified(note, read_verified(note) | changed, durable=False)
    with pytest.raises(DamageError, match=str(closed.directory)):
        closed.open()
    assert repair(closed.directory).dropped
    closed.open().close()


def test_no_damage_is_reported_if_the_process_is_killed_after_a_rollback(tmp_path: Path) -> None:
    pair = Pair("priority", tmp_path / "kept", commit_every=4)
    pair.insert(9)
    states = pair.kept.state_dict(), pair.twin.state_dict()
    pair.insert(9)
    pair.reopen()
    for storage, state in zip((pair.kept, pair.twin), states, strict=True):
        storage.load_state_dict(state)
    shutil.copytree(tmp_path / "kept", tmp_path / "killed")
    there = pair.open(tmp_path / "killed")
    assert contents(there) == contents(pair.twin)
    there.close()
    pair.close()
