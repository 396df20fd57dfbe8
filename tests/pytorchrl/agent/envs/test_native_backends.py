"""Vector environments by id: gymnasium's entry points, EnvPool and the Arcade Learning Environment."""

import warnings
from typing import Any

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
def test_cartpoles_end_where_the_pole_fell_and_pay_a_point_a_step(settings: dict[str, Any]) -> None:
    needs(settings)
    envs = prl.VecEnv.create_factory("CartPole-v1", 5, **settings)()
    seen, finished = envs.reset(seed=3), 0
    assert seen.shape == (5, 4)
    for _ in range(60):
        step = envs.step(np.ones((5, 1), np.int64))
        made = np.ones((5, 1), np.bool_) if step.made is None else step.made
        fell = (abs(step.next_observation[:, 2:3]) > 12 * np.pi / 180) & made
        np.testing.assert_array_equal(fell, step.terminated)
        # What follows an end is no state of the episode that ended.
        if envs.skips_next is None:
            assert (abs(step.observation[fell[:, 0]]) <= 0.05).all()
        assert (step.reward == made).all()
        for one in envs.finished_episodes:
            assert one.episode_return == one.length
            finished += 1
        seen = step.observation
    assert finished >= 25
    envs.close()


@pytest.mark.parametrize(
    ("env", "settings"),
    [("CartPole-v1", ENTRY_POINT), ("CartPole-v1", ENVPOOL), pytest.param("ALE/Pong-v5", ALE, marks=pytest.mark.long)],
)
def test_a_seed_makes_the_same_episodes(env: str, settings: dict[str, Any]) -> None:
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


@pytest.mark.parametrize(("env", "settings"), [("Pong-v5", ENVPOOL), ("ALE/Breakout-v5", ALE)])
def test_atari_keeps_each_frame_of_its_stacks_once(env: str, settings: dict[str, Any]) -> None:
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
    # Of 20 steps of 2 stacks of 4 frames; whole, they would take 4 times as much twice.
    assert storage.nbytes < 2 * 60 * 84 * 84 * 1.5
    made.close()


def lost_lives(settings: dict[str, Any], env: str, **more: Any) -> tuple[int, list[Any]]:
    """How many episodes ended, and the whole games, of two games of Breakout that are played at random."""
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


def test_returns_are_those_of_whole_games_where_the_loss_of_a_life_is_an_end_in_envpool() -> None:
    needs(ENVPOOL)
    ends, games = lost_lives(ENVPOOL, "Breakout-v5", episodic_life=True, reward_clip=True)
    assert games
    assert ends >= 5 * len(games)
    assert all(game.length > 100 for game in games)


def test_a_game_of_ale_begins_anew_where_the_loss_of_a_life_is_an_end() -> None:
    needs(ALE)
    ends, games = lost_lives(ALE, "ALE/Breakout-v5", episodic_life=True)
    assert ends == len(games) > 0


@pytest.mark.parametrize("settings", [ENTRY_POINT, ENVPOOL], ids=["entry point", "envpool"])
def test_a_run_trains_evaluates_and_warns_of_nothing(settings: dict[str, Any]) -> None:
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


def test_what_sets_the_batch_of_a_pool_is_refused() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(ValueError, match="all are stepped together"):
        prl.VecEnv("CartPole-v1", 4, backend="envpool", env_kwargs={"batch_size": 2})
    with pytest.raises(ValueError, match="cannot make 'CartPole-v1'"):
        prl.VecEnv("CartPole-v1", 4, backend="envpool", env_kwargs={"nothing": 2})


def test_without_a_backend_s_package_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "envpool", None)
    with pytest.raises(Exception, match=r'extra "envpool" brings it: pip install "\.\[envpool\]"'):
        prl.VecEnv.create_factory("CartPole-v1", 4, backend="envpool")


@pytest.mark.long
def test_ppo_balances_the_pole_by_64_environments_of_gymnasium_s_own() -> None:
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
