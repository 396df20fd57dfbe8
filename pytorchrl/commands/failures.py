"""What a command that fails prints: a message, and where a user's own code has failed, the place in it."""

import sysconfig
import traceback
from pathlib import Path

from gymnasium.error import DependencyNotInstalled

import pytorchrl
import storages

EXPECTED = (DependencyNotInstalled, ImportError, OSError, RuntimeError, ValueError)
"""Errors that the toolkit raises with a message for its user; others are faults, whose traceback is shown."""
_NOT_OF_USERS = tuple(
    Path(folder).resolve()
    for folder in {
        *pytorchrl.__path__,
        *storages.__path__,
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
"""Folders of the toolkit, of Python and of other packages."""


def report_of(error: Exception) -> str:
    """Return what is printed of an error that ends a command.

    An error that passed through code outside of all packages, such as an environment of the user's, is shown with its
    traceback from there on; a fault of the toolkit with the whole traceback.
    """
    notes = list(getattr(error, "__notes__", ()))
    place = _place_in_users_code(error)
    if place:
        return "\n".join(
            ["Traceback (most recent call last):", place, f"error: {type(error).__name__}: {error}", *notes]
        )
    if isinstance(error, EXPECTED):
        # The notes of the error say how to continue the run.
        return "\n".join([f"error: {error}", *notes])
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _place_in_users_code(error: BaseException) -> str:
    """Return the frames from the first one in a user's code on, of an error or of what it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        first = next((number for number, frame in enumerate(frames) if _is_of_user(frame.filename)), None)
        if first is not None:
            return "".join(traceback.format_list(frames[first:])).rstrip("\n")
        cause = cause.__cause__
    return ""


def _is_of_user(filename: str) -> bool:
    if filename.startswith("<"):
        # Code that is no file's, such as that of a frozen module.
        return False
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _NOT_OF_USERS)
