"""Returns of the stored rewards, which wrappers and reward normalisation may have changed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class ShapedReturns:
    """Sums stored rewards over the stored episodes, which wrappers may end earlier than the environment does.

    Args:
        num_envs: E, the number of environments.
    """

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros((num_envs, 1))
        self._ended: list[float] = []

    def add(self, reward: NDArray[np.floating], ended: NDArray[np.bool_]) -> None:
        """Add the rewards of a step, (E, 1), and whether the episodes ended with it, (E, 1)."""
        self._running += reward
        if ended.any():
            self._ended += self._running[ended].tolist()
            self._running[ended] = 0.0

    def begin_episodes(self, where: NDArray[np.bool_]) -> None:
        """Drop the running episodes of some environments, (E, 1)."""
        self._running[where] = 0.0

    def take(self) -> list[float]:
        """Return the returns of the episodes that ended since the last call, oldest first."""
        ended, self._ended = self._ended, []
        return ended

    def state_dict(self) -> dict[str, Any]:
        """Return the running sums and the returns not taken yet, as tensors and plain data."""
        return {"running": torch.from_numpy(self._running.copy()), "ended": list(self._ended)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._running, self._ended = state["running"].numpy().copy(), list(state["ended"])
