"""What holds for all tests: one thread of arithmetic a process, as pytest runs as many processes as there are cores.

With more, the threads of one process wait at every matrix product for a core that another process has, and what takes
seconds takes minutes. Processes that tests start inherit it; it is therefore said before torch is imported.
"""

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch

from tests.support import budget, curves, profiles
from tests.support.curves import drawn_curves

__all__ = ["drawn_curves"]

profiles.load()
curves.stand_in()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Ten thousand tests are made, and stay: a garbage collector that visits them finds nothing.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 4 << 30


def pytest_configure(config: pytest.Config) -> None:
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES:
        # pytest makes tmp_path there, and tempfile its folders, in processes that tests start too: tests of durable
        # storages spend most of their time waiting for a disk.
        for variable in ("PYTEST_DEBUG_TEMPROOT", "TMPDIR"):
            os.environ.setdefault(variable, str(_MEMORY))
    config.pluginmanager.register(budget.Budget(), "budget")


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Initial weights in a test must not depend on the tests that ran before it.
    torch.manual_seed(0)
    if item.get_closest_marker("gpu") is not None and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
