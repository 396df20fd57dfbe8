"""Errors of MuJoCo's environments that say what the system lacks: OpenGL, a display, a version that fits."""

import importlib.metadata
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

_PACKAGES = ("mujoco", "OpenGL", "glfw", "gymnasium.envs.mujoco")
"""Modules whose errors in rendering, or in an import of MuJoCo, are about OpenGL."""
_BACKENDS = ("egl", "osmesa", "glfw")
_FAILED = "MuJoCo cannot render here, as there is no OpenGL"
_WAY_OUT = (
    "start with MUJOCO_GL=egl, which needs the system's libEGL, or with MUJOCO_GL=osmesa, which needs its libOSMesa; "
    "neither needs a display"
)


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
    return f"{_FAILED}{named}: {_WAY_OUT} ({type(error).__name__}: {reason})"


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
