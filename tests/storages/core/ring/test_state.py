"""A state that shares memory equals a copied one, and takes none, but for what lies at the end of a full ring."""

import copy
import io
import tracemalloc
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

import storages
from storages.core.ring.state import sharing_memory
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, Stream, environments

KINDS = ["vector", "image", "frames", "dict", "dict of frames"]


def made(kind: str, size: int | None = None) -> Any:
    factory = storages.PERBuffer.create_factory(size=size, alpha=0.6)
    return factory("cpu", None, ALGORITHM, environments(kind, 2))


def filled(kind: str, steps: int, size: int | None = None) -> tuple[Any, Stream]:
    storage, stream = made(kind, size), Stream(2, kind, False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage, stream


@pytest.mark.parametrize(
    ("kind", "steps", "size"),
    [(kind, steps, size) for size in (None, 40) for kind, steps in zip(KINDS, (1, 30, 64, 100, 100), strict=True)],
)
def test_a_shared_state_is_saved_and_loaded_as_a_copied_one(kind: str, steps: int, size: int | None) -> None:
    storage, stream = filled(kind, steps, size)
    copied, file = storage.state_dict(), io.BytesIO()
    with sharing_memory():
        shared = storage.state_dict()
    torch.save(shared, file)
    file.seek(0)
    loaded = made(kind, size)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert_equal(loaded.state_dict(), copied)
    for _ in range(50):
        sample = stream.step()
        storage.insert_transition(sample)
        loaded.insert_transition(sample)
    assert_equal(loaded.state_dict(), storage.state_dict())


def test_a_shared_state_takes_no_memory_unlike_a_copied_one() -> None:
    storage = storages.ReplayBuffer.create_factory(size=None)("cpu", None, ALGORITHM, None)
    obs, flag = np.zeros((2, 500), np.float32), np.zeros((2, 1), np.bool_)
    for _ in range(2_048):
        step = {OBS: obs, OBS2: obs, DONE: flag, DONE2: flag, TRUNC2: flag}
        storage.insert_transition(step | {ACT: flag.astype(np.int64), REW: obs[:, :1]})
    peaks = []
    for context in (sharing_memory, nullcontext):
        tracemalloc.start()
        with context():
            storage.state_dict()
        peaks.append(tracemalloc.get_traced_memory()[1] / storage.nbytes)
        tracemalloc.stop()
    assert peaks[0] < 0.1 < 0.9 < peaks[1]


def test_a_copied_state_does_not_change_with_the_storage() -> None:
    storage, stream = filled("vector", 20)
    with sharing_memory():
        storage.state_dict()
    before = storage.state_dict()
    again = copy.deepcopy(before)
    for _ in range(100):
        storage.insert_transition(stream.step())
    assert_equal(before, again)
