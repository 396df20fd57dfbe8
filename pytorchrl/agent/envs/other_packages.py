"""Environments of other packages, which register their ids with gymnasium when they are imported.

A run folder holds an id and imports nothing by name, so that a run resumed in a new process must find the package too.
"""

import importlib
import importlib.util
from types import ModuleType

import gymnasium as gym

EXTRAS = (
    'the extras of this package: pip install ".[mujoco]", ".[atari]" (MinAtar too), ".[box2d]" or ".[robotics]" '
    "(gymnasium-robotics)"
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
        f'{owner}: the package {package} is not installed; the extra "{extra}" brings it: pip install ".[{extra}]".'
    )


def find_registered(env_id: str) -> None:
    """Register an id with gymnasium, if an installed package defines it, by importing the package.

    Raises:
        gymnasium.error.Error: nothing registers the id.
        ModuleNotFoundError: it is of the form ``module:id``, and there is no such module.
    """
    if env_id in gym.registry:
        return
    try:
        gym.spec(env_id)
    except gym.error.Error as error:
        installed = [package for package in PACKAGES if importlib.util.find_spec(package) is not None]
        for package in installed:
            importlib.import_module(package)
        try:
            gym.spec(env_id)
        except gym.error.Error:
            raise error from None
