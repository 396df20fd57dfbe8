"""State of an environment and its wrappers that lasts over episodes: statistics, the level of a curriculum."""

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import NormalizeReward

from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors


def layers_that_last(env: gym.Env[Any, Any]) -> list[Any]:
    """Return the environment and those of its wrappers with state that lasts over episodes, outermost first.

    They are gymnasium's ``NormalizeReward``, and those with the methods ``state_dict()`` and
    ``load_state_dict(state)``, of plain data and arrays.
    """
    return [layer for layer in _layers(env) if isinstance(layer, NormalizeReward) or _keeps_state(layer)]


def layers_with(env: gym.Env[Any, Any], name: str) -> list[Any]:
    """Return the environment and those of its wrappers that define an attribute themselves, outermost first."""
    # Wrappers do not forward attributes of the layers below.
    return [layer for layer in _layers(env) if hasattr(layer, name)]


def lasting_state(layers: Sequence[Any]) -> list[Any]:
    """Copy the state of each layer.

    Raises:
        TypeError: it is more than plain data and arrays.
    """
    return [_statistics(layer) if isinstance(layer, NormalizeReward) else _own_state(layer) for layer in layers]


def load_lasting_state(layers: Sequence[Any], states: Sequence[Any]) -> None:
    """Restore the saved state of each layer."""
    for layer, state in zip(layers, states, strict=True):
        if not isinstance(layer, NormalizeReward):
            layer.load_state_dict(copy.deepcopy(state))
            continue
        moments = layer.return_rms
        moments.mean, moments.var, moments.count = state["mean"].copy(), state["var"].copy(), state["count"]
        layer.discounted_reward = state["discounted_reward"].copy()


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _keeps_state(layer: Any) -> bool:
    return all(callable(getattr(layer, name, None)) for name in ("state_dict", "load_state_dict"))


def _own_state(layer: Any) -> Any:
    try:
        return as_arrays(as_tensors(layer.state_dict()))
    except TypeError as error:
        raise TypeError(f"{type(layer).__name__}.state_dict(): {error}") from error


def _statistics(layer: Any) -> dict[str, Any]:
    moments = layer.return_rms
    return {
        "mean": np.array(moments.mean),
        "var": np.array(moments.var),
        "count": float(moments.count),
        "discounted_reward": np.array(layer.discounted_reward),
    }
