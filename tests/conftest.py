"""Settings of all tests: one arithmetic thread per process, as pytest runs one process per core.

With more threads, each matrix product waits for cores that other processes use, and tests that take seconds take
minutes. Processes started by tests inherit the variable. It must be set before torch is imported.
"""

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch

from tests.support import budget, curves, profiles, shares
from tests.support.curves import drawn_curves

__all__ = ["drawn_curves"]

profiles.load()
curves.stand_in()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # About ten thousand tests are created and kept: garbage collections during the collection would free nothing.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="K/N", help="run the K-th of N equal shares of the tests, such as 1/3")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Before `-m` selects by the marks.
    shares.mark_long(items)
    if share := config.getoption("share"):
        shares.keep_share(items, share)


_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES:
        # tmp_path and the folders of tempfile are in memory, also in processes started by tests: tests of durable
        # storages would spend most of their time waiting for a disk.
        for variable in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
            os.environ.setdefault(variable, str(_MEMORY))
    config.pluginmanager.register(budget.Budget(), "budget")


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Initial weights in a test must not depend on the tests that ran before it.
    torch.manual_seed(0)
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
