"""Construction of native vector environments: by callables, gymnasium's entry points, ALE and EnvPool."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import gymnasium as gym
from gymnasium.vector import VectorEnv

from pytorchrl.agent.envs.copies.making import is_named, refuse_normalized_observations
from pytorchrl.agent.envs.other_packages import find_registered, require, settings_of

Backend: TypeAlias = Literal["gymnasium", "envpool", "ale"]


def is_native(env: Any, vectorization_mode: str | None, backend: str) -> bool:
    """Whether an environment is a native vector environment, by its settings or its parameter ``num_envs``."""
    return vectorization_mode is not None or backend != "gymnasium" or takes_num_envs(env)


def takes_num_envs(env: Any) -> bool:
    """Whether a callable makes a vector environment: it has a parameter ``num_envs``."""
    if not callable(env):
        return False
    try:
        return "num_envs" in inspect.signature(env).parameters
    except (TypeError, ValueError):
        return False


def check_native(env: Any, vectorization_mode: str | None, backend: str, owner: str) -> None:
    """Refuse settings that do not make a native vector environment.

    Raises:
        gymnasium.error.DependencyNotInstalled: the backend's package is not installed.
        ValueError: there is no such id, or it has no vector environment.
    """
    if vectorization_mode is not None and backend != "gymnasium":
        raise ValueError(
            f"{owner}: vectorization_mode={vectorization_mode!r} needs backend='gymnasium', got backend={backend!r}; "
            f"give one of them"
        )
    if backend == "gymnasium" and vectorization_mode is None:
        return
    if not isinstance(env, str):
        given = f"backend={backend!r}" if backend != "gymnasium" else f"vectorization_mode={vectorization_mode!r}"
        raise ValueError(f"{owner}: {given} needs an id, got {env!r}; a callable that takes num_envs needs neither")
    if backend == "envpool":
        known = require("envpool", owner).list_all_envs()
        if env not in known:
            alike = [name for name in known if env.partition("-")[0].partition("/")[2].lower() in name.lower()]
            raise ValueError(f"{owner}: envpool has no {env!r}; it has {', '.join(sorted(alike or known)[:8])}, ...")
    elif backend == "ale":
        settings_of(env, owner)
    elif gym.spec(env).vector_entry_point is None:
        raise ValueError(
            f"{owner}: {env!r} has no vector environment of its own (its spec has no vector_entry_point); leave out "
            f"vectorization_mode for copies that are stepped one after the other, or in processes by mode='async'"
        )


def refuse_native(hyper_parameters: Mapping[str, Any], owner: str) -> None:
    """Refuse a native vector environment where a single environment is needed.

    Raises:
        ValueError: the settings make one.
    """
    env = hyper_parameters["env"]
    if is_native(env, hyper_parameters.get("vectorization_mode"), hyper_parameters.get("backend", "gymnasium")):
        raise ValueError(
            f"{owner}: {env!r} steps many environments at once, but a single one is needed to show it; "
            f"give the scheme test_envs_factory, with copies of a single environment (no vectorization_mode, no "
            f"backend)"
        )


def make_native(
    env: str | Callable[..., Any], num_envs: int, backend: Backend, settings: Mapping[str, Any]
) -> tuple[Any, int]:
    """Make a native vector environment; return it and the number of frames in an observation, 0 without a stack.

    Args:
        env: an id, or a callable that takes ``num_envs``.
        num_envs: number of environments.
        backend: library of the id.
        settings: further arguments of its constructor.
    """
    if not isinstance(env, str):
        return env(num_envs=num_envs, **settings), 0
    if backend == "envpool":
        from pytorchrl.agent.envs.native.backends import EnvPoolEnvs

        pool = EnvPoolEnvs(env, num_envs, **settings)
        return pool, pool.stacked_frames
    if backend == "ale":
        from pytorchrl.agent.envs.native.backends import AleEnvs

        ale = AleEnvs(env, num_envs, **settings)
        return ale, ale.stacked_frames
    find_registered(env)
    return gym.make_vec(env, num_envs, vectorization_mode="vector_entry_point", **settings), 0


def wrap_native(envs: VectorEnv[Any, Any, Any], wrappers: Sequence[Any]) -> VectorEnv[Any, Any, Any]:
    """Put wrappers of vector environments around a vector environment, first to last."""
    for wrapper in wrappers:
        if isinstance(wrapper, str) or is_named(wrapper):
            name, arguments = (wrapper, {}) if isinstance(wrapper, str) else wrapper
            wrapper = getattr(gym.wrappers.vector, name)
            envs = wrapper(envs, **arguments)
        else:
            envs = wrapper(envs)
    return envs


def check_vector_wrapper(wrapper: Any, owner: str) -> None:
    """Refuse wrappers of vector environments that do not exist, or cannot be used.

    Raises:
        ValueError: it is one of these.
    """
    name = wrapper if isinstance(wrapper, str) else wrapper[0] if is_named(wrapper) else None
    refuse_normalized_observations(wrapper if name is None else name, owner)
    if name is not None and not hasattr(gym.wrappers.vector, name):
        raise ValueError(
            f"{owner}: wrappers: gymnasium.wrappers.vector has no {name!r}; a vector environment takes these, "
            f"and callables from a VectorEnv to a VectorEnv"
        )
    if name is None and not callable(wrapper):
        raise ValueError(f"{owner}: wrappers: {wrapper!r} is neither a name, a (name, arguments) pair nor a callable")
