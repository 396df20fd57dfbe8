"""Reported episode returns are those of the unwrapped environments, under any wrapper."""

import copy
import io
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.envs import EpisodeRecord
from tests.support.toys import Counter, Noise


def finished(envs: prl.VecEnv, steps: int) -> list[list[EpisodeRecord]]:
    seen = []
    for _ in range(steps):
        envs.step(np.zeros((envs.num_envs, 1), np.int64))
        seen.append(envs.finished_episodes)
    return seen


def own_episodes(seed: int, steps: int) -> list[list[EpisodeRecord]]:
    """Return the episodes of two directly stepped copies of `Noise`, with the seeds of their vector."""
    seeds = np.random.SeedSequence(seed).generate_state(2)
    copies, seen = [Noise(), Noise()], []
    for env, first in zip(copies, seeds, strict=True):
        env.reset(seed=int(first))
    returns, lengths = [0.0, 0.0], [0, 0]
    for _ in range(steps):
        records = []
        for index, env in enumerate(copies):
            _, reward, terminated, truncated, _ = env.step(0)
            returns[index] += reward
            lengths[index] += 1
            if terminated or truncated:
                records.append(EpisodeRecord(index, returns[index], lengths[index]))
                returns[index], lengths[index] = 0.0, 0
                env.reset()
        seen.append(records)
    return seen


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "wrappers",
    [
        [],
        ["NormalizeReward"],
        [("ScaleReward", {"factor": 0.01})],
        [("ClipReward", {"min_reward": 0.0, "max_reward": 0.1})],
        [("ClipReward", {"min_reward": 0.0, "max_reward": 0.1}), "NormalizeReward", "FlattenObservation"],
    ],
)
def test_finished_episodes_have_the_environments_own_returns_under_any_wrapper(wrappers: list[Any], mode: str) -> None:
    envs = prl.VecEnv.create_factory(Noise, num_envs=2, mode=mode, wrappers=wrappers)()
    envs.reset(seed=3)
    seen = finished(envs, 100)
    envs.close()
    assert sum(map(len, seen)) > 20
    assert seen == own_episodes(3, 100)


def test_infos_of_a_step_contain_no_episode_records() -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2)()
    envs.reset(seed=0)
    for _ in range(6):
        infos = envs.step(np.zeros((2, 1), np.int64)).infos
        assert set(infos) <= {"final_obs", "final_info", "_final_obs", "_final_info"}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_time_limits_of_the_environment_and_of_a_wrapper_end_episodes(mode: str) -> None:
    envs = prl.VecEnv.create_factory(
        "CartPole-v1", mode=mode, env_kwargs={"max_episode_steps": 5}, wrappers=["NormalizeReward"]
    )()
    envs.reset(seed=0)
    assert [len(records) for records in finished(envs, 10)] == [0, 0, 0, 0, 1] * 2
    envs.close()
    envs = prl.VecEnv.create_factory(
        Counter, mode=mode, env_kwargs={"length": 50}, wrappers=[("TimeLimit", {"max_episode_steps": 3})]
    )()
    envs.reset(seed=0)
    assert finished(envs, 6) == [[], [], [EpisodeRecord(0, 6.0, 3)]] * 2
    envs.close()


