"""The recent actions of a vector of environments, by whose replay another one can be restored to its state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.action_log import STEPS_OF_BLOCK, ActionLog
from pytorchrl.agent.envs.copies.saved_histories import check_histories
from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors


class Histories:
    """The actions of a vector of :class:`Replayable` environments since each was last given a seed.

    Args:
        envs: the vector; reset with seeds, and each environment in the step in which its episode ends.
        owner: name of the component, for errors.
        replays: whether the environments are restored by repeating actions; else none are kept.
    """

    def __init__(self, envs: SyncVectorEnv | AsyncVectorEnv, owner: str, replays: bool) -> None:
        self._envs = envs
        self._owner = owner
        self._log = self._new_log() if replays else None
        self._observation: Any = None
        self._reward: NDArray[np.float64] = np.zeros(envs.num_envs)

    def begin(self, observation: Any) -> None:
        """Start anew: every environment was reset with a seed and returned this observation (E, *obs)."""
        self._observation = observation
        if self._log is not None:
            self._log = self._new_log()

    def add(
        self, actions: NDArray[Any], observation: Any, reward: NDArray[np.float64], seeded: Sequence[int] = ()
    ) -> None:
        """Append a step.

        Args:
            actions: (E, *action), of the action space's dtype.
            observation: (E, *obs), after the step; kept, not copied.
            reward: (E,), kept too.
            seeded: environments that were reset with a new seed in this step.
        """
        self._observation, self._reward = observation, reward
        if self._log is None:
            return
        block_is_full = self._log.add(actions)
        for env in seeded:
            self._log.begin(env)
        if block_is_full:
            # Not in every episode: with short ones, seeding would take most of the time.
            self._envs.set_attr("seed_due", [bool(length >= STEPS_OF_BLOCK) for length in self._log.lengths])

    def state_dict(self) -> dict[str, Any]:
        """Return the actions, and the seeds and states of the environments, as tensors and plain data.

        Raises:
            RuntimeError: the environments were never reset.
        """
        if self._observation is None:
            raise RuntimeError(f"{self._owner}: call reset() before state_dict(); there is nothing to save yet")
        histories = []
        for env, history in enumerate(self._envs.call("history")):
            shown = {"observation": _part(self._observation, env), "reward": self._reward[env]}
            actions = self._log.since(env) if self._log is not None else None
            histories.append(as_tensors(history | shown | {"actions": actions}))
        return {"steps": self._log.steps if self._log is not None else None, "histories": histories}

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[Any, NDArray[np.bool_]]:
        """Restore the environments to the saved state by replay.

        Returns:
            Their observations (E, *obs), and which of them were restored (E,); the others begin new episodes.

        Raises:
            ValueError: it is no such state, or was saved with another number of environments.
        """
        num_envs, space = self._envs.num_envs, self._envs.single_observation_space
        check_histories(state, num_envs, self._log is not None, self._envs.single_action_space, self._owner)
        histories = [as_arrays(history) for history in state["histories"]]
        self._envs.set_attr("saved", histories)
        observations, replayed = zip(*self._envs.call("replay"), strict=True)
        came_back = np.array(replayed)
        empty: Any = create_empty_array(space, num_envs)
        self._observation = concatenate(space, observations, empty)
        self._reward = np.array([history["reward"] for history in histories])
        if self._log is not None:
            self._log.restore(state["steps"], [history["actions"] for history in histories])
            for env in np.flatnonzero(~came_back):
                self._log.begin(int(env))
        return self._observation, came_back

    def _new_log(self) -> ActionLog:
        space = self._envs.single_action_space
        return ActionLog(self._envs.num_envs, space.shape or (), np.dtype(space.dtype))


def _part(observation: Any, env: int) -> Any:
    """Copy the observation of one environment."""
    if isinstance(observation, Mapping):
        return {name: _part(part, env) for name, part in observation.items()}
    return np.array(observation[env], order="C")
