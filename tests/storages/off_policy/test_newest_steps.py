"""``newest_steps`` returns the newest steps of all environments as a batch of sequences, in every replay buffer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, EREBuffer, GAEBuffer, HERBuffer, PERBuffer, ReplayBuffer, Sequences
from storages.errors import EmptyStorageError, PersistenceError
from storages.transition import (
    ACT,
    DISCOUNT,
    DONE,
    DONE2,
    ERRORS,
    INDICES,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    TRUNC2,
    WEIGHTS,
    WINDOW,
)
from tests.support.episodic import buffer
from tests.support.model import ALGORITHM, GAMMA, KINDS, Stream, environments, equal, replay_buffer
from tests.support.profiles import examples

SIZE = 12


def relabelled(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
    return obs, rhs, obs2, rhs2, rew + 100


WAYS: dict[str, Any] = {
    "uniform": lambda **given: ReplayBuffer.create_factory(**given),
    "prefetch": lambda **given: ReplayBuffer.create_factory(prefetch=2, **given),
    "priority": lambda **given: PERBuffer.create_factory(alpha=0.7, beta=0.5, default_error=1.0, **given),
    "recency": lambda **given: EREBuffer.create_factory(eta=0.999, cmin=6, **given),
    "hindsight": lambda **given: HERBuffer.create_factory(her_function=relabelled, her_ratio=1.0, **given),
}
WINDOWS: dict[str, Any] = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "episodes": Episodes(packed=True, whole=False),
}


@settings(max_examples=examples(30), deadline=None)
@given(
    way=st.sampled_from(list(WAYS)),
    window=st.sampled_from(list(WINDOWS)),
    kind=st.sampled_from([kind for kind in KINDS if kind != "frames"]),
    recurrent=st.booleans(),
    inserted=st.integers(1, 30),
    steps=st.integers(1, 15),
    seed=st.integers(0, 10**6),
)
def test_newest_steps_equal_the_last_inserted_steps(
    way: str, window: str, kind: str, recurrent: bool, inserted: int, steps: int, seed: int
) -> None:
    stream = Stream(2, kind, recurrent, np.random.default_rng(seed))
    storage = WAYS[way](size=SIZE, sequences=WINDOWS[window])("cpu", None, ALGORITHM, environments(kind, 2))
    storage.seed(0)
    for _ in range(inserted):
        storage.insert_transition(stream.step())
    if inserted > 4:
        next(storage.generate_batches(3, 2))
    batch = storage.newest_steps(steps)
    steps = min(steps, inserted, SIZE)
    stored = storage.get_data_slice(min(inserted, SIZE) - steps, min(inserted, SIZE))
    for key in (OBS, OBS2, ACT, REW, DONE2, TRUNC2):
        one, other = ({"": each[key]} if torch.is_tensor(each[key]) else each[key] for each in (batch, stored))
        assert all(torch.equal(part, other[name].view(part.shape).to(part.dtype)) for name, part in one.items())
    assert torch.equal(batch[DISCOUNT], GAMMA * (1 - batch[DONE2]))
    assert batch[MASK].eq(1).all()
    assert batch[WINDOW].eq(1).all()
    assert batch[WEIGHTS].tolist() == [[1.0], [1.0]]
    first = (inserted - steps) * 2
    assert batch[INDICES].tolist() == [[first], [first + 1]]
    assert (batch[DONE] >= stored[DONE]).all()
    if kind == "vector":
        # After an interruption of the stream, the recurrent state is reset.
        goes_on = (batch[OBS2][:-1] == batch[OBS][1:]).flatten(2).all(2, keepdim=True)
        assert torch.equal(batch[DONE][1:] == 0, goes_on & (stored[DONE][1:] == 0))
    assert RHS2 not in batch
    if recurrent:
        assert torch.equal(batch[RHS], stored[RHS][0])


def test_errors_of_the_newest_steps_set_their_priorities() -> None:
    storage = PERBuffer.create_factory(size=SIZE, alpha=1.0, beta=1.0, default_error=1.0, sequences=Sequences(3))(
        "cpu", None, ALGORITHM, environments("vector", 2)
    )
    storage.seed(0)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(SIZE):
        storage.insert_transition(stream.step())
    next(storage.generate_batches(1, 2))
    batch = storage.newest_steps(3)
    storage.after_gradients(batch, {ERRORS: torch.full((3, 2, 1), 1e6)})
    (after,) = storage.generate_batches(1, 64)
    assert set(after[INDICES].flatten().tolist()) == set(batch[INDICES].flatten().tolist())


def test_newest_steps_of_an_empty_storage_are_refused() -> None:
    with pytest.raises(EmptyStorageError, match="ReplayBuffer: no batch"):
        replay_buffer(SIZE).newest_steps(3)


def test_storages_without_newest_steps_raise_not_implemented_error() -> None:
    storage = GAEBuffer.create_factory(size=4)("cpu", None, ALGORITHM, None)
    with pytest.raises(NotImplementedError, match="GAEBuffer does not know its newest steps"):
        storage.newest_steps(3)
    assert not storage.knows_newest_steps
    assert ReplayBuffer.knows_newest_steps


@settings(max_examples=examples(30), deadline=None)
@given(
    window=st.sampled_from(list(WINDOWS)),
    kind=st.sampled_from(list(KINDS)),
    recurrent=st.booleans(),
    actions=st.lists(st.sampled_from(["insert"] * 6 + ["flush", "end", "reopen", "newest"]), max_size=40),
    kept=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_newest_steps_of_episodes_on_disk_equal_those_of_a_buffer_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    window: str,
    kind: str,
    recurrent: bool,
    actions: list[str],
    kept: int,
    seed: int,
) -> None:
    def opened() -> Any:
        return buffer(folder, kind, size=30, sequences=WINDOWS[window], alpha=0.5)

    folder = tmp_path_factory.mktemp("episodes") / "replay"
    storage = opened()
    storage.keep_newest_steps(kept)
    model = ReplayBuffer.create_factory(size=100, sequences=WINDOWS[window])(
        "cpu", None, ALGORITHM, environments(kind, 2)
    )
    stream = Stream(2, kind, recurrent, np.random.default_rng(seed))
    for action in ["insert", *actions, "newest"]:
        if action == "insert":
            step = stream.step()
            for one in (storage, model):
                one.insert_transition(step)
        elif action == "flush":
            storage.flush()
        elif action == "end":
            for one in (storage, model):
                one.end_episode()
        elif action == "reopen":
            storage.close()
            # Kept is saved with the steps.
            storage = opened()
        else:
            batch, expected = storage.newest_steps(kept), model.newest_steps(kept)
            assert (batch.pop(INDICES) == -1).all()
            del expected[INDICES]
            assert equal(batch, expected)
            assert storage.after_gradients(batch | {INDICES: torch.full((2, 1), -1)}, {})["storage/row_age"] == 0
    storage.close()


def test_errors_of_the_newest_steps_of_episodes_on_disk_change_no_priority(tmp_path: Path) -> None:
    storage = buffer(tmp_path, sequences=Sequences(2), alpha=1.0, beta=1.0)
    storage.seed(0)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(SIZE):
        storage.insert_transition(stream.step())
    storage.end_episode()
    next(storage.generate_batches(1, 2))
    before = storage.priorities.state_dict()["errors"].clone()
    batch = storage.newest_steps(3)
    storage.after_gradients(batch, {ERRORS: torch.full((3, 2, 1), 1e6)})
    assert torch.equal(storage.priorities.state_dict()["errors"], before)
    storage.close()


def test_newest_steps_of_no_episodes_on_disk_are_refused(tmp_path: Path) -> None:
    storage = buffer(tmp_path)
    with pytest.raises(EmptyStorageError, match="PersistentEpisodicBuffer: no steps are in memory"):
        storage.newest_steps(3)
    storage.insert_transition(Stream(2, "vector", False, np.random.default_rng(0)).step())
    storage.close()
    reader = buffer(tmp_path, read_only=True)
    with pytest.raises(PersistenceError, match="it is read only"):
        reader.newest_steps(3)
    reader.close()


@pytest.mark.parametrize("steps", ["3", 0, 2.5, None])
def test_a_number_of_newest_steps_that_is_no_count_is_refused(steps: Any) -> None:
    storage = ReplayBuffer.create_factory(size=5)("cpu", None, ALGORITHM, None)
    with pytest.raises(ValueError, match="ReplayBuffer: steps must be"):
        storage.newest_steps(steps)
