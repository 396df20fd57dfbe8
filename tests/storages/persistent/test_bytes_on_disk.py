"""Files of a closed storage of episodes: each episode is stored once, compressed or, if unfinished, in the log."""

from pathlib import Path

import numpy as np
import pytest

from storages.persistent.log.records import StoredRecord, read
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import Stream


@pytest.mark.long
@pytest.mark.parametrize("kind", ["vector", "frames"])
def test_after_closing_the_log_has_only_the_steps_of_unfinished_episodes(kind: str, tmp_path: Path) -> None:
    model, stream = EpisodesModel(5_000), Stream(2, kind, False, np.random.default_rng(0))
    storage = buffer(tmp_path, kind, size=5_000)
    for _ in range(2):
        for _ in range(600):
            sample = stream.step()
            storage.insert_transition(sample)
            model.insert(sample)
        storage.close()
        running = max(map(len, model.running.values()))
        reached_back_to = max(storage.ring.stacked.values(), default=1) - 1
        assert running <= logged_steps(tmp_path / "wal") <= running + reached_back_to < 100
        storage = buffer(tmp_path, kind, size=5_000)
        model.assert_holds(storage)
    storage.close()


def logged_steps(directory: Path) -> int:
    found = (found for path in sorted(directory.glob("*.steps")) for found in read(path))
    return sum(one.record.steps - one.record.first for one in found if isinstance(one, StoredRecord))
