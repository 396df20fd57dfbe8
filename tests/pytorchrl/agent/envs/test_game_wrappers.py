"""Wrappers for lives, the fire button, random actions and flickering frames, on toy games."""

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.envs.copies.histories import STEPS_OF_BLOCK
from tests.support.toys import Counter


class Lives(gym.Env[Any, Any]):
    """A game of three lives with ``steps`` steps each, which observes the step and a random number."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, steps: int = 4) -> None:
        self.steps, self.count = steps, 0
        self.ale = SimpleNamespace(lives=lambda: 3 - self.count // self.steps)
        self.actions: list[int] = []

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "LEFT", "FIRE"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.actions = 0, []
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(int(action))
        self.count += 1
        return self._shown(), 2.0, self.count == 3 * self.steps, False, {}

    def _shown(self) -> Any:
        return np.float32([self.count, self.np_random.random()])


def test_each_life_is_an_episode_and_the_game_continues_at_reset() -> None:
    env = prl.EpisodicLife(Lives())
    first, _ = env.reset(seed=0)
    assert first[0] == 0
    for life in range(3):
        ends = [env.step(0) for _ in range(4)]
        assert [end[2] for end in ends] == [False] * 3 + [True]
        assert env.goes_on_at_reset == (life < 2)
        observation, _ = env.reset()
        np.testing.assert_array_equal(observation, ends[-1][0] if life < 2 else observation)
        assert observation[0] == (4 * (life + 1) if life < 2 else 0)


def test_a_reset_with_a_seed_starts_a_new_game() -> None:
    env = prl.EpisodicLife(Lives())
    env.reset(seed=0)
    assert [env.step(0)[2] for _ in range(4)][-1]
    assert env.reset(seed=1)[0][0] == 0
    assert not env.goes_on_at_reset


def test_returns_cover_whole_games_of_clipped_rewards_and_lives() -> None:
    wrappers = ["EpisodicLife", ("ClipReward", {"min_reward": -1.0, "max_reward": 1.0})]
    envs = prl.VecEnv.create_factory(Lives, 2, wrappers=wrappers)()
    envs.reset(seed=0)
    finished, rewards, ends = [], 0.0, 0
    for _ in range(24):
        step = envs.step(np.zeros((2, 1), np.int64))
        finished += envs.finished_episodes
        rewards += step.reward.sum()
        ends += int(step.terminated.sum())
    assert [(record.episode_return, record.length) for record in finished] == [(24.0, 12)] * 4
    assert (rewards, ends) == (48.0, 12)
    envs.close()


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_reseeding_waits_for_the_end_of_a_game_and_running_games_are_restored(mode: Any) -> None:
    factory = prl.VecEnv.create_factory(Lives, 2, mode=mode, wrappers=["EpisodicLife"], env_kwargs={"steps": 100})
    envs, others = factory(), factory()
    envs.reset(seed=1)
    others.reset(seed=2)
    action = np.zeros((2, 1), np.int64)
    finished = []
    for _ in range(3 * STEPS_OF_BLOCK + 250):
        shown = envs.step(action).observation
        finished += envs.finished_episodes
    assert {record.length for record in finished} == {300}
    state = envs.state_dict()
    # A seed was due after one block and given when that game ended, after 600 steps; the next is due two blocks later.
    assert [len(history["actions"]) for history in state["histories"]] == [3 * STEPS_OF_BLOCK + 250 - 600] * 2
    resumption = others.load_state_dict(state)
    assert resumption.came_back.all()
    np.testing.assert_array_equal(resumption.observation, shown)
    assert others.running_episodes() == envs.running_episodes()
    for _ in range(700):
        step, other = envs.step(action), others.step(action)
        np.testing.assert_array_equal(step.observation, other.observation)
        np.testing.assert_array_equal(step.terminated, other.terminated)
    envs.close()
    others.close()


def test_fire_is_pressed_at_the_start_of_each_episode() -> None:
    game = Lives()
    env = prl.FireOnReset(prl.EpisodicLife(game))
    env.reset(seed=0)
    assert game.actions == [2]
    assert [env.step(0)[2] for _ in range(3)] == [False, False, True]
    env.reset()
    assert game.actions == [2, 0, 0, 0, 2]
    short = Lives(steps=1)
    assert prl.FireOnReset(prl.EpisodicLife(short)).reset(seed=0)[0][0] == 1


def test_games_without_a_fire_action_start_unchanged() -> None:
    game = Lives()
    game.get_action_meanings = lambda: ["NOOP", "LEFT", "RIGHT"]  # type: ignore[method-assign]
    assert prl.FireOnReset(game).reset(seed=0)[0][0] == 0


@pytest.mark.parametrize(
    "actions",
    [
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.Box(-1, 1, (2,), np.float32),
    ],
)
def test_actions_are_randomised_with_the_given_probability_and_seed(actions: spaces.Space[Any]) -> None:
    given = actions.sample() if not isinstance(actions, spaces.Discrete) else np.int64(3)

    def done(probability: float, seed: int) -> list[bytes]:
        game = Counter(length=10_000, actions=actions)
        env = prl.RandomizeAction(game, probability)
        env.reset(seed=seed)
        for _ in range(600):
            env.step(given)
        assert all(actions.contains(action) for action in game.actions)
        return [np.asarray(action).tobytes() for action in game.actions]

    assert set(done(0.0, 0)) == {np.asarray(given).tobytes()}
    assert done(0.3, 1) == done(0.3, 1) != done(0.3, 2)
    same = sum(action == np.asarray(given).tobytes() for action in done(0.3, 1)) / 600
    by_chance = {spaces.Discrete: 1 / 5, spaces.MultiDiscrete: 1 / 6, spaces.Box: 0.0}[type(actions)]
    assert same == pytest.approx(0.7 + 0.3 * by_chance, abs=0.08)


def test_frames_flicker_with_the_given_probability_within_stacks() -> None:
    wrappers = [("FlickerFrames", {"probability": 0.25}), ("FrameStackObservation", {"stack_size": 2})]
    envs = prl.VecEnv.create_factory(Counter, wrappers=wrappers, env_kwargs={"kind": "image", "length": 10_000})()
    assert envs.stacked_frames == 2
    envs.reset(seed=0)
    stacks = np.array([envs.step(np.zeros((1, 1), np.int64)).observation[0, :, 0, 0, 0] for _ in range(600)])
    counts = np.arange(1, 601) % 256
    assert set(np.unique(stacks[:, 1] - counts * (stacks[:, 1] > 0))) == {0}
    assert np.mean(stacks[:, 1] == 0) == pytest.approx(0.25, abs=0.05)
    np.testing.assert_array_equal(stacks[1:, 0], stacks[:-1, 1])
    envs.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: prl.EpisodicLife(Counter()), "EpisodicLife: .* is no game of the Arcade Learning Environment"),
        (lambda: prl.FireOnReset(Counter()), "FireOnReset: .* has no get_action_meanings"),
        (lambda: prl.RandomizeAction(Counter(), 1.5), r"RandomizeAction: probability must lie in \[0, 1\], got 1.5"),
        (lambda: prl.FlickerFrames(Counter(), -1.0), r"FlickerFrames: probability must lie in \[0, 1\], got -1.0"),
        (lambda: prl.FlickerFrames(Counter("discrete")), "FlickerFrames: observations must be a Box .* Discrete"),
    ],
)
def test_unsuitable_environments_and_invalid_probabilities_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
