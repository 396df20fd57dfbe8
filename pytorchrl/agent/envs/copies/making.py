"""Construction of an environment from an id or a callable, with its wrappers."""

import difflib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import gymnasium as gym
from gymnasium.wrappers import NormalizeObservation

from pytorchrl.agent.envs.checks import InvalidEnvironmentError, check_made
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecorder
from pytorchrl.agent.envs.mujoco import collected_warnings, explain
from pytorchrl.agent.envs.other_packages import EXTRAS, find_registered
from pytorchrl.agent.envs.wrappers.action_wrappers import BoundAction, FlattenAction, RepeatAction, RoundAction
from pytorchrl.agent.envs.wrappers.flat_observation import FlatObservation, is_nested
from pytorchrl.agent.envs.wrappers.game_wrappers import EpisodicLife, FireOnReset, FlickerFrames, RandomizeAction
from pytorchrl.agent.envs.wrappers.join_actions import JoinActions
from pytorchrl.agent.envs.wrappers.observation_wrappers import ObserveActionMask, ObservePixels, SelectObservation
from pytorchrl.agent.envs.wrappers.reward_wrappers import ScaleReward, TerminalReward
from pytorchrl.agent.other_names.items import answers
from pytorchrl.version import install_command

_OUR_WRAPPERS: dict[str, Callable[..., gym.Env[Any, Any]]] = {
    wrapper.__name__: wrapper
    for wrapper in (
        *(BoundAction, FlattenAction, JoinActions, RoundAction, ScaleReward, SelectObservation, TerminalReward),
        *(EpisodicLife, FireOnReset, FlickerFrames, ObserveActionMask, ObservePixels, RandomizeAction, RepeatAction),
    )
}
_NO_NORMALIZE_OBSERVATION = (
    "wrappers: NormalizeObservation keeps separate statistics for each copy and for evaluation, and they are not saved "
    "with the weights; make the actor with normalize_observations=True instead"
)


def make_env(
    env: str | Callable[..., gym.Env[Any, Any]],
    arguments: dict[str, Any],
    wrappers: Sequence[Any],
    reports: Sequence[str] = (),
) -> tuple[gym.Env[Any, Any], EpisodeRecorder]:
    """Make an environment with its wrappers, and a recorder of its episodes below them.

    Nested observations are flattened, above the wrappers.

    Raises:
        InvalidEnvironmentError: the result is not an environment, violates gymnasium's interface, or is in use.
        UnsupportedSpaceError: two parts of nested observations would have the same name.
        ValueError: ``NormalizeObservation`` is among its wrappers.
    """
    made = bare_env(env, arguments)
    check_made(made, origin_of(env))
    # Before the recorder changes it.
    refuse_in_use(made, origin_of(env))
    recorder = EpisodeRecorder(made, reports)
    for wrapper in wrappers:
        made = _wrap(made, wrapper)
    check_made(made, f"wrappers {list(wrappers)}")
    layer: Any = made
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, NormalizeObservation):
            raise ValueError(f"VecEnv: {_NO_NORMALIZE_OBSERVATION}")
        layer = layer.env
    return (FlatObservation(made) if is_nested(made.observation_space) else made), recorder


def check_id(env: str, owner: str) -> None:
    """Refuse ids that gymnasium does not know.

    Raises:
        ValueError: nothing registers it.
    """
    try:
        find_registered(env)
    except (gym.error.Error, ModuleNotFoundError) as error:
        module, colon, name = env.partition(":")
        if colon and module.isidentifier():
            raise ValueError(
                f"{owner}: env {env!r}: a name does not import a module here. Write import {module}, or --import "
                f"{module} of a command, and {name!r}"
            ) from None
        raise ValueError(
            f"{owner}: env {env!r} is no registered gymnasium id: {error} For those of other packages, "
            f"install {EXTRAS}, or import the package that registers them: "
            f"--import MODULE of a command"
        ) from None


def name_of_wrapper(wrapper: Any) -> str:
    """Return the name of a wrapper, which is given as a text, a class, or a pair of one of these and arguments."""
    if isinstance(wrapper, list | tuple) and wrapper:
        wrapper = wrapper[0]
    return str(getattr(wrapper, "__name__", wrapper))


def class_of_wrapper(name: str) -> Any:
    """Return the wrapper of the toolkit or of gymnasium of that name; None where there is none."""
    return _OUR_WRAPPERS[name] if name in _OUR_WRAPPERS else getattr(gym.wrappers, name, None)


