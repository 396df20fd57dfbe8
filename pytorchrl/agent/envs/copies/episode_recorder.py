"""Returns and lengths of an environment's own episodes, below all wrappers of the user's."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from pytorchrl.agent.envs.checks import CHECKED_STEPS, InvalidEnvironmentError, ShapeCheck, check_reset, check_step
from pytorchrl.agent.envs.copies.infos import copied_info

FINISHED = "pytorchrl/finished_episodes"
"""Key of an environment's ``info`` with a list of :data:`Finished`, one for each episode that ended, if any did."""

Finished: TypeAlias = tuple[float, int, dict[str, float]]
"""Return and length of an episode, and the numbers recorded of the info of its last step."""


@dataclass(frozen=True)
class EpisodeRecord:
    """An episode of one environment, as of the environment itself, below all wrappers."""

    environment: int
    """Index of the environment in its vector."""
    episode_return: float
    """Sum of the rewards, before any wrapper."""
    length: int
    """Steps of the environment: with a wrapper that repeats actions, more than the actor took."""
    reported: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Numbers that the environment reported in the info of the last step, such as its success."""


class EpisodeRecorder:
    """Record the return and the length of each episode of an environment.

    An episode ends where the environment terminates or truncates it, or where it is reset before that. The results of
    the environment's first steps are checked, and that of a later step where it cannot be recorded.

    The environment's ``step`` and ``reset`` are replaced by those here. A wrapper would do the same, but would hide the
    attributes of the environment from the wrappers around it.

    Args:
        env: the environment as it was made, with gymnasium's own ``TimeLimit``, without the user's wrappers.
        reports: keys of numbers in the last step's info that are recorded, where it has them.
    """

    def __init__(self, env: gym.Env[Any, Any], reports: Sequence[str] = ()) -> None:
        self.env = env
        self._reports = tuple(reports)
        self.episode_return = 0.0
        """Of the running episode."""
        self.length = 0
        """Of the running episode; 0 where there is none."""
        self._finished: list[Finished] = []
        self._info: Mapping[str, Any] = {}
        self._inside = False
        self._unchecked = CHECKED_STEPS
        self._check_shape = ShapeCheck(env)
        self._step, self._reset = env.step, env.reset
        env.step, env.reset = self._recorded_step, self._recorded_reset  # type: ignore[method-assign]

    def take_finished(self) -> list[Finished]:
        """Return the episodes that ended since the last call, oldest first."""
        finished = self._finished
        if finished:
            self._finished = []
        return finished

    def _recorded_step(self, action: Any) -> Any:
        if self._inside:
            return self._step(action)
        # Environments may reset themselves at the end of a step, or step in a reset.
        self._inside = True
        try:
            result = self._step(action)
        finally:
            self._inside = False
        if self._unchecked:
            check_step(result, self.env)
            self._unchecked -= 1
        try:
            self.episode_return += float(result[1])
            self.length += 1
            self._check_shape(result[0], self.length)
            self._info = result[4]
            if result[2] or result[3]:
                self._finish()
                # The reset that follows may write into the memory of these.
                return deepcopy(result[0]), *result[1:4], copied_info(result[4])
        except InvalidEnvironmentError:
            raise
        except Exception:
            # The check of the first steps names what is wrong, in any step that goes wrong by it.
            check_step(result, self.env)
            raise
        return result

    def _recorded_reset(self, **arguments: Any) -> Any:
        if self._inside:
            return self._reset(**arguments)
        if self.length:
            # Now, as the reset may write over the last info.
            self._finish()
        self._inside = True
        try:
            result = self._reset(**arguments)
        finally:
            self._inside = False
        if self._unchecked:
            check_reset(result, self.env)
        self._check_shape(result[0], 0)
        return result

    def _finish(self) -> None:
        reported = {name: float(self._info[name]) for name in self._reports if is_number(self._info.get(name))}
        self._finished.append((self.episode_return, self.length, reported))
        self.episode_return, self.length, self._info = 0.0, 0, {}


def is_number(value: Any) -> bool:
    """Whether an entry of an info is a single number, or a boolean."""
    return isinstance(value, bool | int | float | np.generic) and np.asarray(value).dtype.kind in "biuf"
