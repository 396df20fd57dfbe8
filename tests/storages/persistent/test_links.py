"""A directory from another person may contain symbolic links: no file is read or written through one."""

import os
from pathlib import Path

import numpy as np
import pytest

from storages.files import open_for_append, unfinished, write_atomically
from storages.persistent import PersistenceError
from tests.support.directories import Pair, made
from tests.support.episodic import buffer
from tests.support.model import Stream, environments


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_bytes(b"what matters to me\n")
    return file


def assert_untouched(mine: Path) -> None:
    assert mine.read_bytes() == b"what matters to me\n"


def kept(directory: Path) -> None:
    pair = Pair("priority", directory)
    pair.insert(30)
    pair.update()
    pair.close()


def episodic(directory: Path) -> None:
    storage, stream = buffer(directory, "vector", 2, 40), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(30):
        storage.insert_transition(stream.step())
    storage.close()


def linked(place: Path, to: Path) -> None:
    if place.is_dir():
        place.rename(place.with_name(f"{place.name}-moved"))
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(to)


@pytest.mark.parametrize("name", ["storage.json", "lock", "0000000001.steps", "anything"])
def test_a_storage_directory_that_contains_a_link_is_refused(name: str, tmp_path: Path, mine: Path) -> None:
    directory = tmp_path / "kept"
    kept(directory)
    linked(directory / name, mine)
    with pytest.raises(PersistenceError, match=name.replace(".", r"\.")):
        made("priority", directory, environments("vector", 2))
    assert_untouched(mine)


@pytest.mark.parametrize("name", ["wal", "wal/lock", "episodes", "episodes/Action", "episodes/Action/c/9"])
def test_an_episode_directory_that_contains_a_link_is_refused(name: str, tmp_path: Path, mine: Path) -> None:
    directory = tmp_path / "kept"
    episodic(directory)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = directory / name
    place.parent.mkdir(parents=True, exist_ok=True)
    linked(place, elsewhere if place.is_dir() else mine)
    with pytest.raises(PersistenceError, match="symbolic link"):
        buffer(directory, "vector", 2, 40)
    assert not list(elsewhere.iterdir())
    assert_untouched(mine)


def test_a_link_to_a_directory_can_be_used_as_the_directory(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "kept").symlink_to(tmp_path / "large disk")
    kept(tmp_path / "kept")
    kept_again = made("priority", tmp_path / "kept", environments("vector", 2))
    assert len(kept_again) == 24
    kept_again.close()


def test_a_named_pipe_in_a_directory_is_refused_without_blocking(tmp_path: Path) -> None:
    kept(tmp_path / "kept")
    os.mkfifo(tmp_path / "kept/0000000002.steps")
    with pytest.raises(PersistenceError, match="neither a file nor a folder"):
        made("priority", tmp_path / "kept", environments("vector", 2))


def test_a_link_in_place_of_an_unfinished_file_is_replaced(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "facts.json"
    unfinished(path).symlink_to(mine)
    write_atomically(path, b"{}", durable=True)
    assert path.read_bytes() == b"{}"
    assert not unfinished(path).exists()
    assert_untouched(mine)


def test_a_link_in_place_of_a_file_is_replaced(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "facts.json"
    path.symlink_to(mine)
    write_atomically(path, b"{}")
    assert not path.is_symlink()
    assert_untouched(mine)


def test_appending_through_a_link_is_refused(tmp_path: Path, mine: Path) -> None:
    (tmp_path / "log").symlink_to(mine)
    with pytest.raises(PersistenceError, match="log is a symbolic link"):
        open_for_append(tmp_path / "log")
    assert_untouched(mine)
