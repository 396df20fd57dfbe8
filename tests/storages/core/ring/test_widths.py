"""Compiled code stores, compares and checks all bytes of values of any width."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from storages import ReplayBuffer
from storages.transition import ACT, DONE, DONE2, INDICES, OBS, OBS2, REW, TRUNC2
from tests.support.model import ALGORITHM

NUM_ENVS, SIZE, STEPS = 3, 6, 11
WIDTHS = [*range(1, 26), *range(63, 66), *range(126, 131), 257]


def filled(samples: Iterator[dict[str, Any]]) -> ReplayBuffer:
    storage = ReplayBuffer.create_factory(size=SIZE)("cpu", None, ALGORITHM, None)
    for sample in samples:
        storage.insert_transition(sample)
    return storage


def samples_of(width: int, dtype: type[np.generic] = np.uint8) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(width)
    ended, following = np.ones((NUM_ENVS, 1), np.bool_), np.zeros((NUM_ENVS, width), dtype)
    for _ in range(STEPS):
        begins = generator.integers(0, 256, (NUM_ENVS, width)).astype(dtype)
        sample = {OBS: np.where(ended, begins, following), DONE: ended}
        ended, following = generator.random((NUM_ENVS, 1)) < 0.3, begins[::-1].copy()
        action = generator.integers(0, 256, (NUM_ENVS, width)).astype(dtype)
        sample |= {ACT: action, REW: np.zeros((NUM_ENVS, 1), np.float32), OBS2: following}
        yield sample | {DONE2: ended, TRUNC2: np.zeros_like(ended)}


@pytest.mark.parametrize("width", WIDTHS)
def test_values_of_any_width_are_returned_as_they_were_inserted(width: int) -> None:
    samples = list(samples_of(width))
    storage = filled(iter(samples))
    (batch,) = storage.generate_batches(1, 200)
    for key in (OBS, ACT, OBS2):
        inserted = np.concatenate([sample[key] for sample in samples])
        np.testing.assert_array_equal(batch[key].numpy(), inserted[batch[INDICES][:, 0].numpy()])


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("width", WIDTHS)
def test_an_observation_with_one_other_byte_leaves_the_next_observation_before_it(width: int) -> None:
    for env, position in np.ndindex(NUM_ENVS, width):
        *_, last = samples_of(width)
        last |= {DONE2: np.zeros((NUM_ENVS, 1), np.bool_)}
        storage = filled(iter([last]))
        begins = last[OBS2].copy()
        begins[env, position] ^= 1
        storage.insert_transition(last | {OBS: begins, DONE: last[DONE2]})
        stored = storage.get_all_buffer_data()
        np.testing.assert_array_equal(stored[OBS2][0].numpy(), last[OBS2])
        np.testing.assert_array_equal(stored[OBS][1].numpy(), begins)
