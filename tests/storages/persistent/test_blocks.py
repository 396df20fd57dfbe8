"""Records and their files: a record is read exactly as it was written, or is reported as corrupt."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.core.ring.snapshot import ArrayKey
from storages.errors import DamageError
from storages.persistent.log import records as blocks
from storages.persistent.log.log_files import EMPTY_LOG, LogFiles, LogOffset
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


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert list(blocks.read(tmp_path / "file")) == []


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


def test_complete_records_of_a_truncated_file_are_read_and_the_rest_is_reported_as_cut(tmp_path: Path) -> None:
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


def test_a_log_continues_in_new_files_and_deletes_old_ones(tmp_path: Path) -> None:
    log = LogFiles(tmp_path, "steps", durable=False)
    for commit in range(1, 7):
        log.append(block(commit), new_file=commit in (3, 5))
    assert log.numbers() == [1, 3, 5]
    assert [found.record.commit for found, _ in log.read()] == [1, 2, 3, 4, 5, 6]
    log.delete_before(3)
    assert [found.record.commit for found, _ in log.read()] == [3, 4, 5, 6]
    (place,) = (place for found, place in log.read() if found.record.commit == 4)
    assert place.log_file == 3
    log.cut(place)
    assert log.end == place
    log.append(block(5), new_file=False)
    assert [found.record.commit for found, _ in log.read()] == [3, 4, 5]
    log.cut(EMPTY_LOG)
    assert log.numbers() == []
    log.close()


def test_a_reopened_log_continues_after_its_last_complete_record(tmp_path: Path) -> None:
    log = LogFiles(tmp_path, "steps", durable=False)
    log.append(block(1), new_file=False)
    log.close()
    with (tmp_path / "000000000001.steps").open("ab") as file:
        file.write(b"half of a block")
    again = LogFiles(tmp_path, "steps", durable=False)
    ((_, place),) = again.read()
    again.cut(place)
    again.append(block(2), new_file=False)
    again.close()
    assert [found.record.commit for found, _ in again.read()] == [1, 2]


def test_a_failed_write_leaves_the_log_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogFiles(tmp_path, "steps", durable=False)
    log.append(block(1), new_file=False)
    write = os.write

    def fails(file: int, data: Any) -> int:
        write(file, data[:50])
        raise OSError(28, "No space left on device")

    for in_new_file in (False, True):
        with monkeypatch.context() as patched:
            patched.setattr(blocks.os, "write", fails)
            with pytest.raises(OSError, match="No space"):
                log.append(block(2), new_file=in_new_file)
        assert log.numbers() == [1]
        assert [found.record.commit for found, _ in log.read()] == [1]
    log.append(block(2), new_file=False)
    assert [found.record.commit for found, _ in log.read()] == [1, 2]
    log.close()


def test_a_damage_error_names_the_steps_around_the_damage(tmp_path: Path) -> None:
    log = LogFiles(tmp_path, "steps", durable=False)
    for commit in (1, 2, 3):
        log.append(block(commit), new_file=False)
    log.close()
    ends = [place.offset for _, place in log.read()]
    data = bytearray((tmp_path / "000000000001.steps").read_bytes())
    for place, steps in ((ends[0] + 3, "steps 15 to 30"), (ends[0] + 90, "steps 20 to 25"), (ends[1] + 3, "its end")):
        damaged = data.copy()
        damaged[place] ^= 1
        (tmp_path / "000000000001.steps").write_bytes(damaged)
        with pytest.raises(DamageError, match=f"000000000001.steps is damaged from byte .*{steps}"):
            list(log.read())
    assert LogOffset(1, ends[2]) == log.end
