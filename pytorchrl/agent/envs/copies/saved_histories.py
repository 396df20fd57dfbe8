"""Validation of the saved state of environments, before they exist: a checkpoint may have been changed."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.plain_data import as_arrays, is_generator

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
