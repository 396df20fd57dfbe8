"""A rollout with an attached log is kept on disk by the write-ahead log of replay buffers."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from storages import VanillaOnPolicyBuffer
from storages.persistent.replay.ring_log import RingLog
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2, VAL
from tests.support.comparison import assert_equal


def rollout(directory: Path) -> VanillaOnPolicyBuffer:
    actor = SimpleNamespace(value=lambda obs, rhs, done: torch.zeros(len(obs), 1))
    storage = VanillaOnPolicyBuffer.create_factory(size=8)("cpu", actor, SimpleNamespace(gamma=0.9), None)
    storage.observers.attach(RingLog(storage, directory, commit_every=4, durable=False))
    return storage


def insert(storage: VanillaOnPolicyBuffer, steps: int) -> None:
    flag = np.zeros((2, 1), bool)
    for step in range(steps):
        sample = {OBS: np.full((2, 3), step, np.float32), OBS2: np.full((2, 3), step + 1, np.float32)}
        sample |= {ACT: np.full((2, 1), step), REW: np.ones((2, 1), np.float32), VAL: np.zeros((2, 1), np.float32)}
        storage.insert_transition(sample | {DONE: flag | (step == 0), DONE2: flag, TRUNC2: flag})


def test_a_reopened_rollout_with_a_log_has_the_inserted_steps(tmp_path: Path) -> None:
    storage = rollout(tmp_path)
    insert(storage, 6)
    inserted = storage.get_all_buffer_data()
    storage.close()
    again = rollout(tmp_path)
    assert_equal(again.get_all_buffer_data(), inserted)
    again.before_gradients()
    assert len(next(again.generate_batches(1, None))[REW]) == 12
    again.close()
