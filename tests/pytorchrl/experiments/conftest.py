"""Finished runs, which tests of this folder only read."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.finished_runs import trained


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes the folder of a finished run, once for each composition; tests only read it."""

    @functools.cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "run"
        trained(name, folder).close()
        return folder

    return make
