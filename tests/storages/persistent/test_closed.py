"""Reopening a closed storage: its content is complete, or an error names the files with missing content."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import DamageError, repair
from storages.persistent.log.json_file import read_verified, write_verified
from tests.support.directories import Pair, small_segments
from tests.support.model import contents


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


def test_older_versions_of_all_files_but_the_closing_note_are_detected(closed: Pair) -> None:
    for path in (closed.directory.parent / "older").iterdir():
        shutil.copy(path, closed.directory / path.name)
    with pytest.raises(DamageError, match="when the storage was closed"):
        closed.open()


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
