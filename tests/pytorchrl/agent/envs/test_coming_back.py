"""Saved environments are restored in new copies by replaying their actions, or are reported as not restored."""

import io
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.envs.copies.histories import STEPS_OF_BLOCK
from tests.support.comparison import assert_equal
from tests.support.toys import Counter, Noise


def actions_of(envs: prl.VecEnv, generator: np.random.Generator) -> Any:
    if isinstance(envs.action_space, spaces.Discrete):
        return generator.integers(0, envs.action_space.n, (envs.num_envs, 1))
    return generator.uniform(-2, 2, (envs.num_envs, *envs.action_space.shape)).astype(np.float32)  # type: ignore[misc]


def rollout(envs: prl.VecEnv, steps: int, seed: int = 0) -> list[Any]:
    """Return the steps of random actions."""
    generator = np.random.default_rng(seed)
    seen: list[Any] = []
    for _ in range(steps):
        step = envs.step(actions_of(envs, generator))
        seen.append([step.observation, step.next_observation, step.reward, step.terminated, step.truncated])
    return seen


def saved_and_loaded(envs: prl.VecEnv) -> Any:
    """Return the state of the environments after it was saved to a checkpoint and loaded."""
    file = io.BytesIO()
    torch.save(envs.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


ENVIRONMENTS: dict[str, Callable[..., prl.VecEnv]] = {
    "noise": prl.VecEnv.create_factory(Noise, num_envs=3),
    "pendulum": prl.VecEnv.create_factory("Pendulum-v1", num_envs=2),
    "discrete": prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"kind": "discrete", "length": 7}),
    "dicts": prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"kind": "dict", "end": "truncated"}),
    "async": prl.VecEnv.create_factory(Noise, num_envs=2, mode="async"),
    "long episodes": prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 700}),
    "normalised rewards": prl.VecEnv.create_factory(Noise, num_envs=2, wrappers=["NormalizeReward"]),
}


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("steps", [0, 1, 37, 2 * STEPS_OF_BLOCK + 5])
def test_restored_environments_continue_as_the_saved_ones_do(name: str, steps: int) -> None:
    if name == "dicts" and steps > 100:
        pytest.skip("large observations")
    one, other = ENVIRONMENTS[name](), ENVIRONMENTS[name]()
    observation = one.reset(seed=3)
    other.reset(seed=4)
    rollout(other, 5)
    past = rollout(one, steps)
    observation = past[-1][0] if past else observation
    back = other.load_state_dict(saved_and_loaded(one))
    assert back.came_back.shape == (one.num_envs, 1)
    assert back.came_back.all()
    assert same(back.observation, observation)
    # Long enough for both to be seeded anew.
    ahead = 20 if name == "dicts" else STEPS_OF_BLOCK + 300
    assert same(rollout(one, ahead, 1), rollout(other, ahead, 1))
    assert_equal(one.state_dict(), other.state_dict())
    one.close()
    other.close()


def test_the_saved_history_does_not_grow_with_the_run_if_episodes_end() -> None:
    envs = ENVIRONMENTS["noise"]()
    envs.reset(seed=0)
    rollout(envs, 6 * STEPS_OF_BLOCK + 100)
    for history in envs.state_dict()["histories"]:
        assert len(history["actions"]) < 3 * STEPS_OF_BLOCK


def test_seeds_differ_between_environments_and_over_time() -> None:
    envs = ENVIRONMENTS["noise"]()
    envs.reset(seed=0)
    seeds = set()
    for _ in range(5):
        seeds |= {history["seed"] for history in envs.state_dict()["histories"]}
        rollout(envs, 2 * STEPS_OF_BLOCK)
    assert len(seeds) == 5 * envs.num_envs


def test_replayed_actions_are_copies_that_the_caller_cannot_change() -> None:
    one, other = (prl.VecEnv.create_factory("Pendulum-v1", num_envs=2)() for _ in range(2))
    one.reset(seed=0)
    actions = np.empty((2, 1))
    for number in range(20):
        actions[:] = number / 10
        one.step(actions)
    actions.fill(0)
    assert other.load_state_dict(saved_and_loaded(one)).came_back.all()


