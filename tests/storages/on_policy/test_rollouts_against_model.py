"""For arbitrary rollouts, returns and advantages equal their definitions."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import GAEBuffer, VanillaOnPolicyBuffer
from storages.transition import ADV, DONE, LOGP, OBS, OBS2, RET, REW, RHS, RHS2, VAL
from tests.support.model import KINDS, Sample, Stream, assert_slice_is, equal, map_leaves
from tests.support.profiles import examples
from tests.support.rollouts import SummingActor, buffer, expected, summed


def valued(sample: Sample, number: int) -> Sample:
    """The sample with values, and with a unique number of each transition as its log probability."""
    seen = {key: value for key, value in sample.items() if key in (OBS, RHS)}
    own = np.arange(len(sample[DONE]), dtype=np.float32)[:, None]
    return sample | {VAL: summed(seen), LOGP: own + 100 * number}


def assert_prepared(storage: Any, steps: list[Sample], gamma: float, gae_lambda: float | None) -> None:
    data = storage.get_all_buffer_data()
    for t in range(len(steps)):
        for env in range(storage.num_envs):
            found = {key: data[key][t, env].item() for key in (RET, ADV)}
            assert found == pytest.approx(expected(steps, t, env, gamma, gae_lambda), rel=1e-4, abs=1e-4), (t, env)
    assert_slice_is({key: value for key, value in data.items() if key not in (RET, ADV)}, steps)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    size=st.integers(1, 8),
    num_envs=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    recurrent=st.booleans(),
    gamma=st.sampled_from([0.0, 0.9, 1.0]),
    gae_lambda=st.sampled_from([None, 0.0, 0.5, 0.95, 1.0]),
    fills=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    check_every_step=st.booleans(),
    when_full=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_returns_and_advantages_equal_their_definitions(
    size: int,
    num_envs: int,
    kind: str,
    recurrent: bool,
    gamma: float,
    gae_lambda: float | None,
    fills: list[int],
    check_every_step: bool,
    when_full: bool,
    seed: int,
) -> None:
    own = {} if gae_lambda is None else {"gae_lambda": gae_lambda}
    cls, asked_for = VanillaOnPolicyBuffer if gae_lambda is None else GAEBuffer, {VAL} if when_full else set()
    storage = buffer(cls, size, gamma, SummingActor(), values_when_full=asked_for, **own)
    stream, number = Stream(num_envs, kind, recurrent, np.random.default_rng(seed)), 0
    for fill in fills:
        # The stream continues from one rollout to the next; a rollout need not be full.
        steps: list[Sample] = []
        for _ in range(min(fill, size)):
            sample = valued(stream.step(), number)
            storage.insert_transition({key: value for key, value in sample.items() if key not in asked_for})
            steps.append(map_leaves(sample, np.array))
            number += 1
            if check_every_step:
                storage.before_gradients()
                assert_prepared(storage, steps, gamma, gae_lambda)
        storage.before_gradients()
        assert_prepared(storage, steps, gamma, gae_lambda)
        pieces = num_envs if recurrent else len(storage)
        batches = list(storage.generate_batches(min(3, pieces), None, 2))
        own_numbers = sorted(float(value) for sample in steps for value in sample[LOGP][:, 0])
        half = len(batches) // 2
        for epoch in (batches[:half], batches[half:]):
            assert sorted(torch.cat([batch[LOGP].flatten() for batch in epoch]).tolist()) == own_numbers
        if recurrent:
            assert_sequences_are_whole(storage, batches, len(steps))
        else:
            _assert_rows_are_whole(storage, batches)
        storage.reset()
        assert len(storage) == 0


def _assert_rows_are_whole(storage: Any, batches: list[Sample]) -> None:
    data = storage.get_all_buffer_data()
    flat = map_leaves(data, lambda leaf: leaf.flatten(0, 1))
    place = {number: row for row, number in enumerate(flat[LOGP][:, 0].tolist())}
    for batch in batches:
        rows = torch.tensor([place[number] for number in batch[LOGP][:, 0].tolist()])
        assert equal(batch, map_leaves(flat, lambda leaf, rows=rows: leaf[rows]))


def assert_sequences_are_whole(storage: Any, batches: list[Sample], length: int) -> None:
    flat = map_leaves(storage.get_all_buffer_data(), lambda leaf: leaf.flatten(0, 1))
    place = {number: row for row, number in enumerate(flat[LOGP][:, 0].tolist())}
    for batch in batches:
        assert RHS2 not in batch
        rows = torch.tensor([[place[number] for number in step] for step in batch[LOGP][..., 0].tolist()])
        assert len(rows) == length
        assert (rows[1:] - rows[:-1] == storage.num_envs).all(), "each sequence is of one environment, in its order"
        assert torch.equal(batch[RHS], flat[RHS][rows[0]])
        for key in batch.keys() - {RHS, DONE}:
            assert equal(batch[key], map_leaves(flat[key], lambda leaf, rows=rows: leaf[rows])), key
        anew = flat[DONE][rows]
        for step, sequence in np.ndindex(len(rows) - 1, rows.shape[1]):
            if not continues(flat, int(rows[step, sequence]), int(rows[step + 1, sequence])):
                anew[step + 1, sequence] = 1
        assert torch.equal(batch[DONE], anew)


def continues(flat: Sample, row: int, following: int) -> bool:
    """Whether a transition begins with the next observation and state of the one before it."""
    return all(
        equal(*(map_leaves(flat[key], lambda leaf, at=at: leaf[at]) for key, at in ((after, row), (before, following))))
        for before, after in ((OBS, OBS2), (RHS, RHS2))
    )


@pytest.mark.parametrize("sequence_length", [1, 2, 4, 8])
def test_a_rollout_of_a_recurrent_actor_is_divided_into_sequences(sequence_length: int) -> None:
    storage = buffer(GAEBuffer, 8, actor=SummingActor(), sequence_length=sequence_length)
    stream = Stream(3, "dict", True, np.random.default_rng(0))
    for number in range(8):
        storage.insert_transition(valued(stream.step(), number))
    storage.before_gradients()
    batches = list(storage.generate_batches(3, None))
    assert_sequences_are_whole(storage, batches, sequence_length)
    assert sum(batch[REW].numel() for batch in batches) == 24
    assert len(list(storage.generate_batches(3, 8))) == 3


@pytest.mark.parametrize("cls", [VanillaOnPolicyBuffer, GAEBuffer])
def test_orders_differ_between_epochs_and_between_seeds(cls: Any) -> None:
    storages = [buffer(cls, 50, actor=SummingActor()) for _ in range(3)]
    for storage, seed in zip(storages, (1, 1, 2), strict=True):
        storage.seed(seed)
        stream = Stream(2, "vector", False, np.random.default_rng(0))
        for number in range(50):
            storage.insert_transition(valued(stream.step(), number))
        storage.before_gradients()
    orders = [[batch[LOGP][:, 0].tolist() for batch in storage.generate_batches(1, None, 3)] for storage in storages]
    assert orders[0] == orders[1] != orders[2]
    assert all(one != two for one, two in pairwise(orders[0]))
    assert all(order != sorted(order) for order in orders[0])