class LivesAreEpisodes(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode every two steps; a reset continues the same game unless it is over."""

    over, steps = True, 0

    def step(self, action: Any) -> Any:
        observation, reward, self.over, truncated, info = self.env.step(action)
        self.steps += 1
        return observation, reward, self.over or self.steps % 2 == 0, truncated, info

    def reset(self, **arguments: Any) -> Any:
        if self.over:
            return self.env.reset(**arguments)
        observation, _, self.over, _, info = self.env.step(0)
        return observation, info


class Endless(gym.Wrapper[Any, Any, Any, Any]):
    """Resets the environment at the end of each game and reports no end itself."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        if terminated or truncated:
            observation, _ = self.env.reset()
        return observation, reward, False, False, {}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_game_that_goes_on_after_a_lost_life_is_one_episode(mode: str) -> None:
    envs = prl.VecEnv.create_factory(Counter, mode=mode, env_kwargs={"length": 8}, wrappers=[LivesAreEpisodes])()
    envs.reset(seed=0)
    ended = [record for records in finished(envs, 20) for record in records]
    envs.close()
    assert len(ended) >= 2
    assert set(ended) == {EpisodeRecord(0, 36.0, 8)}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_games_that_a_wrapper_joins_are_separate_episodes(mode: str) -> None:
    envs = prl.VecEnv.create_factory(Counter, mode=mode, wrappers=[Endless])()
    envs.reset(seed=0)
    assert finished(envs, 6) == [[], [], [EpisodeRecord(0, 6.0, 3)]] * 2
    envs.close()


class ResetsItself(Counter):
    """Returns the first observation of the next episode from the last step, as old environments do."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated:
            observation, _ = self.reset()
        return observation, reward, terminated, truncated, info


class StepsInReset(Counter):
    """Makes a step in reset, which does not count."""

    def reset(self, **arguments: Any) -> Any:
        super().reset(**arguments)
        observation, *_ = self.step(0)
        return observation, {}


@pytest.mark.parametrize(
    ("environment", "record"), [(ResetsItself, EpisodeRecord(0, 6.0, 3)), (StepsInReset, EpisodeRecord(0, 5.0, 2))]
)
def test_steps_and_resets_called_by_the_environment_itself_are_not_counted(environment: Any, record: Any) -> None:
    envs = prl.VecEnv.create_factory(environment)()
    envs.reset(seed=0)
    ended = [known for records in finished(envs, 3 * record.length) for known in records]
    assert ended == [record] * 3


def test_wrappers_reach_the_attributes_of_the_environment() -> None:
    seen: list[Counter] = []

    def keep(env: Counter) -> Counter:
        env.length = 2
        seen.append(env)
        return env

    envs = prl.VecEnv(Counter, wrappers=[keep])
    envs.reset(seed=0)
    assert isinstance(seen[0], Counter)
    assert finished(envs, 2) == [[], [EpisodeRecord(0, 3.0, 2)]]


def test_steps_of_a_wrapper_in_a_copy_of_the_environment_are_not_counted() -> None:
    class LooksAhead(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            ahead = copy.deepcopy(self.env)
            ahead.step(action)
            return self.env.step(action)

    envs = prl.VecEnv.create_factory(Counter, wrappers=[LooksAhead])()
    envs.reset(seed=0)
    assert finished(envs, 3) == [[], [], [EpisodeRecord(0, 6.0, 3)]]


def test_a_reset_drops_running_episodes() -> None:
    envs = prl.VecEnv.create_factory(Counter)()
    for _ in range(2):
        envs.reset(seed=0)
        finished(envs, 2)
    envs.reset(seed=0)
    assert envs.finished_episodes == []
    assert finished(envs, 3) == [[], [], [EpisodeRecord(0, 6.0, 3)]]


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wrappers", [[], ["NormalizeReward"], [Endless]])
@pytest.mark.parametrize("steps", [1, 37, 600])
def test_restored_environments_finish_the_same_episodes(steps: int, wrappers: list[Any], mode: str) -> None:
    one, other = (prl.VecEnv.create_factory(Noise, num_envs=2, mode=mode, wrappers=wrappers)() for _ in range(2))
    one.reset(seed=3)
    other.reset(seed=4)
    finished(one, steps)
    finished(other, 5)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    assert other.load_state_dict(torch.load(file, weights_only=True)).came_back.all()
    assert other.finished_episodes == []
    assert finished(one, 100) == finished(other, 100)
    one.close()
    other.close()


def test_an_episode_that_is_not_restored_is_not_counted() -> None:
    envs = prl.VecEnv.create_factory(Counter, replay_on_resume=False)()
    envs.reset(seed=0)
    finished(envs, 2)
    assert not envs.load_state_dict(envs.state_dict()).came_back.any()
    assert finished(envs, 3) == [[], [], [EpisodeRecord(0, 6.0, 3)]]
