"""Infos of environments reach a storage that asks for them, and hindsight."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import pytorchrl as prl
from pytorchrl.scheme.stored_infos import stored_infos
from storages.transition import ACT, DONE2, INFO, OBS2, TRUNC2
from tests.support.clocks import Clocks
from tests.support.comparison import assert_equal
from tests.support.training import train


class Walk(gym.Env[Any, Any]):
    """Walks on a line to a goal, at a cost that only the info contains."""

    def __init__(self, reports: bool = True) -> None:
        box = gym.spaces.Box(-50, 50, (1,), np.float32)
        self.observation_space = gym.spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), box))
        self.action_space = gym.spaces.Discrete(2)
        self.reports = reports

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.goal, self.steps = 0, int(self.np_random.integers(2, 6)), 0
        # Infos of a reset, which must not replace those of the last step.
        return self._seen(), {"cost": -1.0, "position": np.full(2, -1.0)} if self.reports else {}

    def step(self, action: Any) -> Any:
        self.at += 1 if action else -1
        self.steps += 1
        info = {"cost": float(action) / 4, "position": np.array([self.at, self.steps], np.float64)}
        reward = self.compute_reward(
            *(np.array([[x]]) for x in (self.at, self.goal)), {"cost": np.array([[info["cost"]]])}
        )
        return self._seen(), float(reward[0]), self.at == self.goal, self.steps >= 9, info if self.reports else {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return (achieved == desired)[:, 0] - info["cost"][:, 0]

    def _seen(self) -> Any:
        numbers = {"observation": self.at, "achieved_goal": self.at, "desired_goal": self.goal}
        return {name: np.array([number], np.float32) for name, number in numbers.items()}


def reached(achieved: Any, desired: Any, info: Any) -> Any:
    return (achieved == desired)[:, 0]


def walking(mode: str = "sync", reports: bool = True) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=20, update_every=4, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.HERBuffer.create_factory(
            size=100, n_step=2, her_ratio=1.0, her_terminated=reached, info_keys=["cost", "position"]
        ),
        prl.VecEnv.create_factory(Walk, num_envs=2, mode=mode, env_kwargs={"reports": reports}),
    )


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_each_transition_has_the_infos_of_its_own_step(mode: str) -> None:
    scheme = train(walking(mode), 100)
    data = scheme.storage.get_all_buffer_data()
    info = data[INFO]
    assert info["cost"].shape == (50, 2, 1)
    assert_equal(info["cost"], data[ACT].double() / 4)
    assert_equal(info["position"][..., :1].float(), data[OBS2]["achieved_goal"])
    assert data[DONE2].any() or data[TRUNC2].any()
    scheme.close()


def test_an_info_that_no_environment_reports_is_refused_by_name() -> None:
    scheme = walking(reports=False)
    with pytest.raises(ValueError, match=r"info_keys names 'cost', but not every environment reported it .* none"):
        train(scheme, 10)
    scheme.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_infos_that_do_not_say_who_reported_them_are_kept_in_every_mode(
    mode: AutoresetMode,
) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=1_000, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.HERBuffer.create_factory(
            size=100, her_function=lambda *given, info: (*given[:4], given[4]), info_keys=["is_success"]
        ),
        prl.VecEnv.create_factory(Clocks, 2, env_kwargs={"mode": mode}),
    )
    scheme.collect(50)
    data = scheme.storage.get_all_buffer_data()
    assert data[DONE2].any()
    reported, times = data[INFO]["is_success"][..., 0], data[OBS2][..., 1]
    assert_equal(reported.bool(), times % 2 == 0)
    scheme.close()


class Reuses(gym.Env[Any, Any]):
    """Reports the number of steps in an info that it writes over, in a reset too."""

    observation_space = gym.spaces.Box(-50, 50, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.info: dict[str, Any] = {"array": np.zeros(2)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._at(0)

    def step(self, action: Any) -> Any:
        observation, info = self._at(self.steps + 1)
        return observation, 0.0, self.steps == 3, False, info

    def _at(self, steps: int) -> Any:
        self.steps = self.info["number"] = steps
        self.info["array"][:] = steps
        return np.array([steps], np.float32), self.info


def identity(env: Any) -> Any:
    return gym.Wrapper(env)


@pytest.mark.parametrize("wrappers", [(), (identity,)])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_last_info_of_an_episode_is_kept_when_the_reset_writes_over_it(mode: Any, wrappers: Any) -> None:
    for steps, info in steps_with_infos(Reuses, ["number", "array"], mode, wrappers):
        np.testing.assert_array_equal(info["number"], steps)
        np.testing.assert_array_equal(info["array"], np.tile(steps, 2))


def test_an_info_of_a_truncated_episode_survives_the_reset() -> None:
    limit = ("TimeLimit", {"max_episode_steps": 2})
    with prl.VecEnv(Reuses, wrappers=[limit], episode_infos=("number",)) as envs:
        envs.reset(seed=1)
        for _ in range(2):
            envs.step(np.zeros((1, 1), np.int64))
        assert [episode.reported for episode in envs.finished_episodes] == [{"number": 2.0}]


class Differs(gym.Env[Any, Any]):
    """Reports values of another type, shape or structure in each copy and step."""

    observation_space = gym.spaces.Box(-50, 50, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.steps = seed % 5
        return np.zeros(1, np.float32), {"visited": None, "winner": "nobody"}

    def step(self, action: Any) -> Any:
        self.steps += 1
        info = {
            "share": self.steps / 4 if self.steps % 4 else self.steps // 4,
            "inside": np.bool_(self.steps % 2),
            "visited": np.zeros(self.steps),
            "winner": 0 if self.steps % 2 else None,
            "opponent": {"at": 1.0} if self.steps % 3 else None,
            "hash": 2**70 if self.steps % 2 else 3,
        }
        return np.array([self.steps], np.float32), 0.0, self.steps % 3 == 0, False, info


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_numbers_are_kept_beside_infos_that_differ_in_type_and_shape_between_copies(mode: Any) -> None:
    for steps, info in steps_with_infos(Differs, ["share", "inside"], mode):
        np.testing.assert_array_equal(info["share"], steps / 4)
        np.testing.assert_array_equal(info["inside"], steps % 2)


def steps_with_infos(env: Any, keys: list[str], mode: Any, wrappers: Any = ()) -> Iterator[tuple[Any, Any]]:
    """The steps made by the environments after each of ten steps, and the infos that a storage would keep."""
    with prl.VecEnv(env, num_envs=2, mode=mode, wrappers=wrappers) as envs:
        envs.reset(seed=1)
        for _ in range(10):
            step = envs.step(np.zeros((2, 1), np.int64))
            yield step.next_observation, stored_infos(step, keys)[INFO]
