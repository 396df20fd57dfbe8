"""Checks that an environment follows gymnasium's interface, with readable errors."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.wrappers.flat_observation import SEPARATOR

CHECKED_STEPS = 3
"""Number of first steps of each environment that are checked."""


class InvalidEnvironmentError(ValueError):
    """Raised for an environment that violates gymnasium's interface, or its own spaces."""


def refuse_vector(env: Any, name: str) -> None:
    """Refuse a vector environment that was made already, or a list of functions of which one is made.

    Args:
        env: the argument.
        name: of the class that takes it.

    Raises:
        ValueError: the text says what to write.
    """
    if isinstance(env, list | tuple) and all(map(callable, env)):
        raise ValueError(
            f"{name}: env is a {type(env).__name__} of {len(env)} functions; give one of them, and the number of "
            f"copies: {name}.create_factory(make_env, num_envs={len(env)})"
        )
    if _is_made_vector(env):
        spec = getattr(env, "spec", None)
        of_one = "make_env" if spec is None else repr(spec.id)
        raise ValueError(
            f"{name}: env is a vector environment that was made already, {_shown(env)}; {name} makes copies of one "
            f"environment, by its id or a function that makes it: {name}.create_factory({of_one}, "
            f"num_envs={env.num_envs})"
        )


def refuse_instance(env: Any, name: str) -> None:
    """Refuse an environment in place of its id, its class or a function that makes one.

    Args:
        env: the argument.
        name: of the class that takes it.

    Raises:
        ValueError: the text says what to write.
    """
    if not isinstance(env, gym.Env):
        return
    inner = type(env.unwrapped).__name__
    way_out = f"pass the class, {inner}, and its arguments as env_kwargs, or a function that makes one"
    if env.spec is not None:
        way_out = f"give its id, {env.spec.id!r}, or a function that makes one"
    raise ValueError(
        f"{name}: env is an instance, {env}; each copy has to be a new one: {way_out}, lambda: {inner}(...)"
    )


def _is_made_vector(env: Any) -> bool:
    """Whether it is a vector environment of gymnasium, stable-baselines3, Tianshou or their like."""
    if isinstance(env, type | str | gym.Env):
        return False
    return isinstance(env, gym.vector.VectorEnv) or all(hasattr(env, part) for part in ("num_envs", "reset", "step"))


def check_made(env: Any, origin: str) -> None:
    """Refuse an object that is not a gymnasium environment, before it is reset.

    Args:
        env: the object, with all its wrappers.
        origin: what made it, for the message.

    Raises:
        InvalidEnvironmentError: it is not a ``gymnasium.Env``, has no spaces, or ``reset`` does not take a seed.
    """
    if _is_made_vector(env):
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} made a vector environment, {_shown(env)}; it has to make one environment, of which "
            f"VecEnv makes copies: VecEnv.create_factory(make_env, num_envs={env.num_envs})"
        )
    if not isinstance(env, gym.Env):
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} made {_shown(env)}, which is no gymnasium.Env; derive it from gymnasium.Env, return it "
            f"from the callable, or wrap an environment of the older gym by the package shimmy; a program that calls "
            f"the policy itself needs no environment: prl.Agent"
        )
    layer: Any = env
    while True:
        for name in ("observation_space", "action_space"):
            if not isinstance(getattr(layer, name, None), spaces.Space):
                raise InvalidEnvironmentError(
                    f"VecEnv: {layer} has no {name}; set self.{name} to one of gymnasium.spaces in its __init__"
                )
        if not _takes_seed_and_options(layer.reset):
            raise InvalidEnvironmentError(
                f"VecEnv: reset() of {layer} takes {inspect.signature(layer.reset)}; gymnasium's is reset(self, *, "
                f"seed=None, options=None), and calls super().reset(seed=seed)"
            )
        if not isinstance(layer, gym.Wrapper):
            return
        layer = layer.env


def check_reset(result: Any, env: gym.Env[Any, Any]) -> None:
    """Check what ``env.reset`` returned.

    Raises:
        InvalidEnvironmentError: it is not a pair of an observation and a dict.
    """
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        raise InvalidEnvironmentError(
            f"VecEnv: reset() of {env} returned {_shown(result)}; it must return (observation, info), info being a dict"
        )
    _check_observation(result[0], env, "reset()")


def check_step(result: Any, env: gym.Env[Any, Any]) -> None:
    """Check what ``env.step`` returned.

    Raises:
        InvalidEnvironmentError: it is not (observation, reward, terminated, truncated, info).
    """
    if not isinstance(result, tuple) or len(result) != 5:
        hint = "; split done into terminated, where the task ended, and truncated, where a limit cut the episode"
        raise InvalidEnvironmentError(
            f"VecEnv: step() of {env} returned {_shown(result)}; it must return (observation, reward, terminated, "
            f"truncated, info){hint if isinstance(result, tuple) and len(result) == 4 else ''}"
        )
    observation, reward, terminated, truncated, info = result
    if not _is_number(reward, "fiub"):
        raise InvalidEnvironmentError(
            f"VecEnv: step() of {env} returned the reward {_shown(reward)}; it must be one number, float(reward)"
        )
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not _is_number(flag, "iub"):
            raise InvalidEnvironmentError(f"VecEnv: step() of {env} returned {name} {_shown(flag)}; it must be a bool")
    if not isinstance(info, dict):
        raise InvalidEnvironmentError(f"VecEnv: step() of {env} returned info {_shown(info)}; it must be a dict")
    _check_observation(observation, env, "step()")


