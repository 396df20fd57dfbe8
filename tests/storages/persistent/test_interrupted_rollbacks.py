"""A rollback that a failing disk interrupts is named, writes nothing more, and is completed by the next opening."""

import errno
from pathlib import Path

import pytest

from storages.persistent import PersistenceError
from storages.persistent.episodes import episode_log
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.log.notes import MARKER_NAME
from tests.support.episodic import buffer, with_a_pinned_position
from tests.support.model import contents


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_rollback_that_a_full_disk_interrupts_is_completed_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, position, model = with_a_pinned_position(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(SegmentStore, "roll_back", fail)
        with pytest.raises(PersistenceError, match=r"was interrupted: .*No space left.*made again, which completes it"):
            storage.roll_back(position)
    assert (tmp_path / MARKER_NAME).is_file()
    with pytest.raises(PersistenceError):
        storage.flush()
    # The directory is released.
    again = buffer(tmp_path)
    model.assert_holds(again)
    assert not (tmp_path / MARKER_NAME).exists()
    again.close()


def test_a_rollback_that_cannot_begin_leaves_the_buffer_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, position, _ = with_a_pinned_position(tmp_path)
    before = contents(storage)
    with monkeypatch.context() as patch:
        patch.setattr(episode_log, "write_marker", fail)
        with pytest.raises(PersistenceError, match="No space left on device; it is unchanged"):
            storage.roll_back(position)
    assert contents(storage) == before
    storage.close()
    again = buffer(tmp_path)
    assert contents(again) == before
    again.close()


def test_a_marker_of_a_commit_that_is_gone_is_removed_with_an_error(tmp_path: Path) -> None:
    storage, position, _ = with_a_pinned_position(tmp_path)
    before = contents(storage)
    storage.close()
    other = {name: {**part, "commit": part["commit"] + 10_000} for name, part in position.items()}
    episode_log.write_marker(tmp_path, other, False)
    with pytest.raises(PersistenceError):
        buffer(tmp_path)
    assert not (tmp_path / MARKER_NAME).exists()
    again = buffer(tmp_path)
    assert contents(again) == before
    again.close()
