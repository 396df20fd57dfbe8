"""Wrappers that give an environment the action space that an algorithm needs."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.spaces import with_bounds


class BoundAction(gym.ActionWrapper[Any, Any, Any]):
    """Give finite bounds to the components of an action that have none; actions are not changed.

    Args:
        env: with a Box action space.
        low: the lowest value of components without a lower bound.
        high: the highest value of components without an upper bound.

    Raises:
        ValueError: the action space is not a Box, or a bound is not finite, or lies on the wrong side of the other one.
    """

    def __init__(self, env: gym.Env[Any, Any], low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, spaces.Box):
            raise ValueError(f"BoundAction: the action space must be a Box, it is {space}")
        lows = np.where(np.isfinite(space.low), space.low, low).astype(space.dtype)
        highs = np.where(np.isfinite(space.high), space.high, high).astype(space.dtype)
        if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (lows < highs).all()):
            raise ValueError(f"BoundAction: low and high must be finite, low below high, in {space}; got {low}, {high}")
        self.action_space = with_bounds(space, lows, highs)

    def action(self, action: Any) -> Any:
        """Return the action unchanged."""
        return action


class RoundAction(gym.ActionWrapper[Any, Any, Any]):
    """Replace a Box of integers by one of real numbers, which are rounded to the nearest integers.

    Args:
        env: with a Box of integers as action space.

    Raises:
        ValueError: the action space is not a Box of integers.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, spaces.Box) or np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"RoundAction: the action space must be a Box of integers, it is {space}")
        self._integers = space
        self.action_space = spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)

    def action(self, action: NDArray[Any]) -> NDArray[Any]:
        """Round to integers of the environment's own dtype."""
        return rounded(action, self._integers)


class FlattenAction(gym.ActionWrapper[Any, Any, Any]):
    """Flatten a MultiDiscrete or MultiBinary action space to a Discrete one of all combinations.

    Args:
        env: with several discrete actions at once.

    Raises:
        ValueError: the actions are of another kind, or have more than a million combinations.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.action_space
        if isinstance(space, spaces.MultiDiscrete):
            choices, self._start = space.nvec, space.start
        elif isinstance(space, spaces.MultiBinary):
            choices, self._start = np.full(space.shape, 2), np.zeros(space.shape, space.dtype)
        else:
            raise ValueError(f"FlattenAction: the action space must be MultiDiscrete or MultiBinary, it is {space}")
        combinations = float(np.prod(choices, dtype=np.float64))
        if combinations > _MOST_COMBINATIONS:
            raise ValueError(
                f"FlattenAction: {space} has {combinations:.3g} combinations, at most {_MOST_COMBINATIONS:,} can be "
                f"numbered; PPO learns each component by itself"
            )
        self._choices, self._dtype = choices, space.dtype
        self.action_space = spaces.Discrete(int(combinations))

    def action(self, action: Any) -> NDArray[Any]:
        """Return the combination of an index."""
        combination = np.unravel_index(int(action), self._choices.ravel())
        chosen = np.array(combination, self._dtype).reshape(self._choices.shape)
        return chosen + self._start


class RepeatAction(gym.Wrapper[Any, Any, Any, Any]):
    """Repeat each action for several steps, whose rewards are summed; the observation is that after the last one.

    Mnih et al., "Human-level control through deep reinforcement learning" (2015) call this a frame skip. The end of an
    episode ends the repetition.

    Args:
        env: of any spaces.
        times: steps for each action.

    Raises:
        ValueError: ``times`` is less than 1.
    """

    def __init__(self, env: gym.Env[Any, Any], times: int = 2) -> None:
        super().__init__(env)
        if times < 1:
            raise ValueError(f"RepeatAction: times must be at least 1, got {times}")
        self._times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step until the repetitions or the episode are over."""
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


def rounded(action: NDArray[Any], integers: spaces.Box) -> NDArray[Any]:
    """Round real numbers to the nearest element of a Box of integers."""
    bounded: NDArray[Any] = np.clip(np.rint(action), integers.low, integers.high)
    return bounded.astype(integers.dtype)


_MOST_COMBINATIONS = 1_000_000
