"""Which wrappers of a run change actions, so that its policy does not act in the units of the environment below."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from pytorchrl.agent.envs.copies.making import class_of_wrapper
from pytorchrl.agent.envs.wrappers.action_wrappers import BoundAction
from pytorchrl.experiments.runs.user_modules import factory_function


def action_wrappers(wrappers: Sequence[Any]) -> tuple[str, ...]:
    """Return those of the wrappers of environments that change actions, as code, first to last.

    Args:
        wrappers: as :class:`VecEnv` takes them, or as a run's configuration describes them: classes of a user's are
            found in imported modules.
    """
    return tuple(_as_code(wrapper) for wrapper in wrappers if _changes_actions(wrapper))


def action_wrappers_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """As :func:`action_wrappers`, of a run's configuration."""
    described = config.get("train_envs") or config.get("test_envs") or {}
    return action_wrappers(described.get("hyper_parameters", {}).get("wrappers") or ())


def warning_of(wrappers: tuple[str, ...], action_space: gym.Space[Any]) -> str:
    """Return that a policy acts above wrappers, and what to do about it."""
    return (
        f"the policy acts in {action_space}, which its run's {' and '.join(wrappers)} takes, not in the units of the "
        f"environment below: wrap the environment of your loop in the same way, or change the actions as the wrapper "
        f"does, those of an exported policy too (docs/guides/deployment.md)"
    )


def _changes_actions(wrapper: Any) -> bool:
    if isinstance(wrapper, Mapping):
        made_by = factory_function(str(wrapper.get("callable")))
    elif isinstance(wrapper, str | list | tuple):
        made_by = class_of_wrapper(wrapper if isinstance(wrapper, str) else wrapper[0])
    else:
        made_by = wrapper.func if isinstance(wrapper, functools.partial) else wrapper
    return isinstance(made_by, type) and issubclass(made_by, gym.ActionWrapper) and made_by is not BoundAction


def _as_code(wrapper: Any) -> str:
    if isinstance(wrapper, Mapping):
        return str(wrapper["callable"])
    if isinstance(wrapper, str):
        return wrapper
    if callable(wrapper):
        return str(getattr(wrapper, "func", wrapper).__name__)
    name, arguments = wrapper
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
