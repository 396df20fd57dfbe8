"""Environments of other packages, which register their ids with gymnasium when they are imported.

A run folder holds an id and imports nothing by name, so that a run resumed in a new process must find the package too.
"""

import importlib
import importlib.util
import re
from types import ModuleType
from typing import Any

import gymnasium as gym

from pytorchrl.agent.envs.mujoco import explain
from pytorchrl.version import install_command

EXTRAS = (
    f'the extras "mujoco", "atari" (MinAtar too), "box2d" or "robotics" (gymnasium-robotics) of this package, such as '
    f"{install_command('mujoco')}"
)
"""How to install the packages that environments need, for messages."""

PACKAGES = ("ale_py", "gymnasium_robotics")
"""Packages that register environments on import; no others are imported to find an id."""


def require(module: str, owner: str) -> ModuleType:
    """Import a module that Atari, MinAtar or EnvPool needs.

    Raises:
        gymnasium.error.DependencyNotInstalled: its package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(module, owner) from error


def missing(module: str, owner: str) -> gym.error.DependencyNotInstalled:
    """Make the error for a missing module that Atari, MinAtar or EnvPool needs."""
    package = module.partition(".")[0].replace("_", "-")
    extra = "envpool" if package == "envpool" else "atari"
    return gym.error.DependencyNotInstalled(
        f'{owner}: the package {package} is not installed; the extra "{extra}" brings it: {install_command(extra)}.'
    )


def find_registered(env_id: str) -> None:
    """Register an id with gymnasium, if an installed package defines it, by importing the package.

    Raises:
        gymnasium.error.Error: nothing registers the id.
        ModuleNotFoundError: it is of the form ``module:id``, and there is no such module.
        RuntimeError: a package cannot be imported, as MuJoCo finds no OpenGL.
    """
    if env_id in gym.registry:
        return
    try:
        gym.spec(env_id)
    except gym.error.Error:
        for package in PACKAGES:
            if importlib.util.find_spec(package) is not None:
                _import(package, env_id)
                if _is_registered(env_id):
                    return
        raise


def _import(package: str, env_id: str) -> None:
    try:
        importlib.import_module(package)
    except Exception as error:
        # Any exception: a missing library of the system ends an import of MuJoCo in many ways.
        if (explained := explain(error, env_id)) is None:
            raise
        raise RuntimeError(explained) from error


def _is_registered(env_id: str) -> bool:
    try:
        gym.spec(env_id)
    except gym.error.Error:
        return False
    return True


_ENTRY_POINT = "ale_py.env:AtariEnv"
_VERSION = re.compile(r"-v\d+$")
"""The end of an id of a game."""


def is_game(env: object) -> bool:
    """Whether an environment is named by an id of Atari, whose observations are raw frames."""
    if not isinstance(env, str):
        return False
    is_unknown = env not in gym.registry and _VERSION.search(env) is not None
    # No other package is imported, as some print notices when they are.
    if is_unknown and importlib.util.find_spec("ale_py") is not None:
        _import("ale_py", env)
    spec = gym.registry.get(env)
    return spec is not None and bool(spec.entry_point == _ENTRY_POINT)


def settings_of(env: str, owner: str) -> dict[str, Any]:
    """Return the settings that an id defines, by the names of ALE's own environments.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is not an id of Atari.
    """
    require("ale_py", owner)
    try:
        find_registered(env)
        spec = gym.spec(env)
    except gym.error.Error as error:
        raise ValueError(f"{owner}: env {env!r} is no id that is registered: {error}") from None
    if spec.entry_point != _ENTRY_POINT:
        raise ValueError(f"{owner}: env {env!r} is no game of Atari; their ids are like 'ALE/Pong-v5'")
    names = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
    return {name: spec.kwargs[name] for name in names}
