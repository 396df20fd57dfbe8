"""An environment whose reward is the sum of two terms, which its infos contain."""

from typing import Any

import gymnasium as gym
import numpy as np


class PaidMoves(gym.Env[Any, Any]):
    """Moves on a line for some steps, is paid for the place, and pays for the force of the move.

    Args:
        length: steps of an episode.
        reports: which of the entries "place", "force" and "both" (an array of the two) its infos have.
        pays: factor of the reward, but not of its terms.
    """

    observation_space = gym.spaces.Box(-50, 50, (1,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(
        self, length: int = 5, reports: tuple[str, ...] = ("place", "force", "both"), pays: float = 1.0
    ) -> None:
        self._length, self._reports, self._pays = length, reports, pays

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._place, self._steps = float(self.np_random.normal()), 0
        # Infos of a reset, which must not replace those of the last step.
        return self._seen(), self._infos(-77.0, -77.0)

    def step(self, action: Any) -> Any:
        self._place += float(action[0])
        self._steps += 1
        place, force = self._place, -0.1 * float(action[0]) ** 2
        over = self._steps == self._length
        return self._seen(), self._pays * (place + force), over, False, self._infos(place, force)

    def _infos(self, place: float, force: float) -> dict[str, Any]:
        infos = {"place": place, "force": force, "both": np.array([place, force])}
        return {name: info for name, info in infos.items() if name in self._reports}

    def _seen(self) -> Any:
        return np.array([self._place], np.float32)