class ShapeCheck:
    """Check that the observations of an environment keep the shapes of its space, after :data:`CHECKED_STEPS`, too.

    Copies into the memory of a batch would repeat numbers of a smaller shape without an error.

    Args:
        env: the environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env
        space = env.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {}
        self._shape = None if parts else space.shape
        self._parts = [(name, part.shape) for name, part in parts.items()]

    def __call__(self, observation: Any, step: int) -> None:
        """Check the observation after a step of an episode; 0 for that of the reset.

        Raises:
            InvalidEnvironmentError: its shape, or that of a part, differs.
        """
        # Before the slow check, for what nearly all observations are.
        if type(observation) is np.ndarray:
            if observation.shape == self._shape:
                return
        elif type(observation) is dict and self._parts:
            for name, shape in self._parts:
                part = observation.get(name)
                if type(part) is not np.ndarray or part.shape != shape:
                    break
            else:
                return
        elif self._shape == () and isinstance(observation, int | np.generic):
            return
        try:
            self._check(observation, "")
        except InvalidEnvironmentError:
            # Names of environments take longer to make than a check.
            method = f"step {step} of an episode" if step else "reset()"
            self._check(observation, f"VecEnv: {method} of {self._env} returned an observation")

    def _check(self, observation: Any, text: str) -> None:
        _check_value(observation, self._env.observation_space, text, (), check_part=_check_shape)


def _check_observation(observation: Any, env: gym.Env[Any, Any], method: str) -> None:
    _check_value(observation, env.observation_space, f"VecEnv: {method} of {env} returned an observation", ())


def _check_value(
    value: Any, space: gym.Space[Any], text: str, path: tuple[Any, ...], check_part: Callable[..., None] | None = None
) -> None:
    """Check an observation, or the part of it at a path of keys and positions."""
    where = f"{text}, {SEPARATOR.join(map(str, path))!r} of it," if path else text
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            keys = sorted(map(str, value)) if isinstance(value, Mapping) else _shown(value)
            raise InvalidEnvironmentError(f"{where} of {keys}; its space has {sorted(space.spaces)}")
        for name, part in space.spaces.items():
            _check_value(value[name], part, text, (*path, name), check_part)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise InvalidEnvironmentError(f"{where} of {_shown(value)}; its space is a tuple of {len(space.spaces)}")
        for position, part in enumerate(space.spaces):
            _check_value(value[position], part, text, (*path, position), check_part)
    else:
        (check_part or _check_part)(value, space, where.removesuffix(","))


def _check_shape(value: Any, space: gym.Space[Any], text: str) -> None:
    if space.shape is None or space.dtype is None:
        return
    array = _as_array(value)
    if array.dtype == object or array.shape != space.shape:
        got = f"of shape {array.shape}" if array.dtype != object else f"that is no array, {_shown(value)}"
        raise InvalidEnvironmentError(f"{text} {got}; its space {space} has shape {space.shape}")


def _as_array(value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return np.empty((), object)


def _check_part(value: Any, space: gym.Space[Any], text: str) -> None:
    if space.shape is None or space.dtype is None:
        return
    _check_shape(value, space, text)
    array = _as_array(value)
    if not np.can_cast(array.dtype, space.dtype, "same_kind") and not isinstance(value, int | bool):
        raise InvalidEnvironmentError(
            f"{text} of dtype {array.dtype}, which its space {space} would cut to {space.dtype}; declare the space of "
            f"{array.dtype}, or return {space.dtype}"
        )
    if space.contains(array.astype(space.dtype)):
        return
    if not isinstance(space, spaces.Box):
        raise InvalidEnvironmentError(f"{text} outside its space {space}: {_shown(value)}")
    if not np.isfinite(array).all():
        first = next(zip(*np.nonzero(~np.isfinite(array)), strict=True))
        warnings.warn(
            f"{text} with {array[first]} at {tuple(map(int, first))}, which networks cannot process; return finite "
            f"numbers",
            stacklevel=2,
        )
    else:
        warnings.warn(
            f"{text} outside the bounds of its space {space}: numbers from {array.min()} to {array.max()}; widen "
            f"the bounds of the space",
            stacklevel=2,
        )


def _takes_seed_and_options(reset: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(reset).parameters
    except ValueError:  # compiled code may have no signature
        return True
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return takes_any or {"seed", "options"} <= set(parameters)


def _is_number(value: Any, kinds: str) -> bool:
    """Whether a value is a scalar with a dtype of one of these kinds."""
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in kinds


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
