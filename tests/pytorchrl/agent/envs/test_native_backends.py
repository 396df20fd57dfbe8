"""Vector environments by id: gymnasium's entry points, EnvPool and the Arcade Learning Environment."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import OBS, OBS2

ENTRY_POINT: dict[str, Any] = {"vectorization_mode": "vector_entry_point"}
ENVPOOL: dict[str, Any] = {"backend": "envpool", "env_kwargs": {"num_threads": 1}}
ALE: dict[str, Any] = {"backend": "ale", "env_kwargs": {"num_threads": 1}}


def needs(settings: dict[str, Any]) -> None:
    if settings.get("backend") == "envpool":
        pytest.importorskip("envpool")
    if settings.get("backend") == "ale":
        pytest.importorskip("ale_py")


def scheme_of(envs: Any, **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(**settings),
        prl.GAEBuffer.create_factory(size=8),
        envs,
    )


@pytest.mark.parametrize("settings", [ENTRY_POINT, ENVPOOL], ids=["entry point", "envpool"])
def test_cartpole_terminates_when_the_pole_falls_and_rewards_one_per_step(settings: dict[str, Any]) -> None:
    needs(settings)
    envs = prl.VecEnv.create_factory("CartPole-v1", 5, **settings)()
    assert envs.reset(seed=3).shape == (5, 4)
    finished = 0
    for _ in range(60):
        step = envs.step(np.ones((5, 1), np.int64))
        made = np.ones((5, 1), np.bool_) if step.made is None else step.made
        fell = (abs(step.next_observation[:, 2:3]) > 12 * np.pi / 180) & made
        np.testing.assert_array_equal(fell, step.terminated)
        # The observation after an end is the first of the next episode.
        if envs.skips_next is None:
            assert (abs(step.observation[fell[:, 0]]) <= 0.05).all()
        assert (step.reward == made).all()
        for one in envs.finished_episodes:
            assert one.episode_return == one.length
            finished += 1
    assert finished >= 25
    envs.close()


@pytest.mark.parametrize(
    ("env", "settings"),
    [("CartPole-v1", ENTRY_POINT), ("CartPole-v1", ENVPOOL), pytest.param("ALE/Pong-v5", ALE, marks=pytest.mark.long)],
)
def test_equal_seeds_give_equal_episodes(env: str, settings: dict[str, Any]) -> None:
    needs(settings)

    def played(seed: int) -> Any:
        envs = prl.VecEnv.create_factory(env, 2, **settings)()
        envs.reset(seed=99)
        shown = [envs.reset(seed=seed)]
        shown += [envs.step(np.full((2, 1), number % 2)).observation for number in range(30)]
        envs.close()
        return np.stack(shown)

    np.testing.assert_array_equal(played(1), played(1))
    assert (played(1) != played(2)).any()


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize(("env", "settings"), [("Pong-v5", ENVPOOL), ("ALE/Breakout-v5", ALE)])
def test_a_replay_buffer_stores_each_frame_of_atari_stacks_once(env: str, settings: dict[str, Any]) -> None:
    needs(settings)
    envs = prl.VecEnv.create_factory(env, 2, **settings)
    made = envs()
    assert made.stacked_frames == 4
    storage = prl.ReplayBuffer.create_factory(size=50)("cpu", None, type("Discount", (), {"gamma": 0.9}), made)
    seen, done = made.reset(seed=0), np.ones((2, 1), np.bool_)
    for number in range(20):
        action = np.full((2, 1), number % 3)
        step = made.step(action)
        storage.insert_transition(
            {
                OBS: seen,
                "Done": done,
                "Action": action,
                "Reward": step.reward.astype(np.float32),
                OBS2: step.next_observation,
                "NextDone": step.terminated,
                "NextTruncated": step.truncated,
            }
        )
        newest = storage.get_data_slice(number, number + 1)
        np.testing.assert_array_equal(newest[OBS2][0].numpy(), step.next_observation)
        np.testing.assert_array_equal(newest[OBS][0].numpy(), seen)
        seen, done = step.observation, step.terminated | step.truncated
    # Whole stacks of 4 frames, as observations and next observations, would take about 8 times as much.
    assert storage.nbytes < 2 * 60 * 84 * 84 * 1.5
    made.close()


def play_breakout(settings: dict[str, Any], env: str, **more: Any) -> tuple[int, list[Any]]:
    """Play Breakout at random in two environments; return the number of terminations and the finished games."""
    envs = prl.VecEnv.create_factory(env, 2, **settings | {"env_kwargs": settings["env_kwargs"] | more})()
    envs.reset(seed=0)
    random, ends, games = np.random.default_rng(0), 0, []
    for _ in range(500):
        step = envs.step(random.integers(0, 4, (2, 1)))
        ends += int(step.terminated.sum())
        assert abs(step.reward).max() <= 1 or not more.get("reward_clip")
        games += envs.finished_episodes
    envs.close()
    return ends, games


@pytest.mark.long
def test_envpool_returns_cover_whole_games_if_a_lost_life_ends_an_episode() -> None:
    needs(ENVPOOL)
    ends, games = play_breakout(ENVPOOL, "Breakout-v5", episodic_life=True, reward_clip=True)
    assert games
    assert ends >= 5 * len(games)
    assert all(game.length > 100 for game in games)


@pytest.mark.long
def test_ale_starts_a_new_game_if_a_lost_life_ends_an_episode() -> None:
    needs(ALE)
    ends, games = play_breakout(ALE, "ALE/Breakout-v5", episodic_life=True)
    assert ends == len(games) > 0


@pytest.mark.parametrize("settings", [ENTRY_POINT, ENVPOOL], ids=["entry point", "envpool"])
def test_a_run_trains_and_evaluates_without_warnings(settings: dict[str, Any]) -> None:
    needs(settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheme = scheme_of(prl.VecEnv.create_factory("CartPole-v1", 4, **settings))
        for _ in range(3):
            scheme.collect(10**9)
            list(scheme.update())
        assert scheme.evaluate(2).lengths
        assert all(torch.isfinite(weight).all() for weight in scheme.algorithm.get_weights().values())
        scheme.close()


def test_envpool_settings_that_are_unknown_or_change_the_batch_size_are_refused() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(ValueError, match="all are stepped together"):
        prl.VecEnv("CartPole-v1", 4, backend="envpool", env_kwargs={"batch_size": 2})
    with pytest.raises(ValueError, match="cannot make 'CartPole-v1'"):
        prl.VecEnv("CartPole-v1", 4, backend="envpool", env_kwargs={"nothing": 2})


def test_a_missing_backend_package_is_reported_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    message = r'extra "envpool" brings it: pip install "pytorchrl-toolkit\[envpool\]"'
    with pytest.raises(gym.error.DependencyNotInstalled, match=message):
        prl.VecEnv.create_factory("CartPole-v1", 4, backend="envpool")


@pytest.mark.long
def test_ppo_solves_cartpole_with_64_environments_of_gymnasiums_entry_point() -> None:
    target = 500_000
    scheme = prl.Scheme(
        prl.PPO.create_factory(
            lr=prl.LinearSchedule(3e-3, 0.0), num_epochs=4, num_mini_batch=4, entropy_coef=0.01, test_every=0
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
        prl.GAEBuffer.create_factory(size=128, gae_lambda=0.9),
        prl.VecEnv.create_factory("CartPole-v1", 64, **ENTRY_POINT),
        seed=1,
    )
    while scheme.steps < target:
        _, due = scheme.collect(target)
        scheme.set_progress(scheme.steps, target)
        for _ in range(due):
            list(scheme.update())
    assert scheme.evaluate(20).mean_return >= 475
    scheme.close()
