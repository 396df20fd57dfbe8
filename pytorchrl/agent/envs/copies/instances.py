"""Which environments are in use in this process, so that none is stepped by two of its users."""

import os
from typing import Any
from weakref import WeakValueDictionary

import gymnasium as gym

from pytorchrl.agent.envs.checks import InvalidEnvironmentError

# Not an attribute of the environment, which may forbid any, be copied, or be pickled.
_IN_USE: WeakValueDictionary[int, gym.Env[Any, Any]] = WeakValueDictionary()
"""The outermost wrapper of each environment in use, by the identity of the innermost one, which it keeps alive."""

if hasattr(os, "register_at_fork"):
    # The environments that a parent process uses are not in use in its forked child.
    os.register_at_fork(after_in_child=_IN_USE.clear)


def refuse_in_use(env: gym.Env[Any, Any], origin: str) -> None:
    """Refuse an environment that was returned before, and is in use.

    Args:
        env: the environment, with any wrappers.
        origin: what made it, for the message.

    Raises:
        InvalidEnvironmentError: it is in use.
    """
    if id(env.unwrapped) in _IN_USE:
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} returned {env.unwrapped} again, which is in use by this or another VecEnv: their steps "
            f"would mix. Make a new environment in each call, also for evaluation: lambda: "
            f"{type(env.unwrapped).__name__}(...), or close the other VecEnv first"
        )


def mark(env: gym.Env[Any, Any]) -> None:
    """Mark an environment as in use, until it is released or its outermost wrapper is deleted."""
    _IN_USE[id(env.unwrapped)] = env


def release(env: gym.Env[Any, Any]) -> None:
    """Release an environment; nothing if another user has marked it since."""
    if _IN_USE.get(id(env.unwrapped)) is env:
        del _IN_USE[id(env.unwrapped)]
