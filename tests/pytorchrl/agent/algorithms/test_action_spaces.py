"""Algorithms act in all action spaces that they support, and their errors about others name a remedy."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import random_actions
from storages.transition import ACT
from tests.support.by_hand import envs_with
from tests.support.toys import Counter
from tests.support.training import train


class Pattern(gym.Env[Any, Any]):
    """Observes one of two states at random and pays for each component of the action that is wanted in that state."""

    def __init__(self, actions: Any, wanted: Any) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = actions
        self.wanted = np.asarray(wanted)
        self.state = self.steps = 0

    def observation(self) -> Any:
        self.state = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.state]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.steps += 1
        reward = float((action == self.wanted[self.state]).mean())
        return self.observation(), reward, False, self.steps >= 10, {}


COMPOSITE: dict[str, tuple[Any, Any]] = {
    "multi-discrete": (spaces.MultiDiscrete([3, 4]), [[2, 0], [0, 3]]),
    "multi-discrete with a start": (spaces.MultiDiscrete([3, 2], start=[5, -1]), [[5, 0], [7, -1]]),
    "multi-discrete in two dimensions": (spaces.MultiDiscrete([[3, 2], [2, 2]]), [[[0, 1], [1, 0]], [[2, 0], [0, 0]]]),
    "multi-binary": (spaces.MultiBinary(3), [[1, 0, 1], [0, 1, 1]]),
    "multi-binary in two dimensions": (spaces.MultiBinary((2, 2)), [[[1, 0], [1, 1]], [[0, 0], [1, 0]]]),
}


def ppo_scheme(name: str, memory: Any = None) -> prl.Scheme:
    space, wanted = COMPOSITE[name]
    return prl.Scheme(
        prl.PPO.create_factory(lr=0.01, gamma=0.0, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(16,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=64, **({} if memory is None else {"sequence_length": 8})),
        prl.VecEnv.create_factory(Pattern, num_envs=4, env_kwargs={"actions": space, "wanted": wanted}),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", COMPOSITE)
def test_ppo_learns_every_component_of_multidiscrete_and_multibinary_actions(name: str) -> None:
    scheme = train(ppo_scheme(name), 5_000)
    assert scheme.evaluate(5).mean_return == 10


@pytest.mark.long
@pytest.mark.parametrize("name", ["multi-discrete", "multi-binary in two dimensions"])
def test_multidiscrete_actions_work_with_recurrent_actors(name: str) -> None:
    train(ppo_scheme(name, "gru"), 600)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", COMPOSITE)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_random_actions_are_accepted_and_cover_the_action_space(name: str, mode: str) -> None:
    space, wanted = COMPOSITE[name]
    envs = prl.VecEnv.create_factory(Pattern, num_envs=2, mode=mode, env_kwargs={"actions": space, "wanted": wanted})()
    envs.reset(seed=0)
    generator = np.random.default_rng(0)
    seen = []
    for _ in range(40):
        actions = random_actions(space, 2, generator)
        envs.step(actions)
        seen.append(actions)
    envs.close()
    highest = space.nvec - 1 if isinstance(space, spaces.MultiDiscrete) else np.ones(space.shape)
    np.testing.assert_array_equal(np.max(seen, axis=(0, 1)), highest)
    np.testing.assert_array_equal(np.min(seen, axis=(0, 1)), np.zeros(space.shape))


class Reach(gym.Env[Any, Any]):
    """Pays for actions near 0.3, which must have the dtype of the action space."""

    def __init__(self, low: Any = -1.0, high: Any = 1.0, dtype: Any = np.float32) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Box(low, high, (2,), dtype)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert action.dtype == self.action_space.dtype
        assert self.action_space.contains(action)
        self.steps += 1
        return np.zeros(2, np.float32), -float(abs(action - 0.3).sum()), False, self.steps >= 10, {}


def trained(algorithm: type[Algorithm], wrappers: Any = (), **env: Any) -> prl.Scheme:
    if algorithm is prl.PPO:
        scheme = prl.Scheme(
            prl.PPO.create_factory(num_epochs=1, num_mini_batch=1, test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.GAEBuffer.create_factory(size=20),
            prl.VecEnv.create_factory(Reach, num_envs=2, env_kwargs=env, wrappers=wrappers),
        )
    else:
        scheme = prl.Scheme(
            prl.SAC.create_factory(start_steps=20, mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.ReplayBuffer.create_factory(size=100),
            prl.VecEnv.create_factory(Reach, num_envs=2, env_kwargs=env, wrappers=wrappers),
        )
    for _ in range(20):
        scheme.collect(scheme.steps + 10)
        if len(scheme.storage) and (algorithm is prl.SAC or len(scheme.storage) == scheme.storage.capacity):
            assert all(math.isfinite(info["policy_loss"]) for info in scheme.update())
    return scheme


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("algorithm", [prl.SAC, prl.PPO])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-0.1, 0.7)])
def test_boxes_of_every_float_precision_are_supported(algorithm: Any, dtype: Any, bounds: Any) -> None:
    trained(algorithm, low=bounds[0], high=bounds[1], dtype=dtype).close()


def test_sac_stores_actions_with_the_dtype_of_the_action_space() -> None:
    scheme = trained(prl.SAC, dtype=np.float64)
    assert scheme.storage.get_all_buffer_data()[ACT].dtype == torch.float64


@pytest.mark.parametrize("algorithm", [prl.SAC, prl.PPO])
def test_a_box_of_integers_is_refused_without_and_supported_with_round_action(algorithm: Any) -> None:
    with pytest.raises(prl.UnsupportedSpaceError, match=r"has continuous actions, .* wrappers=\['RoundAction'\]"):
        trained(algorithm, low=-2, high=5, dtype=np.int64)
    trained(algorithm, wrappers=["RoundAction"], low=-2, high=5, dtype=np.int64).close()


def test_rounded_actions_are_the_nearest_integers_within_bounds() -> None:
    env = prl.RoundAction(Reach(-2, 5, np.int16))
    action = env.action(np.array([1.6, 7.0], np.float32))
    assert action.dtype == np.int16
    assert action.tolist() == [2, 5]


def test_infinite_bounds_are_supported_with_the_wrapper_that_the_error_names() -> None:
    with pytest.raises(prl.UnsupportedSpaceError, match="finite bounds") as refused:
        trained(prl.SAC, low=-np.inf, high=np.inf)
    named = str(refused.value).split("wrappers=")[1].split(" gives")[0]
    scheme = trained(prl.SAC, wrappers=eval(named), low=-np.inf, high=np.inf)
    assert scheme.envs.action_space == spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("algorithm", [prl.SAC, prl.TD3, prl.MPO])
def test_an_action_without_any_range_is_refused_by_its_index(algorithm: Any) -> None:
    space = spaces.Box(np.array([-1, 2], np.float32), np.array([1, 2], np.float32))
    envs = envs_with(space)
    with pytest.raises(prl.UnsupportedSpaceError, match=r"both bounds of action \[1\] are 2.0 in Box"):
        algorithm.create_factory()("cpu", prl.OffPolicyActor.create_factory()("cpu", envs), envs)


def test_bound_action_keeps_finite_bounds() -> None:
    env = Reach()
    env.action_space = spaces.Box(np.array([-np.inf, 0]), np.array([np.inf, np.inf]), dtype=np.float64)
    assert prl.BoundAction(env, -3, 4).action_space == spaces.Box(np.array([-3.0, 0]), np.array([4.0, 4]), dtype=float)
    with pytest.raises(ValueError, match="BoundAction: low and high must be finite"):
        prl.BoundAction(env, -3, -1)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", ["multi-discrete", "multi-binary"])
def test_dqn_learns_several_choices_only_with_flatten_action(name: str) -> None:
    space, wanted = COMPOSITE[name]
    env = {"actions": space, "wanted": wanted}

    def scheme(**arguments: Any) -> prl.Scheme:
        return prl.Scheme(
            prl.DQN.create_factory(lr=0.01, gamma=0.0, start_steps=100, update_every=4, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
            prl.ReplayBuffer.create_factory(size=2_000),
            prl.VecEnv.create_factory(Pattern, num_envs=4, env_kwargs=env, **arguments),
            seed=0,
        )

    with pytest.raises(prl.UnsupportedSpaceError, match=r"PPO learns several at once, wrappers=\['FlattenAction'\]"):
        scheme()
    assert train(scheme(wrappers=["FlattenAction"]), 1_500).evaluate(5).mean_return == 10
    with pytest.raises(prl.UnsupportedSpaceError, match="PPO several at once"):
        prl.SAC.check_spaces(prl.VecEnv(Pattern, env_kwargs=env))


@pytest.mark.parametrize("name", COMPOSITE)
def test_flatten_action_maps_every_number_to_a_different_action(name: str) -> None:
    space = COMPOSITE[name][0]
    env = prl.FlattenAction(Counter(actions=space))
    actions = [env.action(number) for number in range(int(env.action_space.n))]  # type: ignore[attr-defined]
    assert all(space.contains(action) for action in actions)
    assert len({action.tobytes() for action in actions}) == len(actions)
    choices = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
    assert len(actions) == choices.prod()


def test_too_many_combinations_are_refused() -> None:
    with pytest.raises(ValueError, match=r"FlattenAction: MultiBinary\(40\) has 1.1e\+12 combinations"):
        prl.FlattenAction(Counter(actions=spaces.MultiBinary(40)))
