"""Directories of episodes with correct checksums that were not written by this package."""

import shutil
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs
import numpy as np
import pytest

from storages.core.ring.snapshot import ArrayKey
from storages.persistent import DamageError, PersistenceError, repair
from storages.persistent.log import records as blocks
from storages.persistent.log.records import Record
from tests.support.episodic import buffer, updated
from tests.support.model import Stream

MOST_BYTES = 100 << 20


def filled(directory: Path, kind: str = "vector", **given: Any) -> None:
    stream = Stream(2, kind, False, np.random.default_rng(0))
    storage = buffer(directory, kind, **given)
    for _ in range(60):
        storage.insert_transition(stream.step())
    if given:
        # There are errors from the first draw on.
        next(iter(storage.generate_batches(1, 8)))
    storage.close()


def rewritten(directory: Path, change: Callable[[Record], Record]) -> Path:
    """Change the newest record that holds a segment."""
    path = max(directory.glob("*.segments"))
    found = [one.record for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    copies = [replace(one, arrays={name: (pieces[0].copy(),) for name, pieces in one.arrays.items()}) for one in found]
    newest = max(place for place, one in enumerate(copies) if ArrayKey("lengths") in one.arrays)
    copies[newest] = change(copies[newest])
    with path.open("wb") as file:
        for one in copies:
            blocks.write(file.fileno(), one)
    return path


def with_array(role: str, value: Callable[[Any], Any]) -> Callable[[Record], Record]:
    def change(block: Record) -> Record:
        arrays = {name: (value(pieces[0]),) if name.role == role else pieces for name, pieces in block.arrays.items()}
        return replace(block, arrays=arrays)

    return change


CRAFTED: dict[str, tuple[str, Callable[[Record], Record]]] = {
    "more rows than there are chunks": ("vector", with_array("lengths", lambda array: array * 0 + (1 << 30))),
    "an episode of no steps": ("vector", with_array("lengths", lambda array: array * 0)),
    "an episode of negative length": ("vector", with_array("lengths", lambda array: array * 0 - 5)),
    "a negative number of leading rows": ("vector", with_array("leading", lambda array: array * 0 - 1)),
    "checksums of missing chunks": ("vector", with_array("checksums", lambda array: np.tile(array, 100))),
    "no leading rows": ("vector", with_array("leading", lambda array: array[:0])),
    "a row between two segments": ("vector", lambda block: replace(block, facts=block.facts | {"row": 1})),
    "a row that is a string": ("vector", lambda block: replace(block, facts=block.facts | {"row": "one"})),
    "no live transition": ("vector", lambda block: replace(block, facts=block.facts | {"needed": None})),
    "an unknown padding of stacks": ("frames", with_array("paddings", lambda array: array * 0 + 7)),
    "missing padding frames": ("frames", with_array("paddings", lambda array: array * 0)),
}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("defect", CRAFTED)
def test_a_crafted_record_is_refused_before_memory_is_allocated(defect: str, tmp_path: Path) -> None:
    kind, change = CRAFTED[defect]
    filled(tmp_path, kind)
    path = rewritten(tmp_path, change)
    tracemalloc.start()
    try:
        for read_only in (False, True):
            with pytest.raises(DamageError, match=rf"{path} is damaged, or was not written by .*: commit \d+, .* has "):
                buffer(tmp_path, kind, read_only=read_only)
        # A repair that cannot interpret the record refuses the directory, too.
        with suppress(PersistenceError):
            assert repair(tmp_path).dropped
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an empty state": lambda state: {},
    "watermarks that are strings": lambda state: state | {"watermarks": ["one", "two"]},
    "watermarks that are a number": lambda state: state | {"watermarks": 7},
    "a live transition that is a string": lambda state: state | {"live": "one"},
    "a number of newest steps that is a string": lambda state: state | {"newest": "one"},
    "episodes that ended late of no environment": lambda state: state | {"late": [[1, 7]]},
    "episodes that ended late without a row": lambda state: state | {"late": [["one", 0]]},
    "an invalid generator": lambda state: state | {"generator": {"state": 1}},
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("defect", STATES)
def test_a_crafted_state_in_a_commit_is_refused_by_the_name_of_the_directory(defect: str, tmp_path: Path) -> None:
    filled(tmp_path)
    path = max((tmp_path / "wal").glob("*.steps"))
    blocks_there = [one.record for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    last = replace(
        blocks_there[-1],
        arrays={name: (pieces[0].copy(),) for name, pieces in blocks_there[-1].arrays.items()},
        facts=blocks_there[-1].facts | {"state": STATES[defect](blocks_there[-1].facts["state"])},
    )
    assert len(blocks_there) == 1
    # Without the closing note, which would reveal the change first.
    (tmp_path / "wal" / "closed.json").unlink(missing_ok=True)
    with path.open("wb") as file:
        blocks.write(file.fileno(), last)
    with pytest.raises(DamageError, match=rf"{tmp_path} is damaged, or was not written by this package: \w+Error\("):
        buffer(tmp_path)


def with_errors(directory: Path, change: Callable[[Record], Record]) -> Path:
    """Write changed errors, without the closing note, which would reveal the change first."""
    path = directory / "errors"
    (one,) = (found.record for found in blocks.read(path) if isinstance(found, blocks.StoredRecord))
    whole = replace(one, arrays={name: (pieces[0].copy(),) for name, pieces in one.arrays.items()})
    (directory / "closed.json").unlink()
    with path.open("wb") as file:
        blocks.write(file.fileno(), change(whole))
    return path


def beginning_at(first: int) -> Callable[[Record], Record]:
    return lambda block: replace(block, first=first, steps=min(first + block.steps - block.first, 2**64 - 1))


ERRORS_FILES: dict[str, Callable[[Record], Record]] = {
    "a beginning that overflows": beginning_at(2**64 - 1),
    "a beginning beyond all numbers": beginning_at(2**62),
    "a beginning without the same end": lambda block: replace(block, first=2**40),
    "infinite errors": with_array("errors", lambda array: np.full_like(array, np.inf)),
    "errors of another dtype": with_array("errors", lambda array: np.full(array.shape, 1e300)),
    "errors of two axes": with_array("errors", lambda array: array[:, None]),
    "an error too few": with_array("errors", lambda array: array[1:]),
    "other arrays": lambda block: replace(block, arrays=block.arrays | {ArrayKey("more"): (np.zeros(3),)}),
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("defect", ERRORS_FILES)
def test_crafted_errors_are_refused_by_name_and_a_repair_keeps_all_episodes(defect: str, tmp_path: Path) -> None:
    filled(tmp_path, alpha=0.5)
    path = with_errors(tmp_path, ERRORS_FILES[defect])
    with pytest.raises(DamageError, match=rf"{path} is damaged, or was not written .*repair\(.* keeps all episodes"):
        buffer(tmp_path, alpha=0.5)
    assert [str(path) in one for one in repair(tmp_path).dropped] == [True]
    assert not path.exists()
    storage = buffer(tmp_path, alpha=0.5)
    assert 0 < len(storage) <= 40
    next(iter(storage.generate_batches(1, 8)))
    storage.close()


def test_errors_of_transitions_that_no_longer_exist_are_dropped(tmp_path: Path) -> None:
    filled(tmp_path, alpha=0.5)
    path = with_errors(tmp_path, beginning_at(2**40))
    storage = buffer(tmp_path, alpha=0.5)
    next(iter(storage.generate_batches(1, 8)))
    storage.close()
    (one,) = (found.record for found in blocks.read(path) if isinstance(found, blocks.StoredRecord))
    assert one.steps - one.first >= len(storage)
    assert not np.isnan(one.arrays[ArrayKey("errors")][0][-len(storage) :]).any()


def test_a_buffer_that_was_killed_after_a_rollback_beyond_its_errors_can_be_closed(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path / "kept", alpha=0.5)
    for _ in range(20):
        storage.insert_transition(stream.step())
    saved = storage.state_dict()
    for _ in range(60):
        storage.insert_transition(stream.step())
    updated(storage, 1)
    storage.flush()
    storage.load_state_dict(saved)
    shutil.copytree(tmp_path / "kept", tmp_path / "killed")
    storage.close()
    again = buffer(tmp_path / "killed", alpha=0.5)
    updated(again, 1)
    again.close()
    opened = buffer(tmp_path / "killed", alpha=0.5)
    assert len(opened) == len(again)
    opened.close()


@pytest.mark.parametrize("num_bytes", [8, 256 << 20])
def test_a_chunk_of_another_size_is_refused_before_memory_is_allocated(num_bytes: int, tmp_path: Path) -> None:
    filled(tmp_path)
    content = numcodecs.Blosc("zstd", 1).encode(np.zeros(num_bytes, np.uint8))
    checksum = google_crc32c.value(content)

    def change(block: Record) -> Record:
        path = tmp_path / "episodes" / "Reward" / f"c.{block.facts['row'] // segment_rows}.0"
        assert path.exists()
        path.write_bytes(content + checksum.to_bytes(4, "little"))
        arrays = dict(block.arrays)
        sums = arrays[ArrayKey("checksums", ("Reward",))][0]
        sums[0] = checksum
        return replace(block, arrays=arrays)

    storage = buffer(tmp_path)
    segment_rows = next(
        one.rows for one in storage._directory.flush_queue.archive.manifest.columns if "Reward" in one.leaf
    )
    storage.close()
    rewritten(tmp_path, change)
    tracemalloc.start()
    try:
        with pytest.raises(PersistenceError, match=r"Reward/c\.\d+\.0 (is damaged|holds a wrong number of rows)"):
            buffer(tmp_path, read_only=True)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
