"""Every way of choosing rows with every window: each row of each batch is what the model says it must be."""

from typing import Any

import numpy as np
import pytest
import torch
from model import ALGORITHM, GAMMA, Model, Stream, contents, environments, equal, through_a_file

from storages import EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Storage
from storages.transition import (
    DISCOUNT,
    DONE2,
    ERRORS,
    FLAGS,
    INDICES,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    TRUNC2,
    WEIGHTS,
)

PRIORITIES = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY = {"eta": 0.999, "cmin": 6}


def unchanged(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
    assert len(rew) == len(initial_state if not isinstance(initial_state, dict) else next(iter(initial_state.values())))
    return obs, rhs, obs2, rhs2, rew


WAYS: dict[str, Any] = {
    "plain": lambda **kwargs: ReplayBuffer.create_factory(**kwargs),
    "uniform": lambda n_step, **kwargs: NStepReplayBuffer.create_factory(n_step=n_step, **kwargs),
    "priority": lambda n_step, **kwargs: PERBuffer.create_factory(n_step=n_step, **PRIORITIES, **kwargs),
    "recency": lambda n_step, **kwargs: EREBuffer.create_factory(n_step=n_step, **RECENCY, **kwargs),
    "both": lambda n_step, **kwargs: EREBuffer.create_factory(n_step=n_step, **PRIORITIES, **RECENCY, **kwargs),
} | {
    # Relabelled as what they were, so that every row must be what was inserted all the same.
    f"{name} and hindsight": lambda n_step, own=own, **kwargs: HERBuffer.create_factory(
        her_function=unchanged, her_ratio=0.7, n_step=n_step, **own, **kwargs
    )
    for name, own in {"uniform": {}, "priority": PRIORITIES, "recency": RECENCY, "both": PRIORITIES | RECENCY}.items()
}


def made(way: str, n_step: int, size: int = 12, seed: int = 0, envs: Any = None) -> Storage:
    hyper_parameters = {"size": size} | ({} if way == "plain" else {"n_step": n_step})
    storage: Storage = WAYS[way](**hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


def leaf_of(sample: Any, key: str, env: int) -> Any:
    value = sample[key]
    return {name: part[env] for name, part in value.items()} if isinstance(value, dict) else value[env]


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return all(same(one[name], two[name]) for name in one)
    return np.asarray(one).tobytes() == np.asarray(two).tobytes()


def goes_on(model: Model, step: int, env: int) -> bool:
    """Whether the next step is there and begins where this one led to, in the same episode."""
    if step + 1 not in model.steps:
        return False
    now, following = model.steps[step], model.steps[step + 1]
    ended = now[DONE2][env, 0] or now[TRUNC2][env, 0]
    continued = same(leaf_of(now, OBS2, env), leaf_of(following, OBS, env))
    if RHS in now:
        continued = continued and same(leaf_of(now, RHS2, env), leaf_of(following, RHS, env))
    return bool(not ended and continued and not following["Done"][env, 0])


def assert_rows_are_windows(model: Model, batch: Any, num_envs: int, n_step: int) -> None:
    for row, number in enumerate(batch[INDICES][:, 0].tolist()):
        step, env = divmod(number, num_envs)
        assert step in model.steps
        steps = [step]
        while len(steps) < n_step and goes_on(model, steps[-1], env):
            steps.append(steps[-1] + 1)
        first, last = model.steps[steps[0]], model.steps[steps[-1]]
        for key in first:
            source = last if key in (OBS2, RHS2, DONE2, TRUNC2) else first
            if key == REW and n_step > 1:
                expected = sum(GAMMA**i * float(model.steps[s][REW][env, 0]) for i, s in enumerate(steps))
                assert batch[REW][row, 0].item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
                continue
            value = leaf_of(source, key, env)
            if key in FLAGS:
                value = value.astype(np.float32)
            found = batch[key]
            found = (
                {n: leaf[row].numpy() for n, leaf in found.items()} if isinstance(found, dict) else found[row].numpy()
            )
            assert same(found, value), key
        expected = 0.0 if last[DONE2][env, 0] else GAMMA ** len(steps)
        assert batch[DISCOUNT][row, 0].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("num_envs", [1, 4])
@pytest.mark.parametrize("kind", ["vector", "image", "dict", "frames", "dict of frames"])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_every_strategy_with_every_window_gives_what_was_inserted(
    way: str, n_step: int, kind: str, num_envs: int
) -> None:
    if way == "plain" and n_step > 1:
        pytest.skip("ReplayBuffer has no n-step returns; NStepReplayBuffer has")
    envs = environments(kind, num_envs)
    storage, model = made(way, n_step, envs=envs), Model(12)
    random = np.random.default_rng(3)
    stream = Stream(num_envs, kind, True, random)
    for step in range(60):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
        if step % 7 == 3:
            for batch in storage.generate_batches(3, 16):
                assert_rows_are_windows(model, batch, num_envs, n_step)
                info = {ERRORS: torch.from_numpy(random.exponential(size=(16, 1)))}
                storage.after_gradients(batch, info)
        if step == 40:
            state = through_a_file(storage.state_dict())
            storage = made(way, n_step, seed=1, envs=envs)
            storage.load_state_dict(state)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_a_longer_window_can_be_asked_for_while_the_storage_is_in_use(way: str) -> None:
    storage, model = made(way, 1), Model(12)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(30):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    for n_step in (5, 2, 100, 1):
        storage.update_storage_parameter("n_step", n_step)
        (batch,) = storage.generate_batches(1, 64)
        assert_rows_are_windows(model, batch, 2, n_step)
    with pytest.raises(ValueError, match="n_step must be at least 1, got 0"):
        storage.update_storage_parameter("n_step", 0)


def test_a_constant_reward_of_one_gives_the_sum_of_its_discounts() -> None:
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


@pytest.mark.parametrize("way", WAYS)
def test_a_loaded_storage_goes_on_as_the_saved_one_would_have(way: str) -> None:
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


@pytest.mark.parametrize("way", ["uniform", "priority", "recency", "both"])
def test_without_priorities_and_recency_every_storage_is_the_uniform_one(way: str) -> None:
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
