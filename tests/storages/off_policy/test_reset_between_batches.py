"""After a reset between two batches of an update phase, no batch contains removed steps."""

from typing import Any

import numpy as np
import pytest

from storages import EmptyStorageError, Episodes, PERBuffer, ReplayBuffer, Sequences, Storage
from storages.transition import OBS
from tests.support.model import ALGORITHM, Stream, environments

STORAGES: dict[str, Any] = {
    "transitions": ReplayBuffer.create_factory(size=10),
    "prefetched batches": ReplayBuffer.create_factory(size=10, prefetch=2),
    "sequences": ReplayBuffer.create_factory(size=10, sequences=Sequences(2)),
    "episodes": ReplayBuffer.create_factory(size=10, sequences=Episodes()),
    "priorities": PERBuffer.create_factory(size=10, alpha=0.6),
}


def made(name: str) -> tuple[Storage, Stream]:
    """A storage after thirty insertions, and the stream of the inserted steps."""
    storage = STORAGES[name]("cpu", None, ALGORITHM, environments("vector", 1))
    stream = Stream(1, "vector", False, np.random.default_rng(0))
    for _ in range(30):
        storage.insert_transition(stream.step())
    return storage, stream


@pytest.mark.parametrize("name", STORAGES)
def test_a_batch_requested_after_a_reset_is_refused(name: str) -> None:
    storage, _ = made(name)
    batches = storage.generate_batches(4, 4)
    next(batches)
    storage.reset()
    with pytest.raises(EmptyStorageError, match="no batch can be made of an empty storage"):
        next(batches)


@pytest.mark.parametrize("name", STORAGES)
def test_batches_after_a_reset_contain_only_steps_inserted_since_then(name: str) -> None:
    storage, stream = made(name)
    batches = storage.generate_batches(4, 4)
    next(batches)
    storage.reset()
    samples = [stream.step() for _ in range(30)]
    for sample in samples:
        storage.insert_transition(sample)
    inserted = np.concatenate([sample[OBS] for sample in samples])
    drawn = next(batches)[OBS].numpy().reshape(-1, inserted.shape[1])
    assert all((row == inserted).all(1).any() for row in drawn)