def check_wrapper(wrapper: Any, owner: str) -> None:
    """Refuse wrappers that do not exist, or cannot be used.

    Raises:
        ValueError: it is one of these.
    """
    name = wrapper if isinstance(wrapper, str) else wrapper[0] if is_named(wrapper) else None
    refuse_normalized_observations(wrapper if name is None else name, owner)
    if name is not None and class_of_wrapper(name) is None:
        near = difflib.get_close_matches(name, [*_OUR_WRAPPERS, *gym.wrappers.__all__], n=1)
        hint = answers().get(name) or (f"did you mean {near[0]!r}?" if near else "")
        raise ValueError(f"{owner}: wrappers: gymnasium.wrappers has no {name!r}{f'; {hint}' if hint else ''}")
    if name is None and not callable(wrapper):
        raise ValueError(f"{owner}: wrappers: {wrapper!r} is neither a name, a (name, arguments) pair nor a callable")


def refuse_normalized_observations(wrapper: Any, owner: str) -> None:
    """Refuse ``NormalizeObservation``, as a name or as a class.

    Raises:
        ValueError: it is that wrapper.
    """
    if NormalizeObservation.__name__ in (wrapper, getattr(wrapper, "__name__", None)):
        raise ValueError(f"{owner}: {_NO_NORMALIZE_OBSERVATION}")


def is_named(wrapper: Any) -> bool:
    """Whether a wrapper is a pair of its name and its arguments."""
    return isinstance(wrapper, list | tuple) and len(wrapper) == 2 and isinstance(wrapper[0], str)


def bare_env(env: str | Callable[..., gym.Env[Any, Any]], arguments: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make an environment from an id or a callable, without the toolkit's wrappers.

    Raises:
        InvalidEnvironmentError: it does not take the arguments.
        RuntimeError: MuJoCo finds no OpenGL, or has a version that the environment does not work with.
    """
    if isinstance(env, str):
        find_registered(env)  # the process of an asynchronous environment has imported nothing yet
    try:
        with collected_warnings(env):
            if not isinstance(env, str):
                return env(**arguments)
            # The toolkit does these checks itself, for environments of callables too.
            made = gym.make(env, **({"disable_env_checker": True} | arguments))
    except gym.error.DependencyNotInstalled as error:
        if not isinstance(env, str):
            raise
        raise _missing(env, error) from error
    except TypeError as error:
        if not _is_of_the_call(error):
            raise
        raise InvalidEnvironmentError(
            f"VecEnv: env {origin_of(env)} does not take env_kwargs {arguments}: {error}; give it those of its "
            f"constructor"
        ) from error
    except Exception as error:
        # Any exception: a missing library of the system ends an import of MuJoCo in many ways.
        if not isinstance(env, str) or (explained := explain(error, env)) is None:
            raise
        raise RuntimeError(explained) from error
    if made.unwrapped.spec is not None and "disable_env_checker" not in arguments:
        # Data sets keep the specification, from which others make the environment.
        made.unwrapped.spec.disable_env_checker = gym.spec(env).disable_env_checker
    return made


def origin_of(env: str | Callable[..., gym.Env[Any, Any]]) -> str:
    """Return what makes an environment, for messages."""
    return repr(env) if isinstance(env, str) else getattr(env, "__name__", repr(env))


def _is_of_the_call(error: TypeError) -> bool:
    """Whether an error is from the call of an environment's constructor, rather than from the code in it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code in (bare_env.__code__, gym.make.__code__)


def _wrap(env: gym.Env[Any, Any], wrapper: Any) -> gym.Env[Any, Any]:
    if isinstance(wrapper, str):
        wrapper = (wrapper, {})
    if not is_named(wrapper):
        made: gym.Env[Any, Any] = wrapper(env)
        return made
    name, arguments = wrapper
    try:
        wrapped: gym.Env[Any, Any] = class_of_wrapper(name)(env, **arguments)
    except gym.error.DependencyNotInstalled as error:
        raise _missing(f"the wrapper {name}", error) from error
    return wrapped


def _missing(what: str, error: gym.error.DependencyNotInstalled) -> gym.error.DependencyNotInstalled:
    """Return the error about a missing package, with one command: ours, where an extra of this package brings it."""
    found = _EXTRA_OF_GYMNASIUM.search(str(error))
    if found is None or f'"{found[1]}"' not in EXTRAS:
        return gym.error.DependencyNotInstalled(f"VecEnv: {what} needs a package that is not installed: {error}")
    return gym.error.DependencyNotInstalled(
        f'VecEnv: {what} needs a package that is not installed; the extra "{found[1]}" brings it: '
        f"{install_command(found[1])}"
    )


_EXTRA_OF_GYMNASIUM = re.compile(r"gymnasium\[(\w+)\]")


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
