"""Wrappers for games: episodes of a life, a button that starts them, and what makes them harder."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.spaces import EnvActions, random_actions


class EpisodicLife(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode where a life is lost; the next one goes on with the game, until that is over.

    Mnih et al., "Human-level control through deep reinforcement learning" (2015). Returns that a run reports are those
    of whole games all the same. A reset with a seed begins a new game.

    Args:
        env: a game of the Arcade Learning Environment.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._ale: Any = getattr(env.unwrapped, "ale", None)
        if self._ale is None:
            raise ValueError(f"EpisodicLife: {env} is no game of the Arcade Learning Environment, it has no lives")
        self.goes_on_at_reset = False
        """Whether the next reset without a seed goes on with the game."""
        self._lives = 0
        self._observation: Any = None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Terminated where a life is lost, too."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = self._ale.lives()
        # Some games show no life for a few frames before they are over.
        if 0 < lives < self._lives and not (terminated or truncated):
            self.goes_on_at_reset = terminated = True
            self._observation = observation
        self._lives = lives
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show what the next life begins with, or begin a game."""
        goes_on, self.goes_on_at_reset = self.goes_on_at_reset and seed is None, False
        if goes_on:
            return self._observation, {}
        result = self.env.reset(seed=seed, options=options)
        self._lives = self._ale.lives()
        return result


class FireOnReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses fire in the first step of an episode, in games that have it: some wait for it.

    ``pytorchrl/Atari-v0`` does so by itself, where a life begins; this is for other environments of such games.

    Args:
        env: says by ``get_action_meanings()`` which of its actions is FIRE.

    Raises:
        ValueError: it does not say what its actions mean.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        if not env.has_wrapper_attr("get_action_meanings"):
            raise ValueError(f"FireOnReset: {env} does not say what its actions mean, by get_action_meanings()")
        meanings: list[str] = env.get_wrapper_attr("get_action_meanings")()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with its first step done."""
        result = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return result
        observation, _, terminated, truncated, info = self.env.step(self._fire)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)


class RandomizeAction(gym.Wrapper[Any, Any, Any, Any]):
    """Does a random action in place of the one given, with a probability.

    With 0.05 it is how Mnih et al., "Human-level control through deep reinforcement learning" (2015), evaluate.

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
        """Step, perhaps at random."""
        if self.np_random.random() < self._probability:
            action = self._in_env(random_actions(self.env.action_space, 1, self.np_random))[0]
        return self.env.step(action)


class FlickerFrames(gym.ObservationWrapper[Any, Any, Any]):
    """Shows zeros in place of an observation, with a probability, so that a game must be remembered.

    Hausknecht and Stone, "Deep Recurrent Q-Learning for Partially Observable MDPs" (arXiv 1507.06527), section 5. It
    comes before ``FrameStackObservation``, so that single frames flicker.

    Args:
        env: whose observations are a Box in which zeros lie.
        probability: of zeros, drawn by the environment's own generator.

    Raises:
        ValueError: the probability does not lie in [0, 1], or zeros are no observation.
    """

    def __init__(self, env: gym.Env[Any, Any], probability: float = 0.5) -> None:
        super().__init__(env)
        self._probability = _checked(probability, "FlickerFrames")
        space = env.observation_space
        if not isinstance(space, spaces.Box) or not space.contains(np.zeros(space.shape, space.dtype)):
            raise ValueError(f"FlickerFrames: observations must be a Box in which zeros lie, the space is {space}")

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """The observation, or zeros."""
        return np.zeros_like(observation) if self.np_random.random() < self._probability else observation


def _checked(probability: float, owner: str) -> float:
    if not 0 <= probability <= 1:
        raise ValueError(f"{owner}: probability must lie in [0, 1], got {probability}")
    return probability
