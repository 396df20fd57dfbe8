"""What a directory says of its storage: other places, other observations and crafted fields are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import PersistentEpisodicBuffer, ReplayBuffer
from storages.persistent import PersistenceError, repair
from storages.persistent.log.manifest import count_of, layout_of
from storages.persistent.replay.ring_manifest import RingManifest
from tests.support.model import ALGORITHM, Stream, environments


def made(cls: Any, directory: Path, kind: str = "vector") -> Any:
    return cls.create_factory(size=20, directory=directory)("cpu", None, ALGORITHM, environments(kind, 2))


@pytest.mark.parametrize("cls", [ReplayBuffer, PersistentEpisodicBuffer])
def test_a_file_that_took_the_place_of_the_directory_is_refused_and_kept(cls: Any, tmp_path: Path) -> None:
    factory = cls.create_factory(size=20, directory=tmp_path / "kept")
    (tmp_path / "kept").write_text("mine")
    with pytest.raises((PersistenceError, OSError), match="kept"):
        factory("cpu", None, ALGORITHM, environments("vector", 2))
    assert (tmp_path / "kept").read_text() == "mine"


@pytest.mark.parametrize(
    ("cls", "other"), [(ReplayBuffer, PersistentEpisodicBuffer), (PersistentEpisodicBuffer, ReplayBuffer)]
)
def test_the_directory_of_a_storage_of_another_kind_is_refused(cls: Any, other: Any, tmp_path: Path) -> None:
    storage, stream = made(cls, tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(5):
        storage.insert_transition(stream.step())
    storage.close()
    with pytest.raises(PersistenceError, match="holds a storage of another kind"):
        made(other, tmp_path)
    again = made(cls, tmp_path)
    again.close()


@pytest.mark.parametrize(
    ("leaf", "message"),
    [
        ([[".."], "float32", [3]], "is no name of a field"),
        ([[""], "float32", [3]], "is no name of a field"),
        ([[], "float32", [3]], "is no name of a field"),
        ([["Reward", 1], "float32", [3]], "is no name of a field"),
        ([["Reward"], "O", [3]], "is said to be"),
        ([["Reward"], "float32", [-3]], "is said to be"),
        ([["Reward"], "float32", [True]], "is said to be"),
    ],
    ids=str,
)
def test_a_field_that_no_storage_has_is_refused(leaf: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout_of({"layout": [leaf]})


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "3"])
def test_a_count_that_is_no_positive_number_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match="size is"):
        count_of({"size": count}, "size")


def test_without_an_intact_log_file_repair_does_not_rebuild_a_damaged_manifest(tmp_path: Path) -> None:
    storage, stream = made(ReplayBuffer, tmp_path), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(5):
        storage.insert_transition(stream.step())
    storage.close()
    manifest = tmp_path / RingManifest.name
    manifest.write_bytes(manifest.read_bytes()[:-5])
    for log in tmp_path.glob("*.steps"):
        log.write_bytes(bytes(len(log.read_bytes())))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(PersistenceError, match="no log file is intact to rebuild it from; nothing was changed"):
        repair(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
