"""The file of the errors of transitions that are not in memory: kept, or refused where priorities would be others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import PersistentEpisodicBuffer
from storages.persistent import DamageError, repair
from storages.persistent.episodes.cold_priorities import NAME, ColdPriorities
from tests.support.episodic import buffer, updated
from tests.support.model import Stream, contents

PRIORITISED: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01}
ERRORS = np.array([0.5, np.nan, 2.0], np.float32)


def written(directory: Path, errors: Any = ERRORS) -> ColdPriorities:
    known = ColdPriorities(7)
    known.put(7, errors)
    known.write(directory, 7 + len(errors), durable=False)
    return known


def test_errors_are_read_as_they_were_written(tmp_path: Path) -> None:
    checksum = written(tmp_path).checksum
    for expected in (None, checksum):
        read = ColdPriorities.read(tmp_path, expected)
        assert np.array_equal(read.get(6, 5), [np.nan, *ERRORS, np.nan], equal_nan=True)
        assert read.checksum == checksum


def test_a_missing_file_holds_no_errors_unless_one_was_written(tmp_path: Path) -> None:
    assert np.isnan(ColdPriorities.read(tmp_path).get(7, 3)).all()
    with pytest.raises(DamageError, match=rf"{NAME} is missing, from which priorities follow.*repair"):
        ColdPriorities.read(tmp_path, 1)


@pytest.mark.parametrize(
    "lost", [lambda content: content[:-3], lambda content: bytes(len(content))], ids=["end", "all"]
)
def test_a_file_torn_by_a_power_cut_is_left_out_with_a_warning(lost: Any, tmp_path: Path) -> None:
    checksum = written(tmp_path).checksum
    path = tmp_path / NAME
    path.write_bytes(lost(path.read_bytes()))
    with pytest.warns(UserWarning, match="is truncated, as after a power cut"):
        known = ColdPriorities.read(tmp_path)
    assert np.isnan(known.get(7, 3)).all()
    # A buffer that was closed had it on disk as a whole.
    with pytest.raises(DamageError, match="is damaged, from which priorities follow"):
        ColdPriorities.read(tmp_path, checksum)


def test_a_changed_file_is_refused_with_and_without_a_note(tmp_path: Path) -> None:
    checksum = written(tmp_path).checksum
    path = tmp_path / NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for expected in (None, checksum):
        with pytest.raises(DamageError, match="is damaged, from which priorities follow"):
            ColdPriorities.read(tmp_path, expected)


def test_the_file_of_another_moment_is_refused(tmp_path: Path) -> None:
    checksum = written(tmp_path).checksum
    written(tmp_path, ERRORS[:2])
    with pytest.raises(DamageError, match="is not the one that was written last, from which priorities follow"):
        ColdPriorities.read(tmp_path, checksum)


def test_infinite_errors_are_refused(tmp_path: Path) -> None:
    written(tmp_path, np.array([np.inf], np.float32))
    with pytest.raises(DamageError, match="from which priorities follow"):
        ColdPriorities.read(tmp_path)


def test_a_buffer_without_its_errors_is_refused_and_repaired_with_all_episodes(tmp_path: Path) -> None:
    def opened() -> PersistentEpisodicBuffer:
        made: PersistentEpisodicBuffer = buffer(tmp_path, **PRIORITISED)
        return made

    storage, stream = opened(), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(60):
        storage.insert_transition(stream.step())
    updated(storage, 1)
    before = contents(storage)
    storage.close()
    (tmp_path / NAME).unlink()
    with pytest.raises(DamageError, match=rf"{NAME} is missing, from which priorities follow"):
        opened()
    assert [text for text in repair(tmp_path).dropped if NAME in text]
    again = opened()
    assert contents(again) == before
    again.close()
