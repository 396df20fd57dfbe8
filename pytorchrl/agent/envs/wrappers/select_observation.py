"""Selection of components of an observation, for partially observable tasks."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class SelectObservation(gym.ObservationWrapper[Any, Any, Any]):
    """Select components of a vector, in the given order: CartPole without velocities is ``[0, 2]``.

    Args:
        env: whose observations are vectors.
        indices: of the components.

    Raises:
        ValueError: observations are not vectors, or an index is out of range.
    """

    def __init__(self, env: gym.Env[Any, Any], indices: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"SelectObservation: observations must be vectors, the space is {space}")
        wrong = [index for index in indices if not 0 <= index < space.shape[0]]
        if wrong or not len(indices):
            raise ValueError(
                f"SelectObservation: indices must be some of 0 to {space.shape[0] - 1}, got {list(indices)}"
            )
        self._indices = np.array(indices)
        low, high = space.low[self._indices], space.high[self._indices]
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Select the components."""
        selected: NDArray[Any] = observation[self._indices]
        return selected
