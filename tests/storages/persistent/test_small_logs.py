"""The log of a small ring, which is written anew often enough to stay within three times the ring."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import storages
from storages.transition import ERRORS
from tests.support.model import ALGORITHM, Stream, environments

ENVS, SIZE = 2, 1_000
STORAGES: dict[str, dict[str, Any]] = {"uniform": {}, "n-step": {"n_step": 3}, "priorities": {"alpha": 0.6}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "of", "commit_every"),
    [
        ("vector", "priorities", 20),
        ("image", "uniform", 5_000),
        ("frames", "n-step", 100),
        ("dict", "uniform", 20),
        ("dict of frames", "priorities", 5_000),
        ("vector", "n-step", 5_000),
    ],
)
def test_the_log_stays_within_three_times_the_ring_and_opens_to_the_newest_steps(
    kind: str, of: str, commit_every: int, tmp_path: Path
) -> None:
    cls = storages.PERBuffer if "alpha" in STORAGES[of] else storages.NStepReplayBuffer
    factory = cls.create_factory(size=SIZE, directory=tmp_path / "kept", commit_every=commit_every, **STORAGES[of])
    storage = factory("cpu", None, ALGORITHM, environments(kind, ENVS))
    storage.seed(0)
    stream, most = Stream(ENVS, kind, False, np.random.default_rng(0)), 0
    for step in range(3 * SIZE):
        storage.insert_transition(stream.step())
        if of == "priorities" and step > 40:
            for batch in storage.generate_batches(1, 8):
                storage.after_gradients(batch, {ERRORS: torch.linspace(0.1, 3, 8)[:, None]})
        if step % 10 == 0:
            most = max(most, bytes_in(tmp_path / "kept"))
    # What is measured is a ring that has overwritten its rows twice, not one that is written once.
    assert len(storage) == SIZE * ENVS
    assert 0.5 * storage.nbytes < most < 3 * storage.nbytes
    held = storage.get_all_buffer_data()
    storage.close()
    again = factory("cpu", None, ALGORITHM, environments(kind, ENVS))
    for key, values in again.get_all_buffer_data().items():
        torch.testing.assert_close(values, held[key], rtol=0, atol=0)
    again.close()


def bytes_in(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.steps"):
        # The thread that writes commits deletes files meanwhile.
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
