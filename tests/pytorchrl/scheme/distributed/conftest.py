"""One small Ray cluster on this machine for all tests that need one."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    # Socket paths must be short, and paths of pytest's directories are long.
    with TemporaryDirectory(prefix="ray-") as directory:
        ray.init(
            num_cpus=64,
            object_store_memory=100_000_000,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=directory,
        )
        yield
        ray.shutdown()
