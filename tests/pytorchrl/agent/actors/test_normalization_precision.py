"""Numbers far from zero are normalised as NumPy does in float64, wherever they are observed, stored or exported."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, RunningNormalization
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.scheme.stored_rewards import RewardNormalization
from storages.transition import OBS
from tests.support import lessons
from tests.support.by_hand import perturb
from tests.support.every_algorithm import ACTIONS, expert_data
from tests.support.exported import exported_actions, skip_without_onnx
from tests.support.training import saved_and_loaded, train

OFFSETS = [0.0, 1e3, -1e6, 1.7e9 + 60, 1.7e12 + 30_000, 1e13]
SPREADS = [1e-3, 1.0, 50.0, 1e6]
PAIRS = [
    # float64 itself must have some hundred steps within the spread.
    (offset, spread)
    for offset in OFFSETS
    for spread in SPREADS
    if spread > 100 * np.spacing(abs(offset))
]
NOW = 1.7e9 + 60
"""A time in seconds since 1970, where float32 has steps of 128."""


def normalised(values: Any, seen: Any) -> Any:
    """Values normalised in float64 by the mean and standard deviation of others."""
    values, seen = np.asarray(values, np.longdouble), np.asarray(seen, np.longdouble)
    return np.clip((values - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -10, 10).astype(np.float64)


@pytest.mark.parametrize(("offset", "spread"), PAIRS)
def test_observations_are_normalised_as_by_numpy_in_float64_whatever_their_offset(offset: float, spread: float) -> None:
    generator = np.random.default_rng(0)
    values = generator.uniform([offset - spread, -spread], [offset + spread, spread], (1_000, 2))
    normalization = ObservationNormalization(spaces.Box(-np.inf, np.inf, (2,), np.float64))
    for rows in np.split(values, [1, 2, 9, 300]):
        normalization.add(torch.from_numpy(rows))
    normalization.use_newest()
    loaded = ObservationNormalization(spaces.Box(-np.inf, np.inf, (2,), np.float64))
    loaded.load_state_dict(saved_and_loaded(normalization.state_dict()))
    for each in (normalization, loaded):
        found = each(torch.from_numpy(values))
        assert found.dtype is torch.float32
        # The mean itself is rounded to a step of float64, which is up to a hundredth of the spread here.
        step = float(np.spacing(abs(offset)))
        np.testing.assert_allclose(found.numpy(), normalised(values, values), rtol=1e-4, atol=1e-5 + 3 * step / spread)


@pytest.mark.parametrize("dtype", [np.int64, np.uint32])
def test_integers_that_float32_does_not_hold_are_normalised_without_rounding(dtype: Any) -> None:
    space = spaces.Box(0, 2**31, (1,), dtype)
    values = np.arange(1_700_000_000, 1_700_000_100, dtype=dtype)[:, None]
    normalization = ObservationNormalization(space, images=True)
    normalization.add(torch.from_numpy(values))
    normalization.use_newest()
    found = normalization(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(found, normalised(values, values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rewards", "returns"])
@pytest.mark.parametrize(("offset", "spread"), PAIRS)
def test_rewards_are_divided_by_numpys_standard_deviation_whatever_their_offset(
    kind: Any, offset: float, spread: float
) -> None:
    rewards = np.random.default_rng(0).uniform(-spread, spread, (200, 3, 1)) + offset
    no_end = np.zeros((3, 1), bool)
    normalization = RewardNormalization(kind, 0.0, 3, clip=1e30)
    continued = RewardNormalization(kind, 0.0, 3, clip=1e30)
    for step, reward in enumerate(rewards):
        if step == 100:
            continued.load_state_dict(saved_and_loaded(normalization.state_dict()))
        found = (normalization if step < 100 else continued)(reward, no_end)
    np.testing.assert_allclose(found, rewards[-1] / rewards.astype(np.longdouble).std().astype(float), rtol=1e-3)


def test_equal_rewards_that_float32_does_not_hold_are_not_scaled() -> None:
    normalization = RewardNormalization("rewards", 0.99, 3)
    for _ in range(50):
        found = normalization(np.full((3, 1), 0.1), np.zeros((3, 1), bool))
    np.testing.assert_array_equal(found, np.float32(0.1))


class Clock(gym.Env[Any, Any]):
    """Observes a time far from 0 that differs by seconds; pays more than float32 can tell apart."""

    def __init__(self, actions: Any, goals: bool = False) -> None:
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        parts = {"observation": box, "achieved_goal": box, "desired_goal": box}
        self.observation_space: Any = spaces.Dict(parts) if goals else box
        self.action_space = actions
        self.goals, self.steps = goals, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen = self._seen()
        paid = NOW + float(self.np_random.normal())
        if self.goals:
            paid = self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {})
        return seen, paid, self.steps >= 5, False, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved - desired, axis=-1)

    def _seen(self) -> Any:
        def drawn() -> Any:
            return self.np_random.normal([NOW, 0.0], [20.0, 0.01])

        return {name: drawn() for name in self.observation_space.spaces} if self.goals else drawn()


def followed(scheme: prl.Scheme) -> list[tuple[torch.dtype, torch.Tensor]]:
    """What each normalisation of an actor is given, and what networks get of it, from now on."""
    found: list[tuple[torch.dtype, torch.Tensor]] = []
    for module in scheme.actor.modules():
        if isinstance(module, ObservationNormalization):
            for part in module.parts:
                part.register_forward_hook(lambda _, given, made: found.append((given[0].dtype, made.detach())))
    return found


@pytest.mark.quick_share(0.1)
@pytest.mark.parametrize("case", lessons.CASES, ids=str)
def test_every_algorithm_sees_seconds_apart_in_times_since_1970(
    case: lessons.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def data(actions: str) -> Path:
        return expert_data(tmp_path, "vector", ACTIONS[actions], Clock(ACTIONS[actions]))

    monkeypatch.setattr(lessons, "Wandering", Clock)
    monkeypatch.setattr(lessons, "_data", data)
    monkeypatch.setitem(lessons.BODY, "normalize_observations", True)
    scheme = lessons.make_scheme(case)
    lessons.learn(scheme, 1)
    found = followed(scheme)
    lessons.learn(scheme, 2)
    scheme.close()
    assert found
    assert {dtype for dtype, _ in found} == {torch.float64}
    spreads = [float(made.reshape(-1, 2)[:, 0].std()) for _, made in found if made[..., 0].numel() >= 8]
    assert not spreads or min(spreads) > 0.1
    assert all(made.dtype is torch.float32 for _, made in found)


def on_policy(memory: Any, **scheme: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4, normalize_observations=True),
        prl.GAEBuffer.create_factory(size=20),
        prl.VecEnv.create_factory(Clock, 2, env_kwargs={"actions": ACTIONS["bounded"]}),
        **scheme,
    )


@pytest.mark.parametrize("memory", [None, "gru", "lstm"])
def test_a_resumed_policy_acts_on_times_as_on_numbers_that_numpy_has_normalised(memory: Any, tmp_path: Path) -> None:
    with prl.Learner(on_policy(memory), 80, tmp_path / "run") as learner:
        learner.run()
    policy = prl.load_policy(tmp_path / "run")
    perturb(policy.algorithm.actor, 1, 0.5)
    normalization = policy.algorithm.actor.normalization
    assert normalization is not None
    part = normalization.parts[0]
    assert isinstance(part, RunningNormalization)
    mean, deviation = part.mean.numpy(), np.sqrt(part.squares.numpy() / float(part.count) + 1e-8)
    plain = TrainedPolicy(copy.deepcopy(policy.algorithm))
    assert plain.algorithm.actor.normalization is not None
    plain.algorithm.actor.normalization.use_scaling([(torch.zeros(2), torch.ones(2))])
    seen = np.random.default_rng(1).normal([NOW, 0.0], [20.0, 0.01], (32, 2))
    actions = policy(seen)
    np.testing.assert_allclose(actions, plain((seen - mean) / deviation), rtol=1e-4, atol=1e-5)
    assert actions.std(0).min() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_an_exported_policy_tells_seconds_apart_in_times_since_1970(suffix: str, tmp_path: Path) -> None:
    with prl.Learner(on_policy(None), 80, tmp_path / "run") as learner:
        learner.run()
    policy = prl.load_policy(tmp_path / "run")
    perturb(policy.algorithm.actor, 1, 0.5)
    skip_without_onnx(suffix)
    path = policy.export(tmp_path / f"policy{suffix}")
    seen = np.random.default_rng(1).normal([NOW, 0.0], [20.0, 0.01], (32, 2))
    (found,) = exported_actions(path, [torch.from_numpy(seen)])
    np.testing.assert_allclose(found, policy(seen), rtol=1e-4, atol=1e-5)
    assert found.std(0).min() > 1e-3


@pytest.mark.parametrize("collection", [None, pytest.param(prl.Overlapped(2), marks=pytest.mark.long)])
def test_rewards_that_float32_cannot_tell_apart_are_normalised_before_rounding(collection: Any) -> None:
    scheme = on_policy(None, normalize_rewards="rewards", collection=collection)
    train(scheme, 200)
    collector: Any = scheme.collector
    count, _, squares = collector._rewards._moments
    scheme.close()
    np.testing.assert_allclose(np.sqrt(squares / count), 1.0, rtol=0.2)


def test_goals_of_hindsight_are_normalised_without_rounding() -> None:
    scheme = prl.Scheme(
        prl.SAC.create_factory(start_steps=40, update_every=10, mini_batch_size=16, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.HERBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(Clock, 2, env_kwargs={"actions": ACTIONS["bounded"], "goals": True}),
    )
    train(scheme, 60)
    found = followed(scheme)
    batch = next(iter(scheme.storage.generate_batches(1, 16)))
    assert {part.dtype for part in batch[OBS].values()} == {torch.float64}
    train(scheme, 120)
    scheme.close()
    assert {dtype for dtype, _ in found} == {torch.float64}
    spreads = [float(made[:, 0].std()) for _, made in found if len(made) == 16]
    assert len(spreads) >= 3 * 2
    assert min(spreads) > 0.1
