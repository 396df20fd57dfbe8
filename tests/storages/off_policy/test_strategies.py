"""Every sampler with every window: each row of each batch equals that of a reference model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from storages import (
    Episodes,
    EREBuffer,
    HERBuffer,
    NStepReplayBuffer,
    PERBuffer,
    ReplayBuffer,
    Sequences,
    Storage,
)
from storages.transition import (
    DISCOUNT,
    DONE2,
    ERRORS,
    OBS,
    OBS2,
    REW,
    WEIGHTS,
)
from tests.support.model import ALGORITHM, GAMMA, Model, Stream, contents, environments, equal, through_a_file
from tests.support.windows_model import Episodic, arrays, assert_transitions, assert_windows

PRIORITIES = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY = {"eta": 0.999, "cmin": 6}
RANKS = PRIORITIES | RECENCY | {"prioritization": "rank", "uniform_share": 0.3, "error_min": 0.1, "error_max": 2.0}


def unchanged(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
    assert len(rew) == len(initial_state if not isinstance(initial_state, dict) else next(iter(initial_state.values())))
    return obs, rhs, obs2, rhs2, rew


WAYS: dict[str, Any] = {
    "plain": lambda **kwargs: ReplayBuffer.create_factory(**kwargs),
    "uniform": lambda n_step, **kwargs: NStepReplayBuffer.create_factory(n_step=n_step, **kwargs),
    "priority": lambda n_step, **kwargs: PERBuffer.create_factory(n_step=n_step, **PRIORITIES, **kwargs),
    "recency": lambda n_step, **kwargs: EREBuffer.create_factory(n_step=n_step, **RECENCY, **kwargs),
    "priority and recency": lambda n_step, **kwargs: EREBuffer.create_factory(
        n_step=n_step, **PRIORITIES, **RECENCY, **kwargs
    ),
    "without replacement": lambda n_step, **kwargs: EREBuffer.create_factory(
        n_step=n_step, draws="without replacement", **RECENCY, **kwargs
    ),
    "passes": lambda n_step, **kwargs: NStepReplayBuffer.create_factory(n_step=n_step, draws="passes", **kwargs),
    "ranks": lambda n_step, **kwargs: EREBuffer.create_factory(n_step=n_step, **RANKS, **kwargs),
} | {
    # This function returns its input, so that relabelled rows still equal the inserted ones.
    f"{name} and hindsight": lambda n_step, own=own, **kwargs: HERBuffer.create_factory(
        her_function=unchanged, her_ratio=0.7, n_step=n_step, **own, **kwargs
    )
    for name, own in {
        "uniform": {},
        "priority": PRIORITIES,
        "recency": RECENCY,
        "priority and recency": PRIORITIES | RECENCY,
        "ranks": RANKS,
    }.items()
}


def made(
    way: str,
    n_step: int,
    size: int = 12,
    seed: int = 0,
    envs: Any = None,
    sequences: Sequences | Episodes | None = None,
) -> Storage:
    hyper_parameters = {"size": size, "sequences": sequences} | ({} if way == "plain" else {"n_step": n_step})
    storage: Storage = WAYS[way](**hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


WINDOWS: dict[str, Sequences | Episodes | None] = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "overlapping sequences": Sequences(4, overlap=1, across_episodes=True),
    "episodes": Episodes(),
    "packed episodes": Episodes(packed=True),
    "pieces of episodes": Episodes(longest=3, whole=False),
    "random pieces of episodes": Episodes(max_steps=3),
}
KINDS = ("vector", "frames", "dict", "image", "dict of frames")


def cases() -> Iterator[tuple[str, int, str, str, int]]:
    """Every way with every window, each once, so that each pair with a number of steps or a kind occurs, too."""
    for row, way in enumerate(WAYS):
        for column, window in enumerate(WINDOWS):
            n_step = 1 if way == "plain" or (row + column) % 2 else 3
            yield way, n_step, window, KINDS[(row + 2 * column) % len(KINDS)], 1 if (row + column) % 3 == 2 else 4


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize(("way", "n_step", "window", "kind", "num_envs"), list(cases()))
def test_every_sampler_with_every_window_draws_the_inserted_steps(
    way: str, n_step: int, window: str, kind: str, num_envs: int
) -> None:
    sequences, envs = WINDOWS[window], environments(kind, num_envs)
    storage, episodic = made(way, n_step, envs=envs, sequences=sequences), Episodic(Model(12), num_envs)
    random = np.random.default_rng(3)
    stream = Stream(num_envs, kind, True, random)
    for step in range(45):
        sample = stream.step()
        storage.insert_transition(sample)
        episodic.insert(sample)
        if step % 7 == 3:
            for batch in storage.generate_batches(2, 4):
                assert_windows(episodic, batch, sequences, n_step)
                errors = torch.from_numpy(random.exponential(size=batch[REW].shape))
                storage.after_gradients(batch, {ERRORS: errors})
        if step == 19:
            for one in (storage, stream, episodic.model):
                one.end_episode([0, num_envs - 1])
        if step == 26:
            state = through_a_file(storage.state_dict())
            storage = made(way, n_step, seed=1, envs=envs, sequences=sequences)
            storage.load_state_dict(state)


@pytest.mark.parametrize("way", WAYS)
def test_incompatible_hyper_parameters_are_refused(way: str) -> None:
    if way == "plain":
        with pytest.raises(TypeError, match="ReplayBuffer: unknown hyper-parameter 'n_step'"):
            ReplayBuffer.create_factory(size=12, n_step=3)
    else:
        with pytest.raises(ValueError, match="n_step must be 1, got 3: windows reach beyond a piece"):
            made(way, 3, sequences=Episodes(longest=3, packed=True))
        storage = made(way, 1, sequences=Episodes(longest=3, packed=True))
        with pytest.raises(ValueError, match="n_step must be 1, got 3: windows reach beyond a piece"):
            storage.update_storage_parameter("n_step", 3)
    with pytest.raises(ValueError, match="size must be at least 6 to draw Sequences"):
        made(way, 1, size=5, sequences=Sequences(6))
    with pytest.raises(ValueError, match="size must be at least 6 to draw Episodes"):
        made(way, 1, size=5, sequences=Episodes(longest=6))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_n_step_can_be_changed_while_the_storage_is_in_use(way: str) -> None:
    storage, model = made(way, 1), Model(12)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(30):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    for n_step in (5, 2, 100, 1):
        storage.update_storage_parameter("n_step", n_step)
        (batch,) = storage.generate_batches(1, 64)
        assert_transitions(model, arrays(batch), 2, n_step)
    with pytest.raises(ValueError, match="n_step must be at least 1, got 0"):
        storage.update_storage_parameter("n_step", 0)


def test_n_step_returns_of_a_constant_reward_of_one_equal_the_sum_of_the_discounts() -> None:
    storage = made("uniform", 4, size=50)
    for step in range(40):
        storage.insert_transition(
            {
                OBS: np.full((1, 1), step, np.float32),
                "Done": np.full((1, 1), step == 0),
                "Action": np.zeros((1, 1), np.int64),
                REW: np.ones((1, 1), np.float32),
                OBS2: np.full((1, 1), step + 1, np.float32),
                DONE2: np.zeros((1, 1), bool),
            }
        )
    (batch,) = storage.generate_batches(1, 500)
    steps = (batch[OBS2] - batch[OBS])[:, 0].numpy()
    assert set(steps) == {1, 2, 3, 4}  # the newest steps have fewer ahead of them
    np.testing.assert_allclose(batch[REW][:, 0], (1 - GAMMA**steps) / (1 - GAMMA), rtol=1e-5)
    np.testing.assert_allclose(batch[DISCOUNT][:, 0], GAMMA**steps, rtol=1e-5)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("way", WAYS)
def test_a_loaded_storage_draws_the_same_batches_as_the_saved_one(way: str) -> None:
    storage, stream = made(way, 1), Stream(2, "vector", False, np.random.default_rng(0))
    random = np.random.default_rng(5)

    def train(one: Storage, errors: Any) -> Any:
        batches = []
        for batch, error in zip(one.generate_batches(4, 8), errors, strict=True):
            one.after_gradients(batch, {ERRORS: error})
            batches.append(batch)
        return dict(enumerate(batches))

    for _ in range(20):
        storage.insert_transition(stream.step())
        train(storage, torch.from_numpy(random.exponential(size=(4, 8, 1))))
    loaded = made(way, 1, seed=9)
    loaded.load_state_dict(through_a_file(storage.state_dict()))
    for _ in range(15):
        sample, errors = stream.step(), torch.from_numpy(random.exponential(size=(4, 8, 1)))
        for one in (storage, loaded):
            one.insert_transition(sample)
        assert equal(train(storage, errors), train(loaded, errors))
    assert contents(storage) == contents(loaded)


@pytest.mark.parametrize("way", ["uniform", "priority", "recency", "priority and recency", "ranks"])
def test_without_priorities_and_recency_every_storage_draws_the_uniform_batches(way: str) -> None:
    plain, other = made("plain", 1), made(way, 1)
    for name, value in (("alpha", 0.0), ("eta", 1.0), ("n_step", 1)):
        if hasattr(other, name):
            other.update_storage_parameter(name, value)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(20):
        sample = stream.step()
        plain.insert_transition(sample)
        other.insert_transition(sample)
        one, two = (next(iter(storage.generate_batches(1, 8))) for storage in (plain, other))
        assert equal(one, two)
        assert (one[WEIGHTS] == 1).all()
