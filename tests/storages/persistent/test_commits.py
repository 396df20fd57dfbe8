"""Commits in a background thread: later insertions do not alter them, and uncommitted steps stay within the limit."""

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import PersistenceError
from storages.persistent.log import records as blocks
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.log_files import LogFiles
from storages.persistent.replay import write_ahead_log
from tests.support.directories import Pair, small_segments


@pytest.fixture
def writes_may_proceed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Commits wait in the background thread until this is set; all commits count as large."""
    monkeypatch.setattr(blocks, "SMALL_RECORD_BYTES", -1)
    go_on, append = threading.Event(), LogFiles.append

    def waits(log: LogFiles, block: Any, new_file: bool) -> int:
        if threading.current_thread() is not threading.main_thread():
            go_on.wait()
        return append(log, block, new_file)

    monkeypatch.setattr(LogFiles, "append", waits)
    return go_on


@pytest.mark.parametrize(
    ("way", "kind"), [("plain", "image"), ("plain", "dict of frames"), ("recency", "vector"), ("recency", "frames")]
)
def test_insertions_during_a_commit_do_not_alter_the_commit(
    way: str, kind: str, tmp_path: Path, writes_may_proceed: threading.Event
) -> None:
    pair = Pair(way, tmp_path, kind, commit_every=12)
    pair.kept.observers.log.wal.wait()
    writes_may_proceed.set()
    pair.insert(5)
    for _ in range(5):
        pair.insert(4)
        pair.kept.observers.log.wal.wait()
        writes_may_proceed.clear()
        # This insertion starts a commit, and three more overwrite the oldest steps; a further one would wait.
        pair.insert(1)
        committed = pair.twin.ring.steps - 1
        pair.insert(3)
        writes_may_proceed.set()
        pair.kept.observers.log.wal.wait()
        assert pair.kept.observers.log.wal.written == committed
    pair.reopen()
    pair.assert_same()
    pair.close()


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(
    ("owner", "name", "way"),
    [
        (blocks, "write", "plain"),
        (LogFiles, "append", "priority"),
        (LogFiles, "_opened", "plain"),
        (CommitLog, "append", "priority"),
    ],
)
def test_a_small_commit_interrupted_at_any_call_is_stored_once(
    owner: Any, name: str, done: bool, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(way, tmp_path, commit_every=6)
    pair.insert(6)
    pair.update()
    for _ in range(3):
        called = getattr(owner, name)

        def interrupted(*given: Any, called: Callable[..., Any] = called, **named: Any) -> Any:
            if done:
                called(*given, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                for _ in range(20):
                    sample = pair._stream.step()
                    pair.kept.insert_transition(sample)
                    pair.twin.insert_transition(sample)
        for storage in (pair.kept, pair.twin):
            storage.insert_transition(sample)
        for _ in range(15):
            pair.insert()
            assert pair.kept.ring.steps - pair.kept.observers.log.wal.written <= 6
        pair.update()
    pair.reopen()
    pair.assert_same()
    pair.close()


@pytest.mark.parametrize("steps", [0, 1])
def test_repeated_updates_of_errors_do_not_grow_the_log_if_few_steps_are_inserted(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "LONGEST_LOG_BYTES", 3_000)
    monkeypatch.setattr(write_ahead_log, "_SMALLEST_LOG_FILE_BYTES", 2_000)
    with small_segments(2_000):
        pair = Pair("priority", tmp_path)
        pair.insert(12)
        for _ in range(40):
            pair.insert(steps)
            pair.update()
            pair.kept.flush()
        assert sum(path.stat().st_size for path in tmp_path.glob("*.steps")) < 20_000
        pair.reopen()
    pair.assert_same()
    pair.close()


def test_a_storage_with_a_directory_cannot_be_copied(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path)
    pair.insert(2)
    with pytest.raises(PersistenceError, match="cannot be copied or sent, because one process writes there at a time"):
        copy.deepcopy(pair.kept)
    copy.deepcopy(pair.twin)
    pair.close()
