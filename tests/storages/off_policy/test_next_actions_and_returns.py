"""Next actions are those taken after the last step of each window, and returns-to-go those of the episode."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    Episodes,
    EREBuffer,
    GAEBuffer,
    HERBuffer,
    NStepReplayBuffer,
    PERBuffer,
    ReplayBuffer,
    SampleError,
    Sequences,
    Storage,
)
from storages.transition import ACT, ACT2, ERRORS, INDICES, REW, REWC, RTG, TAKEN2
from tests.storages.off_policy.test_her_buffer import GoalStream, History, compute_reward
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import ALGORITHM, KINDS, Model, Stream, environments, replay_buffer, through_a_file, unchanged
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, assert_windows, continues

SIZE = 12
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY: dict[str, Any] = {"eta": 0.999, "cmin": 6}
WINDOWS: dict[str, Sequences | Episodes | None] = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "sequences across episodes": Sequences(4, overlap=1, across_episodes=True),
    "episodes": Episodes(whole=False),
    "packed episodes": Episodes(packed=True, whole=False),
    "pieces of episodes": Episodes(longest=3, whole=False),
}


WAYS: dict[str, Any] = {
    "n steps": lambda **given: NStepReplayBuffer.create_factory(**given),
    "priority": lambda **given: PERBuffer.create_factory(**PRIORITIES, **given),
    "recency": lambda **given: EREBuffer.create_factory(**PRIORITIES, **RECENCY, **given),
    "hindsight": lambda **given: HERBuffer.create_factory(her_function=unchanged, her_ratio=0.7, **given),
}


def made(way: str, envs: Any, **hyper_parameters: Any) -> Storage:
    storage: Storage = WAYS[way](**hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(0)
    storage.include_next_actions()
    if way != "hindsight":
        storage.include_returns_to_go()
    return storage


def assert_batches(episodic: Episodic, storage: Any, random: np.random.Generator) -> None:
    for batch in storage.generate_batches(2, 5):
        assert batch[TAKEN2].dtype == torch.float32
        assert batch[TAKEN2].shape == batch[REW].shape
        assert batch[ACT2].dtype == batch[ACT].dtype
        assert batch[ACT2].shape == batch[ACT].shape
        if REWC in batch:
            assert batch[REWC].dtype == torch.float32
            assert batch[REWC].shape[:-1] == batch[REW].shape[:-1]
        assert_windows(episodic, batch, storage.sequences, storage.n_step)
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=batch[REW].shape))})


@settings(max_examples=examples(60), deadline=None)
@given(
    way=st.sampled_from(sorted(WAYS)),
    n_step=st.sampled_from([1, 2, 3, 100]),
    window=st.sampled_from(sorted(WINDOWS)),
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 3),
    components=st.integers(0, 4),
    recurrent=st.booleans(),
    prefetch=st.sampled_from([0, 1]),
    keep_on_device=st.booleans(),
    parts=st.lists(st.integers(1, 18), min_size=1, max_size=4),
    seed=st.integers(0, 2**20),
)
def test_next_actions_returns_and_components_equal_those_of_a_reference_model(
    way: str,
    n_step: int,
    window: str,
    kind: str,
    num_envs: int,
    components: int,
    recurrent: bool,
    prefetch: int,
    keep_on_device: bool,
    parts: list[int],
    seed: int,
) -> None:
    envs, sequences = environments(kind, num_envs), WINDOWS[window]
    hyper_parameters = {
        "size": SIZE,
        "n_step": n_step,
        "sequences": sequences,
        "prefetch": prefetch,
        "keep_on_device": keep_on_device and way != "hindsight",
    }
    storage, episodic = made(way, envs, **hyper_parameters), Episodic(Model(SIZE), num_envs)
    random = np.random.default_rng(seed)
    # Hindsight knows no components of rewards for other goals.
    stream = Stream(num_envs, kind, recurrent, random, components=0 if way == "hindsight" else components)
    for number, steps in enumerate(parts):
        for _ in range(steps):
            sample = stream.step()
            storage.insert_transition(sample)
            episodic.insert(sample)
        assert_batches(episodic, storage, random)
        if number == 0:
            state = through_a_file(storage.state_dict())
            storage = made(way, envs, **hyper_parameters)
            storage.load_state_dict(state)
        elif number == 1:
            storage = copy.deepcopy(storage)
        assert_batches(episodic, storage, random)


@pytest.mark.parametrize("n_step", [1, 3])
def test_next_actions_returns_and_components_remain_after_a_directory_is_reopened(n_step: int, tmp_path: Path) -> None:
    def opened() -> Any:
        return made("priority", None, size=SIZE, n_step=n_step, directory=tmp_path, commit_every=3)

    storage, episodic = opened(), Episodic(Model(SIZE), 2)
    random = np.random.default_rng(0)
    stream = Stream(2, "vector", False, random, components=3)
    for steps in (7, 20):
        for _ in range(steps):
            sample = stream.step()
            storage.insert_transition(sample)
            episodic.insert(sample)
        storage.close()
        storage = opened()
        assert_batches(episodic, storage, random)
    storage.close()


@pytest.mark.parametrize(
    ("size", "window"),
    [
        (5, "transitions"),
        pytest.param(40, "transitions", marks=pytest.mark.long),
        pytest.param(5, "episodes", marks=pytest.mark.long),
        pytest.param(40, "packed episodes", marks=pytest.mark.long),
    ],
)
def test_next_actions_returns_and_components_on_disk_end_with_the_episode_or_piece(
    size: int, window: str, tmp_path: Path
) -> None:
    sequences = WINDOWS[window]
    given: dict[str, Any] = {"size": size, "n_step": 2, "sequences": sequences, "commit_every": 4}
    stream, model = Stream(2, "frames", True, np.random.default_rng(1), components=3), EpisodesModel(size)
    storage = buffer(tmp_path, "frames", **given)
    for _ in range(3):
        for _ in range(12):
            sample = stream.step()
            storage.insert_transition(sample)
            model.insert(sample)
        storage.close()
        storage = buffer(tmp_path, "frames", **given)
        storage.include_next_actions()
        storage.include_returns_to_go()
        assert_batches(model.windows(), storage, np.random.default_rng(2))
    storage.close()


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("her_ratio", [0.0, 1.0])
def test_relabelled_rows_have_no_return_to_go(her_ratio: float, n_step: int) -> None:
    envs = type("Envs", (), {"num_envs": 2, "compute_reward": staticmethod(compute_reward)})()
    storage = HERBuffer.create_factory(size=15, n_step=n_step, her_ratio=her_ratio)("cpu", None, ALGORITHM, envs)
    storage.include_returns_to_go()
    stream = GoalStream(2, np.random.default_rng(0))
    for _ in range(40):
        storage.insert_transition(stream.step())
    storage.end_episode()
    (batch,) = storage.generate_batches(1, 200)
    assert batch[RTG].isnan().all() if her_ratio else batch[RTG].isfinite().all()


@pytest.mark.parametrize("n_step", [1, 3])
def test_relabelled_rows_have_the_next_action_that_was_taken(n_step: int) -> None:
    envs = type("Envs", (), {"num_envs": 2, "compute_reward": staticmethod(compute_reward)})()
    storage = HERBuffer.create_factory(size=15, n_step=n_step, her_ratio=1.0)("cpu", None, ALGORITHM, envs)
    storage.include_next_actions()
    stream, history = GoalStream(2, np.random.default_rng(0)), History(15)
    for _ in range(40):
        sample = stream.step()
        storage.insert_transition(sample)
        history.insert(sample)
    (batch,) = storage.generate_batches(1, 200)
    for row, number in enumerate(batch[INDICES][:, 0].tolist()):
        step, env = divmod(number, 2)
        last = history.window(step, env, n_step)[-1]
        is_taken = history.goes_on(last, env)
        assert batch[TAKEN2][row].item() == is_taken
        assert batch[ACT2][row].item() == history.steps[last + is_taken][ACT][env].item()


def test_the_newest_step_and_ends_and_interruptions_have_no_next_action() -> None:
    storage = replay_buffer(4)
    storage.include_next_actions()
    stream = Stream(1, "vector", False, np.random.default_rng(0))
    steps = [stream.step() for _ in range(60)]
    for newest, sample in enumerate(steps):
        storage.insert_transition(sample)
        (batch,) = storage.generate_batches(1, 64)
        for number, taken in zip(batch[INDICES][:, 0].tolist(), batch[TAKEN2][:, 0].tolist(), strict=True):
            assert taken == (number < newest and continues(steps[number], steps[number + 1], 0))


def test_next_actions_and_returns_take_no_additional_memory() -> None:
    storage, plain = replay_buffer(50), replay_buffer(50)
    storage.include_next_actions()
    storage.include_returns_to_go()
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(60):
        sample = stream.step()
        storage.insert_transition(sample)
        plain.insert_transition(sample)
    assert storage.nbytes == plain.nbytes
    (one,), (two,) = storage.generate_batches(1, 8), plain.generate_batches(1, 8)
    assert one.keys() - two.keys() == {ACT2, TAKEN2, RTG}
    with pytest.raises(SampleError, match="NextAction"):
        plain.insert_transition(stream.step() | {ACT2: np.zeros((2, 1), np.int64)})


def test_rollouts_have_no_next_actions_and_no_returns_to_go() -> None:
    storage = GAEBuffer.create_factory(size=4)("cpu", None, ALGORITHM, None)
    with pytest.raises(NotImplementedError, match="GAEBuffer does not know the action that followed a transition"):
        storage.include_next_actions()
    with pytest.raises(NotImplementedError, match="GAEBuffer does not know the returns of episodes; ReplayBuffer and"):
        storage.include_returns_to_go()
    assert not GAEBuffer.knows_next_actions
    assert not GAEBuffer.knows_returns_to_go
    assert ReplayBuffer.knows_next_actions
