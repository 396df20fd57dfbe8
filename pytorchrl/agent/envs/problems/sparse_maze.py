"""A maze with one reward, at its end, which random actions do not reach."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

_MOVES = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
_RIGHT, _DOWN, _LEFT = range(3)


class SparseMaze(gym.Env[NDArray[np.float32], np.int64]):
    """A serpentine maze of corridors; the end of the last one has a reward of 1, and there is no other.

    An episode starts at a random place in the first corridor and ends at the goal, or is cut after ``max_steps``. Steps
    into walls do nothing. Random actions practically never reach the goal: with the defaults, the shortest path has 41
    to 48 steps, and one in several million random episodes of 150 steps gets there. Observations are one-hot vectors of
    the place. ``gymnasium.make("pytorchrl/SparseMaze-v0", corridors=3)`` makes one too.

    Args:
        corridors: number of corridors.
        length: places in each.
        max_steps: after which an episode is cut.

    Raises:
        ValueError: there are fewer than two corridors, or two places, or no steps.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own way

    def __init__(self, corridors: int = 5, length: int = 9, max_steps: int = 150) -> None:
        if corridors < 2 or length < 2 or max_steps < 1:
            raise ValueError(
                f"SparseMaze: corridors and length must be at least 2, and max_steps 1, got corridors={corridors}, "
                f"length={length}, max_steps={max_steps}"
            )
        self._free = _map(corridors, length)
        self.observation_space = spaces.Box(0, 1, (self._free.size,), np.float32)
        self.action_space = spaces.Discrete(len(_MOVES))
        last = len(self._free) - 1
        self._goal = (last, length - 1 if corridors % 2 else 0)
        self._place = (0, 0)
        self._max_steps, self._steps = max_steps, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin in the first corridor, but not at its end."""
        super().reset(seed=seed)
        self._place = (0, int(self.np_random.integers(self._free.shape[1] - 1)))
        self._steps = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Go right, down, left or up."""
        row, column = (np.array(self._place) + _MOVES[action]).tolist()
        rows, columns = self._free.shape
        if 0 <= row < rows and 0 <= column < columns and self._free[row, column]:
            self._place = (row, column)
        self._steps += 1
        is_there = self._place == self._goal
        is_cut = self._steps >= self._max_steps and not is_there
        return self._observation(), float(is_there), is_there, is_cut, {"is_success": is_there}

    def shortest_way(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the actions (E, 1) of the shortest path to the goal, for observations (E, *obs)."""
        row, column = np.divmod(observations.argmax(1), self._free.shape[1])
        # Corridors lie in even rows, and every other one leads to the left.
        along = np.where(row % 4 == 0, _RIGHT, _LEFT)
        end = np.where(row % 4 == 0, self._free.shape[1] - 1, 0)
        goes_down = (row % 2 == 1) | ((column == end) & (row < len(self._free) - 1))
        return np.where(goes_down, _DOWN, along)[:, None].astype(np.int64)

    def _observation(self) -> NDArray[np.float32]:
        seen = np.zeros(self._free.shape, np.float32)
        seen[self._place] = 1
        return seen.ravel()


def _map(corridors: int, length: int) -> NDArray[np.bool_]:
    """Map where there is no wall, (rows, columns): corridors in even rows, a way down at alternate ends in odd ones."""
    free = np.zeros((2 * corridors - 1, length), np.bool_)
    free[::2] = True
    free[1::4, -1] = True
    free[3::4, 0] = True
    return free
