"""MinAtar games match the package, are seeded like gymnasium environments and can be saved and restored."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pytorchrl as prl
from pytorchrl.agent.envs.games import minatar
from pytorchrl.agent.envs.games.minatar import MinAtar
from pytorchrl.registered_envs import MINATAR_GAMES as GAMES
from tests.support.comparison import assert_equal
from tests.support.profiles import examples

if importlib.util.find_spec("minatar") is None:
    pytest.skip("the package minatar is not installed", allow_module_level=True)

IDS = {game: f"pytorchrl/MinAtar-{game.title().replace('_', '')}-v0" for game in GAMES}
CHANNELS = {"asterix": 4, "breakout": 4, "freeway": 7, "seaquest": 10, "space_invaders": 6}
MINIMAL_ACTIONS = {"asterix": 5, "breakout": 3, "freeway": 3, "seaquest": 6, "space_invaders": 4}


def trajectory(env: Any, seed: int, steps: int) -> list[Any]:
    """Return the observations and steps of random actions, across the ends of episodes."""
    actions = np.random.default_rng(seed)
    seen: list[Any] = [env.reset(seed=seed)[0].tobytes()]
    for _ in range(steps):
        observation, reward, terminated, _, _ = env.step(actions.integers(env.action_space.n))
        seen.append((observation.tobytes(), reward, terminated))
        if terminated:
            seen.append(env.reset()[0].tobytes())
    return seen


@pytest.mark.parametrize("game", GAMES)
def test_each_game_passes_gymnasiums_environment_checker(game: str) -> None:
    env = gym.make(IDS[game]).unwrapped
    check_env(env, skip_render_check=True)
    assert env.observation_space == gym.spaces.Box(0, 1, (10, 10, CHANNELS[game]), np.bool_)
    assert env.action_space == gym.spaces.Discrete(6)
    assert gym.make(IDS[game], minimal_action_set=True).action_space == gym.spaces.Discrete(MINIMAL_ACTIONS[game])


@pytest.mark.parametrize("game", GAMES)
def test_equal_seeds_give_equal_sequences_of_games(game: str) -> None:
    env, other = gym.make(IDS[game]), gym.make(IDS[game])
    trajectory(other, 9, 30)
    first = trajectory(env, 3, 300)
    assert trajectory(other, 3, 300) == first == trajectory(env, 3, 300)
    assert trajectory(env, 4, 300) != first


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("game", GAMES)
def test_games_match_those_of_the_minatar_package(game: str) -> None:
    from minatar import Environment

    class Package:
        """The package behind gymnasium's interface, with the same generator and no last action from the game before."""

        action_space = gym.spaces.Discrete(6)

        def __init__(self, **settings: Any) -> None:
            self.game = Environment(game, **settings)

        def reset(self, seed: int | None = None) -> Any:
            if seed is not None:
                self.game.random = self.game.env.random = np.random.RandomState(np.random.PCG64(seed))
            self.game.last_action = 0
            self.game.reset()
            return self.game.state(), {}

        def step(self, action: int) -> Any:
            reward, terminated = self.game.act(action)
            return self.game.state(), reward, terminated, False, {}

    for settings in ({}, {"sticky_action_prob": 0.5, "difficulty_ramping": False}):
        for seed in range(examples(3)):
            ours = gym.make(IDS[game], disable_env_checker=True, **settings).unwrapped
            assert trajectory(ours, seed, 2_000) == trajectory(Package(**settings), seed, 2_000)


def test_a_sticky_action_repeats_with_its_probability_but_not_in_the_next_game() -> None:
    env = MinAtar("freeway", sticky_action_prob=0.3)
    done: list[int] = []
    act = env._game.act
    env._game.act = lambda action: done.append(action) or act(action)
    env.reset(seed=0)
    repeated, steps = 0, 2_000
    for _ in range(steps):
        before = done[-1] if done else 0
        env.step(np.int64((before + 1) % 6))
        repeated += done[-1] == before
    assert repeated / steps == pytest.approx(0.3, abs=0.03)
    env = MinAtar("breakout", sticky_action_prob=1.0)
    env.reset(seed=0)
    env._last_action = 3
    env.reset()
    env.step(np.int64(3))
    assert env._last_action == 0


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_restored_games_continue_as_the_saved_ones_do(mode: Any) -> None:
    factory = prl.VecEnv.create_factory(
        IDS["seaquest"], 2, mode=mode, wrappers=[("FrameStackObservation", {"stack_size": 2})]
    )
    envs, others = factory(), factory()
    actions = np.random.default_rng(0).integers(0, 6, (1_300, 2, 1))
    envs.reset(seed=1)
    others.reset(seed=2)
    for action in actions[:1_200]:
        shown = envs.step(action).observation
    resumption = others.load_state_dict(envs.state_dict())
    assert resumption.came_back.all()
    np.testing.assert_array_equal(resumption.observation, shown)
    assert others.running_episodes() == envs.running_episodes()
    for action in actions[1_200:]:
        step, other = envs.step(action), others.step(action)
        for one, same in zip(step[:5], other[:5], strict=True):
            np.testing.assert_array_equal(one, same)
    envs.close()
    others.close()


def test_max_episode_steps_truncates_episodes() -> None:
    envs = prl.VecEnv.create_factory(IDS["freeway"], env_kwargs={"max_episode_steps": 5})()
    envs.reset(seed=0)
    steps = [envs.step(np.zeros((1, 1), np.int64)) for _ in range(5)]
    assert [step.truncated.item() for step in steps] == [False] * 4 + [True]
    assert not any(step.terminated.item() for step in steps)
    assert [record.length for record in envs.finished_episodes] == [5]
    envs.close()


def test_a_game_is_loaded_without_importing_the_package_and_its_plotting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "minatar", raising=False)
    minatar._module.cache_clear()
    MinAtar("breakout").reset(seed=0)
    assert "minatar" not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"game": "pong"}, "MinAtar: game must be one of asterix, .* got 'pong'"),
        ({"game": "breakout", "sticky_action_prob": 1.5}, r"MinAtar: sticky_action_prob must lie in \[0, 1\], got 1.5"),
    ],
)
def test_invalid_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MinAtar(**arguments)


def test_a_missing_package_is_reported_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    minatar._module.cache_clear()
    with pytest.raises(
        gym.error.DependencyNotInstalled, match=r'minatar is not installed.* pip install "pytorchrl-toolkit\[atari\]"'
    ):
        prl.VecEnv.create_factory(IDS["breakout"])()


@pytest.mark.long
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    def learner(name: str) -> prl.Learner:
        scheme = prl.Scheme(
            prl.DQN.create_factory(start_steps=40, update_every=50, mini_batch_size=4, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.PERBuffer.create_factory(size=100, n_step=3, alpha=0.5),
            prl.VecEnv.create_factory(
                IDS["space_invaders"], 2, wrappers=[("FrameStackObservation", {"stack_size": 2})]
            ),
        )
        return prl.Learner(scheme, 1_500, tmp_path / name)

    whole, stopped = learner("whole"), learner("stopped")
    whole.run()
    while stopped.scheme.steps < 1_300:
        stopped.step()
    stopped.save_checkpoint()
    stopped.close()
    resumed = prl.Learner.resume(tmp_path / "stopped")
    resumed.run()
    assert_equal(resumed.scheme.algorithm.state_dict(), whole.scheme.algorithm.state_dict())
    assert_equal(resumed.scheme.storage.state_dict(), whole.scheme.storage.state_dict())
    whole.close()
    resumed.close()
