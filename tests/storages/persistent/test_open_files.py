"""A process that may open no more files: the error names the limit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import storages
from storages import PersistenceError
from tests.support.model import ALGORITHM, Stream, environments
from tests.support.open_files import files_left

KINDS: dict[str, Any] = {
    "steps": lambda directory: storages.PERBuffer.create_factory(
        size=100, alpha=0.5, directory=directory, commit_every=10
    ),
    "episodes": lambda directory: storages.PersistentEpisodicBuffer.create_factory(
        size=100, directory=directory, commit_every=10
    ),
}


def made(kind: str, directory: Path) -> Any:
    storage = KINDS[kind](directory)("cpu", None, ALGORITHM, environments("vector", 2))
    storage.seed(0)
    return storage


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_storage_that_cannot_be_opened_says_how(kind: str, tmp_path: Path) -> None:
    # Opened once before, because what is imported and compiled then reads files.
    for seed in range(2):
        storage = made(kind, tmp_path / "another")
        stream = Stream(2, "vector", False, np.random.default_rng(seed))
        for _ in range(20):
            storage.insert_transition(stream.step())
        storage.close()
    with files_left(0), pytest.raises(PersistenceError, match=r"; close files, of which .* by `ulimit -n \d+`"):
        made(kind, tmp_path / "kept")
