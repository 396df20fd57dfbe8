"""Contents of the storages of ``persistence.py``: random numbers, CartPole, and frames like Pong's."""

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.shared.pong_like import PongLike
from benchmarks.storages.replay_content import ACTION, FRAMES, OBSERVATION, Content

_SEED = 1
_EPISODE = 1_000
_CIRCLE = 20_000
"""Steps after which numbers repeat: more than are compressed together, so that no compression finds out."""


def numbers(transitions: int, environments: int = 1) -> Content:
    """Return incompressible random numbers; episodes of 1,000 steps that end at different steps."""
    generator = np.random.default_rng(_SEED)
    steps = min(_CIRCLE, max(_EPISODE, transitions // environments)) // _EPISODE * _EPISODE
    shape = (steps, environments)
    step, environment = np.arange(steps)[:, None], np.arange(environments)[None]
    done = ((step + 37 * environment) % _EPISODE == _EPISODE - 1)[..., None]
    observation = generator.standard_normal((*shape, OBSERVATION), np.float32)
    next_observation = np.roll(observation, -1, axis=0)
    next_observation[done[..., 0]] = generator.standard_normal((int(done.sum()), OBSERVATION), np.float32)
    return Content(
        transitions,
        observation,
        generator.standard_normal((*shape, ACTION), np.float32),
        generator.standard_normal((*shape, 1), np.float32),
        next_observation,
        np.zeros_like(done),
        done,
    )


def cartpole(transitions: int) -> Content:
    """Return transitions of CartPole-v1 with random actions."""
    return _played(gym.make("CartPole-v1"), transitions)


def pong(transitions: int) -> Content:
    """Return stacks of four frames like Pong's, with random actions."""
    return _played(gym.wrappers.FrameStackObservation(PongLike(), FRAMES), transitions)


def _played(env: gym.Env[Any, Any], transitions: int) -> Content:
    env.action_space.seed(_SEED)
    observation, _ = env.reset(seed=_SEED)
    steps: list[tuple[Any, ...]] = []
    for _ in range(transitions):
        action = env.action_space.sample()
        following, reward, terminated, truncated, _ = env.step(action)
        steps.append((observation, [action], [reward], following, [terminated], [truncated]))
        observation = env.reset()[0] if terminated or truncated else following
    env.close()
    observations, actions, rewards, followings, terminations, truncations = (
        np.stack([np.asarray(value) for value in values])[:, None] for values in zip(*steps, strict=True)
    )
    return Content(
        transitions, observations, actions, rewards.astype(np.float32), followings, terminations, truncations
    )


class PickledList:
    """A dict for each transition with the environment's arrays; pickle writes each shared observation once."""

    name = "pickled list"
    share_of_filling = 1

    def fill(self, content: Content, folder: Path) -> None:
        """Write the file."""
        assert content.environments == 1
        assert content.transitions == len(content.observation)
        transitions = []
        observation = content.observation[0, 0]
        for step in range(content.transitions):
            following = content.next_observation[step, 0]
            transitions.append(
                {
                    "observation": observation,
                    "action": content.action[step, 0, 0],
                    "reward": float(content.reward[step, 0, 0]),
                    "next_observation": following,
                    "terminated": bool(content.terminated[step, 0, 0]),
                    "truncated": bool(content.truncated[step, 0, 0]),
                }
            )
            ended = content.done[step, 0, 0] and step + 1 < content.transitions
            observation = content.observation[step + 1, 0] if ended else following
        folder.mkdir()
        (folder / "transitions.pickle").write_bytes(pickle.dumps(transitions))