class Unrepeatable(Counter):
    """Adds an offset to observations that no seed determines, except in the first environment."""

    made = 0

    def __init__(self, **arguments: Any) -> None:
        super().__init__(length=50, **arguments)
        Unrepeatable.made += 1
        self.offset = 0 if Unrepeatable.made % 2 else Unrepeatable.made

    def _observation(self) -> Any:
        return super()._observation() + np.float32(self.offset)


def test_an_environment_that_replays_other_observations_starts_a_new_episode() -> None:
    one, other = (prl.VecEnv.create_factory(Unrepeatable, num_envs=2)() for _ in range(2))
    one.reset(seed=0)
    rollout(one, 10)
    back = other.load_state_dict(saved_and_loaded(one))
    assert back.came_back[:, 0].tolist() == [True, False]
    assert back.observation[0, 0] == 10
    assert back.observation[1, 0] == other._vector._envs.envs[1].unwrapped.offset  # type: ignore[union-attr]
    # The new episode can be restored in turn.
    rollout(other, 5)
    again = other.load_state_dict(saved_and_loaded(other))
    assert again.came_back.all()
    assert again.observation[0, 0] == 15


class UnseededRewards(Counter):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(np.random.default_rng().random()), *rest


def test_an_environment_that_replays_other_rewards_is_reported_as_not_restored() -> None:
    envs = prl.VecEnv.create_factory(UnseededRewards, env_kwargs={"length": 50})()
    envs.reset(seed=0)
    rollout(envs, 10)
    assert not envs.load_state_dict(saved_and_loaded(envs)).came_back.any()


def test_without_replay_on_resume_a_new_episode_starts() -> None:
    made: list[Counter] = []

    def make() -> Counter:
        made.append(Counter(length=50))
        return made[-1]

    envs = prl.VecEnv.create_factory(make, replay_on_resume=False)()
    envs.reset(seed=0)
    rollout(envs, 10)
    back = envs.load_state_dict(saved_and_loaded(envs))
    assert not back.came_back.any()
    assert np.all(back.observation == 0)
    assert len(made[0].actions) == 10


class Curriculum(gym.Wrapper[Any, Any, Any, Any]):
    """Multiplies rewards by the number of the episode."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.levels = np.zeros(1)

    def reset(self, **arguments: Any) -> Any:
        self.levels += 1
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        return observation, float(reward) * self.levels[0], *rest

    def state_dict(self) -> dict[str, Any]:
        return {"levels": self.levels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.levels = state["levels"]


class Opaque(Curriculum):
    def state_dict(self) -> dict[str, Any]:
        return {"levels": object()}


def test_wrapper_state_across_episodes_is_restored_by_its_state_dict() -> None:
    one, other = (prl.VecEnv.create_factory(Counter, num_envs=2, wrappers=[Curriculum])() for _ in range(2))
    one.reset(seed=0)
    rollout(one, 10)
    assert other.load_state_dict(saved_and_loaded(one)).came_back.all()
    assert same(rollout(one, 10), rollout(other, 10))


def test_a_wrapper_state_that_cannot_be_saved_is_refused_at_the_first_reset() -> None:
    envs = prl.VecEnv.create_factory(Counter, wrappers=[Opaque])()
    with pytest.raises(
        TypeError, match=r"Opaque.state_dict\(\): a checkpoint can hold only plain data and arrays, not"
    ):
        envs.reset(seed=0)


def test_a_state_of_more_environments_is_refused() -> None:
    one, other = (prl.VecEnv.create_factory(Counter, num_envs=number)() for number in (2, 3))
    other.reset(seed=0)
    with pytest.raises(ValueError, match="VecEnv: made for 2 environments, saved with 3"):
        one.load_state_dict(other.state_dict())


def test_state_dict_before_the_first_reset_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"VecEnv: call reset\(\) before state_dict\(\)"):
        ENVIRONMENTS["noise"]().state_dict()
