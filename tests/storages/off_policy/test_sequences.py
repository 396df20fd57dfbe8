"""Sequences with every sampler and window: each step equals that of a reference model."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, Sequences, Storage
from storages.transition import (
    DONE,
    DONE2,
    ERRORS,
    INDICES,
    MASK,
    OBS,
    OBS2,
    REW,
    TRUNC2,
    WEIGHTS,
)
from tests.support.model import ALGORITHM, Model, Stream, environments, equal, through_a_file, unchanged
from tests.support.profiles import examples
from tests.support.windows_model import arrays, assert_sequences

SIZE = 16
PRIORITIES = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY = {"eta": 0.999, "cmin": 6}


WAYS: dict[str, Any] = {
    "uniform": lambda **kwargs: NStepReplayBuffer.create_factory(**kwargs),
    "priority": lambda **kwargs: PERBuffer.create_factory(**PRIORITIES, **kwargs),
    "recency": lambda **kwargs: EREBuffer.create_factory(**RECENCY, **kwargs),
    "priority and recency": lambda **kwargs: EREBuffer.create_factory(**PRIORITIES, **RECENCY, **kwargs),
    "hindsight": lambda **kwargs: HERBuffer.create_factory(her_function=unchanged, her_ratio=0.6, **kwargs),
    "hindsight, priority and recency": lambda **kwargs: HERBuffer.create_factory(
        her_function=unchanged, her_ratio=0.6, **PRIORITIES, **RECENCY, **kwargs
    ),
}


def made(way: str, sequences: Sequences, n_step: int = 1, seed: int = 0, envs: Any = None) -> Storage:
    factory = WAYS[way](size=SIZE, n_step=n_step, sequences=sequences)
    storage: Storage = factory("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


@pytest.mark.long
@given(
    way=st.sampled_from(list(WAYS)),
    kind=st.sampled_from(["vector", "image", "dict", "frames", "dict of frames"]),
    recurrent=st.booleans(),
    num_envs=st.integers(1, 4),
    n_step=st.sampled_from([1, 3]),
    length=st.integers(1, 6),
    burn_in=st.integers(0, 3),
    overlap=st.one_of(st.none(), st.integers(0, 5)),
    across_episodes=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(200), deadline=None)
def test_every_step_of_every_sequence_equals_the_inserted_step(
    way: str,
    kind: str,
    recurrent: bool,
    num_envs: int,
    n_step: int,
    length: int,
    burn_in: int,
    overlap: int | None,
    across_episodes: bool,
    seed: int,
) -> None:
    overlap = None if overlap is None else min(overlap, length - 1)
    sequences = Sequences(length, burn_in, overlap, across_episodes)
    envs = environments(kind, num_envs)
    storage, model = made(way, sequences, n_step, seed, envs), Model(SIZE)
    random = np.random.default_rng(seed)
    stream = Stream(num_envs, kind, recurrent, random)
    for step in range(45):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
        if step % 9 in (0, 4):
            for batch in storage.generate_batches(2, 5):
                assert_sequences(model, arrays(batch), num_envs, sequences, n_step)
                storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=(length, 5, 1)))})
        if step == 30:
            state = through_a_file(storage.state_dict())
            loaded = made(way, sequences, n_step, seed + 1, envs)
            loaded.load_state_dict(state)
            assert equal(next(storage.generate_batches(1, 4)), next(loaded.generate_batches(1, 4)))
            storage = loaded


def insert_steps(storage: Storage, steps: int, episode: int = 10**9) -> None:
    for step in range(steps):
        begins, ends = step % episode == 0, step % episode == episode - 1
        storage.insert_transition(
            {
                OBS: np.full((1, 1), step, np.float32),
                DONE: np.full((1, 1), begins),
                "Action": np.zeros((1, 1), np.int64),
                REW: np.ones((1, 1), np.float32),
                OBS2: np.full((1, 1), step + 1, np.float32),
                DONE2: np.full((1, 1), ends),
                TRUNC2: np.zeros((1, 1), bool),
            }
        )


def test_with_an_overlap_sequences_begin_only_at_multiples_of_the_stride() -> None:
    for way in ("uniform", "priority"):
        storage = made(way, Sequences(6, overlap=2))
        insert_steps(storage, 37)
        (batch,) = storage.generate_batches(1, 300)
        # 37 steps went in, the newest 16 stay: 21 to 36; those that begin at 24 and 28 are whole.
        assert set(batch[INDICES][:, 0].tolist()) == {24, 28}


@pytest.mark.parametrize("way", ["uniform", "priority", "recency", "hindsight, priority and recency"])
@pytest.mark.parametrize(("episode", "overlap"), [(7, 2), (3, 0), (5, 5)])
def test_with_an_overlap_every_step_of_every_episode_is_learnt_from(way: str, episode: int, overlap: int) -> None:
    storage: Any = WAYS[way](size=60, sequences=Sequences(6, overlap=overlap))("cpu", None, ALGORITHM, None)
    storage.seed(0)
    insert_steps(storage, 60, episode=episode)
    learnt: set[float] = set()
    for batch in storage.generate_batches(20, 32):
        learnt |= set(batch[OBS][batch[MASK] == 1].tolist())
        starts = batch[INDICES][:, 0].numpy()
        assert (batch[OBS][0, :, 0].numpy() == starts).all()
        assert ((starts % (6 - overlap) == 0) | (starts % episode == 0)).all()
    # The newest steps wait for a whole sequence; recency leaves out the oldest.
    assert learnt >= set(range(60 - 12 if "recency" in way else 0, 54))


def test_an_episode_that_begins_between_two_rows_shares_the_priority_of_the_first() -> None:
    storage: Any = made("priority", Sequences(4, overlap=0))
    insert_steps(storage, 16, episode=6)
    (batch,) = storage.generate_batches(1, 100)
    starts = batch[INDICES][:, 0].tolist()
    assert set(starts) == {0, 4, 6, 8, 12}
    drawn = [starts.index(6)]
    row = {INDICES: batch[INDICES][drawn], WEIGHTS: batch[WEIGHTS][drawn], MASK: batch[MASK][:, drawn]}
    storage.after_gradients(row, {ERRORS: torch.full((4, 1, 1), 50.0)})
    assert storage.priorities.errors_of(4, 5) == 50.0
    assert storage.priorities.errors_of(6, 7) != 50.0


def test_sequence_priorities_mix_the_largest_and_the_mean_error_of_unmasked_steps() -> None:
    storage: Any = made("priority", Sequences(3, eta=0.75))
    storage.update_storage_parameter("epsilon", 0.0)
    storage.update_storage_parameter("alpha", 1.0)
    insert_steps(storage, 16, episode=8)
    (batch,) = storage.generate_batches(1, 400)
    errors = torch.where(batch[MASK] == 1, batch[OBS] + 1, 1e6)
    storage.after_gradients(batch, {ERRORS: -errors})
    expected = {}
    for start in set(batch[INDICES][:, 0].tolist()):
        own = [step + 1 for step in range(start, start + 3) if step // 8 == start // 8]
        expected[start] = 0.75 * max(own) + 0.25 * sum(own) / len(own)
    draws = torch.cat([b[INDICES] for b in storage.generate_batches(200, 100)])[:, 0].numpy()
    found = np.bincount(draws, minlength=16)[sorted(expected)] / len(draws)
    weights = np.array([expected[start] for start in sorted(expected)])
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.01)


def test_shorter_sequences_are_drawn_until_a_whole_sequence_is_stored() -> None:
    storage = made("uniform", Sequences(5, burn_in=2))
    insert_steps(storage, 2)
    (batch,) = storage.generate_batches(1, 3)
    assert batch[INDICES][:, 0].tolist() == [0, 0, 0]
    assert batch[MASK][:, 0, 0].tolist() == [1, 1, 0, 0, 0]


def test_uniform_sequences_have_equal_weights_and_report_row_age_and_replay_ratio() -> None:
    storage = made("uniform", Sequences(4))
    insert_steps(storage, 30)
    (batch,) = storage.generate_batches(1, 8)
    assert (batch[WEIGHTS] == 1).all()
    info = storage.after_gradients(batch, {})
    assert info["storage/row_age"] == pytest.approx(29 - batch[INDICES].double().mean().item())
    assert info["storage/replay_ratio"] == pytest.approx(4 * 8 / 30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "Sequences: length must be at least 1, got 0"),
        ({"length": 4, "burn_in": -1}, "Sequences: burn_in must be at least 0, got -1"),
        ({"length": 4, "overlap": 4}, "Sequences: overlap must be less than length=4, got 4"),
        ({"length": 4, "eta": 2.0}, r"Sequences: eta must lie in \[0, 1\], got 2.0"),
    ],
)
def test_invalid_sequences_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sequences(**arguments)
