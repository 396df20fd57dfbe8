"""Warnings of MuJoCo's models, and errors that say what the system lacks: OpenGL, a display, a version that fits."""

import importlib
import importlib.metadata
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

_PACKAGES = ("mujoco", "OpenGL", "glfw", "gymnasium.envs.mujoco")
"""Modules whose errors in rendering, or in an import of MuJoCo, are about OpenGL."""
_BACKENDS = ("egl", "osmesa", "glfw")
_FAILED = "MuJoCo cannot render here, as there is no OpenGL"
_LIBRARIES = {
    "egl": "the system's libEGL (libegl1 in Debian and Ubuntu)",
    "osmesa": "the system's libOSMesa (libosmesa6 in Debian and Ubuntu)",
}
"""What each way to render without a display needs."""
_FREE_CAMERA = -1


@contextmanager
def collected_warnings(env: str | Callable[..., Any]) -> Iterator[None]:
    """Within it, take MuJoCo's warnings about models, and warn as Python does after it: once, not for each copy.

    MuJoCo prints them and writes them to a file ``MUJOCO_LOG.TXT``. Those about deprecated attributes of a model's file
    are for its author: they become a :class:`DeprecationWarning`, which Python shows where it is asked for, and are
    left out for gymnasium's own models. Later warnings, of simulations that become unstable, stay MuJoCo's own, and so
    do all where a function of the user's takes them.

    Args:
        env: id or callable of the environment that is made within.
    """
    mujoco = _mujoco_of(env)
    if mujoco is None or mujoco.get_mju_user_warning() is not None:
        yield
        return
    texts: list[str] = []
    # An exception in the function would end the process.
    mujoco.set_mju_user_warning(texts.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(None)
    for text in dict.fromkeys(texts):
        is_for_author = "deprecated" in text
        if not (is_for_author and _is_of_gymnasium(env)):
            warnings.warn(
                f"MuJoCo: {text}", DeprecationWarning if is_for_author else RuntimeWarning, stacklevel=_OF_CALLER
            )


_OF_CALLER = 4
"""Level of the code for which the environment is made, above the context."""


def _is_of_gymnasium(env: str | Callable[..., Any]) -> bool:
    entry = gym.spec(env).entry_point if isinstance(env, str) else None
    return isinstance(entry, str) and entry.startswith("gymnasium.envs.mujoco")


def _mujoco_of(env: str | Callable[..., Any]) -> Any:
    """Return the module of MuJoCo, if an environment may be of it; None without the module."""
    if _is_of_gymnasium(env):
        try:
            return importlib.import_module("mujoco")
        except Exception:
            # Any exception: it is raised again, and explained, where the environment is made.
            return None
    return sys.modules.get("mujoco")


def render(env: gym.Env[Any, Any]) -> Any:
    """Render an environment.

    Raises:
        RuntimeError: MuJoCo finds no OpenGL; the message names the way out.
    """
    layer = env.unwrapped
    chosen = os.environ.get("MUJOCO_GL")
    if chosen is not None and chosen not in _BACKENDS and hasattr(layer, "mujoco_renderer"):
        # gymnasium's renderer reads it without the variants in spelling that MuJoCo allows.
        raise RuntimeError(f"MuJoCo cannot render with MUJOCO_GL={chosen!r}; choose from {', '.join(_BACKENDS)}")
    try:
        with warnings.catch_warnings():
            # Beside the error they say nothing, and otherwise the image is there.
            warnings.filterwarnings("ignore", module="glfw")
            return env.render()
    except Exception as error:
        # Any exception: a missing library is an AttributeError, an ImportError or MuJoCo's own.
        if not _comes_from(error, _PACKAGES):
            raise
        _forget_viewer(error)
        raise RuntimeError(_without_opengl(error)) from error


def follow_robot(env: gym.Env[Any, Any]) -> None:
    """Let images of MuJoCo's environments follow the robot, where the model has a camera for it and none was chosen.

    gymnasium's own view stays where the robot began, so that a HalfCheetah leaves the image after some seconds.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or getattr(renderer, "camera_id", None) != _FREE_CAMERA:
        return
    chosen = {} if env.unwrapped.spec is None else env.unwrapped.spec.kwargs
    if chosen.get("default_camera_config") is None:
        mujoco = importlib.import_module("mujoco")
        # It is -1, a free camera, where there is no camera of the name.
        renderer.camera_id = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


def refuse_without_display(env: gym.Env[Any, Any]) -> None:
    """Refuse a window of MuJoCo where none can be opened, as its viewer would end the process.

    Raises:
        RuntimeError: there is no display.
    """
    if not hasattr(env.unwrapped, "mujoco_renderer"):
        return
    import glfw

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        has_display = bool(glfw.init()) and bool(glfw.get_monitors())
    if not has_display:
        raise RuntimeError(
            "there is no display on which MuJoCo could open a window; write a video instead: -o video.mp4"
        )


def explain(error: Exception, env: str) -> str | None:
    """Return what is wrong where an environment cannot be made; None if nothing is known about the error.

    Args:
        error: raised by ``gymnasium.make``.
        env: the id.
    """
    if isinstance(error, AssertionError) and not str(error) and _comes_from(error, ("gymnasium_robotics",)):
        versions = [f"{name} {importlib.metadata.version(name)}" for name in ("gymnasium-robotics", "mujoco")]
        return (
            f"VecEnv: {env!r} does not work with {' and '.join(versions)} together; gymnasium-robotics 1.4.2 needs an "
            f'older MuJoCo: pip install "mujoco<3.12"'
        )
    if os.environ.get("MUJOCO_GL") is not None and _comes_from(error, ("mujoco", "OpenGL")) and _is_of_import(error):
        return f"VecEnv: {env!r}: {_without_opengl(error)}; without images leave MUJOCO_GL unset"
    return None


def _without_opengl(error: Exception) -> str:
    chosen = os.environ.get("MUJOCO_GL")
    named = "" if chosen is None else f" for MUJOCO_GL={chosen}"
    reason = " ".join(str(error).split())
    # A library may be there and not work, as libEGL without a driver.
    lacking = f"it needs {_LIBRARIES[chosen]}, which is missing or does not work; or " if chosen in _LIBRARIES else ""
    others = [f"with MUJOCO_GL={name}, which needs {text}" for name, text in _LIBRARIES.items() if name != chosen]
    return (
        f"{_FAILED}{named}: {lacking}start {', or '.join(others)}; no display is needed "
        f"({type(error).__name__}: {reason})"
    )


def _comes_from(error: BaseException, packages: tuple[str, ...]) -> bool:
    """Whether an error was raised in one of some packages, or below it."""
    names = [frame.f_globals.get("__name__", "") for frame in _frames_of(error)]
    return any(name == package or name.startswith(f"{package}.") for name in names for package in packages)


def _is_of_import(error: BaseException) -> bool:
    return any(frame.f_globals.get("__name__") == "importlib._bootstrap" for frame in _frames_of(error))


def _forget_viewer(error: BaseException) -> None:
    """Drop a half-made viewer, whose destructor would print another traceback.

    It is deleted here, with the frames of the error that hold it, and its complaint is not shown.
    """
    shown, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = shown


def _frames_of(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
