"""The recent actions of a vector of environments, by whose replay another one can be restored to its state."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors, is_generator
from storages.transition import Array

STEPS_OF_BLOCK = 512


class ActionLog:
    """The actions of ``E`` environments, as far back as a replay of any of them needs.

    Args:
        num_envs: environments.
        shape: of an action.
        dtype: of all actions.
    """

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._shape, self._dtype = (num_envs, *shape), dtype
        # This runs in every step, so that new actions are only appended, and joined in blocks.
        self._newest: list[bytes] = []
        self._blocks: deque[Array] = deque()
        self._first = 0
        """Number of the first step of the blocks."""
        self._begins: NDArray[np.int64] = np.zeros(num_envs, np.int64)

    def add(self, actions: Array) -> bool:
        """Append the actions of a step (E, *action); return whether it completed a block."""
        self._newest.append(actions.tobytes())
        return len(self._newest) == STEPS_OF_BLOCK and self._close_block()

    def begin(self, env: int) -> None:
        """Discard the actions of an environment so far."""
        self._begins[env] = self.steps

    @property
    def steps(self) -> int:
        """Number of steps that were appended."""
        return self._first + STEPS_OF_BLOCK * len(self._blocks) + len(self._newest)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(E,): steps of each environment since :meth:`begin`."""
        return self.steps - self._begins

    def since(self, env: int) -> Array:
        """Return the actions of an environment since :meth:`begin`, (steps, *action)."""
        rows = np.concatenate([*self._blocks, self._put_together()])
        return rows[self._begins[env] - self._first :, env].copy()

    def restore(self, steps: int, actions: Sequence[Array]) -> None:
        """Restore a log of ``steps`` steps, of which :meth:`since` returned these for each environment."""
        self._begins = steps - np.array([len(given) for given in actions])
        oldest = int(self._begins.min())
        self._first = oldest - oldest % STEPS_OF_BLOCK
        rows = np.zeros((steps - self._first, *self._shape), self._dtype)
        for env, given in enumerate(actions):
            rows[len(rows) - len(given) :, env] = given
        whole = len(rows) - len(rows) % STEPS_OF_BLOCK
        self._blocks = deque(rows[start : start + STEPS_OF_BLOCK] for start in range(0, whole, STEPS_OF_BLOCK))
        self._newest = [row.tobytes() for row in rows[whole:]]

    def _put_together(self) -> Array:
        return np.frombuffer(b"".join(self._newest), self._dtype).reshape(-1, *self._shape)

    def _close_block(self) -> bool:
        self._blocks.append(self._put_together())
        self._newest = []
        needed = int(self._begins.min())
        while self._blocks and self._first + STEPS_OF_BLOCK <= needed:
            self._blocks.popleft()
            self._first += STEPS_OF_BLOCK
        return True


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
        """Discard all actions: every environment was reset with a seed and returned this observation (E, *obs)."""
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


_NAMES = ("seed", "seed_due", "lasting", "seeds", "observation", "reward", "actions")
_MOST_STEPS = 1 << 62


def check_histories(state: Any, num_envs: int, replays: bool, space: gym.Space[Any] | None, owner: str) -> None:
    """Refuse a state that no vector of environments can be restored from.

    Args:
        state: what :meth:`Histories.state_dict` returned.
        num_envs: number of environments.
        replays: whether they are restored by repeating actions.
        space: of actions; None does not compare them with it.
        owner: name of the component, for errors.

    Raises:
        ValueError: it is no such state, or one of another number of environments.
    """
    histories = state.get("histories") if isinstance(state, Mapping) else None
    if not isinstance(histories, list | tuple):
        raise ValueError(f"{owner}: the saved state of the environments has no list of histories")
    if len(histories) != num_envs:
        raise ValueError(
            f"{owner}: made for {num_envs} environments, saved with {len(histories)}; make it with "
            f"num_envs={len(histories)}"
        )
    steps = state.get("steps")
    if replays and not (type(steps) is int and 0 <= steps < _MOST_STEPS):
        raise ValueError(f"{owner}: the saved state of the environments has {steps!r} as the number of steps")
    for env, history in enumerate(histories):
        flaw = _flaw_of(history)
        if flaw is None and replays:
            flaw = _flaw_of_actions(history["actions"], steps, space)
        if flaw is not None:
            raise ValueError(f"{owner}: the saved state of environment {env} has {flaw}")


def _flaw_of(history: Any) -> str | None:
    if not isinstance(history, Mapping):
        return f"a {type(history).__name__} as its history"
    missing = [name for name in _NAMES if name not in history]
    if missing:
        return f"no {', '.join(map(repr, missing))}"
    seed, reward = history["seed"], history["reward"]
    if type(seed) is not int or seed < 0:
        return f"{seed!r} as its seed"
    if type(history["seed_due"]) is not bool:
        return f"{history['seed_due']!r} as whether a seed is due"
    if not isinstance(history["lasting"], list | tuple):
        return f"a {type(history['lasting']).__name__} as the states of its wrappers"
    if type(reward) not in (int, float):
        return f"{reward!r} as its reward"
    if not _holds_arrays(history["observation"]):
        return "an observation that is no array"
    return None if is_generator(history["seeds"]) else "no state of a generator as its later seeds"


def _holds_arrays(observation: Any) -> bool:
    if isinstance(observation, Mapping):
        return all(map(_holds_arrays, observation.values()))
    return isinstance(observation, torch.Tensor | np.ndarray)


def _flaw_of_actions(actions: Any, steps: int, space: gym.Space[Any] | None) -> str | None:
    if not isinstance(actions, torch.Tensor | np.ndarray) or actions.ndim == 0:
        return f"a {type(actions).__name__} as its actions"
    if len(actions) > steps:
        return f"{len(actions)} actions in {steps} steps"
    taken: NDArray[Any] = as_arrays(actions)
    if space is None:
        return None
    if taken.shape[1:] != space.shape or not np.can_cast(taken.dtype, np.dtype(space.dtype), "same_kind"):
        return f"actions {taken.dtype}{taken.shape}, of the space {space}"
    return f"an action outside of {space}" if _outside(taken, space) else None


def _outside(actions: NDArray[Any], space: gym.Space[Any]) -> bool:
    """Whether integers are outside of a space; numbers of a Box may be, because environments clip them."""
    match space:
        case spaces.Discrete():
            outside = (actions < space.start) | (actions >= space.start + space.n)
        case spaces.MultiDiscrete():
            outside = (actions < space.start) | (actions >= space.start + space.nvec)
        case spaces.MultiBinary():
            outside = (actions < 0) | (actions > 1)
        case _:
            return False
    return bool(outside.any())
