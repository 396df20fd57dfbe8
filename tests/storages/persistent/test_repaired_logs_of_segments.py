"""A buffer of episodes whose log of segments was lost and repaired takes new episodes, and opens again and again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from storages.persistent import PersistenceError, repair
from tests.support.damage import flip
from tests.support.episodic import buffer
from tests.support.model import Stream, contents


def deleted(directory: Path) -> None:
    for path in directory.glob("*.segments"):
        path.unlink()


def flipped_at_the_beginning(directory: Path) -> None:
    flip(min(directory.glob("*.segments")), 4, part=3)


def without_its_end(directory: Path) -> None:
    path = max(directory.glob("*.segments"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("harm", "later", "size"),
    [
        (deleted, 5, 20),
        (flipped_at_the_beginning, 5, 40),
        (without_its_end, 5, None),
        (deleted, 90, None),
        (flipped_at_the_beginning, 0, 20),
        (without_its_end, 20, 20),
        (deleted, 20, 40),
        (flipped_at_the_beginning, 90, None),
        (without_its_end, 90, 40),
    ],
)
def test_a_repaired_buffer_opens_again_after_healthy_use(
    harm: Callable[[Path], None], later: int, size: int | None, tmp_path: Path
) -> None:
    stream, there = Stream(2, "vector", False, np.random.default_rng(0)), tmp_path / "here"
    storage = buffer(there, size=size, alpha=0.5)
    for _ in range(60):
        storage.insert_transition(stream.step())
        storage.flush()
    storage.close()
    harm(there)
    with pytest.raises(PersistenceError, match="repair"):
        buffer(there, size=size, alpha=0.5)
    assert repair(there).dropped
    held = None
    for opened in range(4):
        storage = buffer(there, size=size, alpha=0.5)
        if held is not None:
            assert contents(storage) == held
        for _ in range(later if opened < 2 else 0):
            storage.insert_transition(stream.step())
        storage.flush()
        # A killed process, too, leaves a directory that opens.
        killed = shutil.copytree(there, tmp_path / f"killed {opened}")
        again = buffer(killed, size=size, alpha=0.5)
        assert contents(again) == contents(storage)
        again.close()
        held = contents(storage)
        storage.close()
        assert not repair(there).dropped
