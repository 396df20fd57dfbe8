"""Records and their files: a record is read exactly as it was written, or is reported as corrupt."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.core.ring.snapshot import ArrayKey
from storages.persistent.log import records as blocks
from storages.persistent.log.records import CorruptRange, Record, StoredRecord

FACTS = {"counters": {"generator": 2**127 + 1, "largest": 0.1, "name": "é"}, "none": None}


def block(commit: int, size: int = 3) -> Record:
    arrays: Any = {
        ArrayKey("rows", ("Observation", "a/b")): (np.arange(size * 2.0).reshape(size, 2), np.full((2, 2), commit / 2)),
        ArrayKey("flags"): (np.array([True, False, True]),),
        ArrayKey("nothing"): (np.zeros((0, 4), np.float32),),
        ArrayKey("strided"): (np.arange(24, dtype=np.int16).reshape(4, 6)[:, ::2],),
    }
    return Record(commit, 10 * commit, 10 * commit + 5, FACTS, arrays)


def written(path: Path, *given: Record) -> list[int]:
    """Write records to a file; return their checksums."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    checksums = [blocks.write(file, one)[1] for one in given]
    os.close(file)
    return checksums


def assert_equal(found: Any, expected: Record) -> None:
    assert isinstance(found, StoredRecord)
    one = found.record
    assert (one.commit, one.first, one.steps, one.facts) == (
        expected.commit,
        expected.first,
        expected.steps,
        expected.facts,
    )
    assert one.arrays.keys() == expected.arrays.keys()
    for name, pieces in expected.arrays.items():
        (array,) = one.arrays[name]
        whole = np.concatenate(pieces)
        assert (array.dtype, array.shape) == (whole.dtype, whole.shape)
        assert array.tobytes() == whole.tobytes()


@pytest.mark.parametrize("size", [0, 3, 200_000])
def test_records_are_read_as_they_were_written(size: int, tmp_path: Path) -> None:
    checksums = written(tmp_path / "file", block(1, size), block(2, size))
    found = list(blocks.read(tmp_path / "file"))
    for number, one in enumerate(found):
        assert_equal(one, block(number + 1, size))
    assert [one.checksum for one in found if isinstance(one, StoredRecord)] == checksums
    assert [one.end for one in found][-1] == (tmp_path / "file").stat().st_size


@pytest.mark.parametrize("junk", [b"x" * 3, b"x" * 500, b"\x89records" + b"x" * 100, bytes(4096)])
def test_records_behind_corrupt_bytes_are_found(junk: bytes, tmp_path: Path) -> None:
    written(tmp_path / "one", block(1))
    one = (tmp_path / "one").read_bytes()
    (tmp_path / "file").write_bytes(one + junk + one)
    first, flaw, second = blocks.read(tmp_path / "file")
    assert_equal(first, block(1))
    assert_equal(second, block(1))
    assert isinstance(flaw, CorruptRange)
    assert (flaw.begin, flaw.end, flaw.cut) == (len(one), len(one) + len(junk), False)


def test_complete_records_of_a_truncated_file_are_read_and_the_rest_is_cut(tmp_path: Path) -> None:
    written(tmp_path / "file", block(1), block(2))
    data = (tmp_path / "file").read_bytes()
    half = len(data) // 2
    for length in range(half, len(data)):
        (tmp_path / "file").write_bytes(data[:length])
        first, *rest = blocks.read(tmp_path / "file")
        assert_equal(first, block(1))
        assert [isinstance(one, CorruptRange) and one.cut and one.begin == half for one in rest] == [True] * (
            length > half
        )


@pytest.mark.parametrize("synced", [0, 64, 100, 300])
def test_a_last_record_that_ends_in_zeros_is_reported_as_cut(synced: int, tmp_path: Path) -> None:
    written(tmp_path / "file", block(1), block(2))
    data = (tmp_path / "file").read_bytes()
    half = len(data) // 2
    (tmp_path / "file").write_bytes(data[: half + synced] + bytes(half - synced))
    first, *rest = blocks.read(tmp_path / "file")
    assert_equal(first, block(1))
    assert [isinstance(one, CorruptRange) and one.cut and one.begin == half for one in rest] == [True]


# Files
