"""Wrappers for games: episodic lives, the fire button, random actions and flickering frames."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.spaces import EnvActions, random_actions


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any]):
    """End an episode at the loss of a life; the next one continues the game, until that is over.

    Mnih et al., "Human-level control through deep reinforcement learning" (2015). Returns that a run reports are still
    those of whole games. A reset with a seed begins a new game.

    Args:
        env: a game of the Arcade Learning Environment.

    Raises:
        ValueError: it is not.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._ale: Any = getattr(env.unwrapped, "ale", None)
        if self._ale is None:
            raise ValueError(f"EpisodicLife: {env} is no game of the Arcade Learning Environment, it has no lives")
        self.goes_on_at_reset = False
        """Whether the next reset without a seed continues the game."""
        self._lives = 0
        self._observation: Any = None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; terminated also at the loss of a life."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = self._ale.lives()
        # Some games report 0 lives for a few frames before they are over.
        if 0 < lives < self._lives and not (terminated or truncated):
            self.goes_on_at_reset = terminated = True
            self._observation = observation
        self._lives = lives
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation of the next life, or begin a game."""
        goes_on, self.goes_on_at_reset = self.goes_on_at_reset and seed is None, False
        if goes_on:
            return self._observation, {}
        result = self.env.reset(seed=seed, options=options)
        self._lives = self._ale.lives()
        return result


class FireOnReset(gym.Wrapper[Any, Any, Any, Any]):
    """Press the fire button in the first step of an episode, in games that have it: some wait for it.

    ``pytorchrl/Atari-v0`` does so by itself, where a life begins; this is for other environments of such games.

    Args:
        env: says by ``get_action_meanings()`` which of its actions is FIRE.

    Raises:
        ValueError: it does not say what its actions mean.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if not env.has_wrapper_attr("get_action_meanings"):
            raise ValueError(f"FireOnReset: {env} has no get_action_meanings(), which names its actions")
        meanings: list[str] = env.get_wrapper_attr("get_action_meanings")()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and press the fire button."""
        result = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return result
        observation, _, terminated, truncated, info = self.env.step(self._fire)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)


class RandomizeAction(gym.Wrapper[Any, Any, Any, Any]):
    """Replace an action by a uniformly random one with a probability.

    With 0.05 it is the evaluation of Mnih et al., "Human-level control through deep reinforcement learning" (2015).

    Args:
        env: of any action space of arrays.
        probability: of a random action, drawn uniformly by the environment's own generator.

    Raises:
        ValueError: the probability does not lie in [0, 1].
    """

    def __init__(self, env: gym.Env[Any, Any], probability: float) -> None:
        super().__init__(env)
        self._probability = _checked(probability, "RandomizeAction")
        self._in_env = EnvActions(env.action_space)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step with the action or a random one."""
        if self.np_random.random() < self._probability:
            action = self._in_env(random_actions(self.env.action_space, 1, self.np_random))[0]
        return self.env.step(action)


class FlickerFrames(gym.ObservationWrapper[Any, Any, Any]):
    """Replace an observation by zeros with a probability, so that a game is partially observable.

    Hausknecht and Stone, "Deep Recurrent Q-Learning for Partially Observable MDPs" (arXiv 1507.06527), section 5. It
    comes before ``FrameStackObservation``, so that single frames flicker.

    Args:
        env: with a Box of observations that contains zeros.
        probability: of zeros, drawn by the environment's own generator.

    Raises:
        ValueError: the probability does not lie in [0, 1], or the Box does not contain zeros.
    """

    def __init__(self, env: gym.Env[Any, Any], probability: float = 0.5) -> None:
        super().__init__(env)
        self._probability = _checked(probability, "FlickerFrames")
        space = env.observation_space
        if not isinstance(space, spaces.Box) or not space.contains(np.zeros(space.shape, space.dtype)):
            raise ValueError(f"FlickerFrames: observations must be a Box that contains zeros, the space is {space}")

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """The observation, or zeros."""
        return np.zeros_like(observation) if self.np_random.random() < self._probability else observation


def _checked(probability: float, owner: str) -> float:
    if not 0 <= probability <= 1:
        raise ValueError(f"{owner}: probability must lie in [0, 1], got {probability}")
    return probability
