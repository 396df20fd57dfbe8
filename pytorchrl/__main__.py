"""``python -m pytorchrl``: train, resume and compare runs, and inspect their storages and data sets."""

import functools
import importlib.util
import operator
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from gymnasium.error import DependencyNotInstalled

from pytorchrl.commands.shared import STOPPED, refuse_settings
from pytorchrl.commands.table import COMMANDS, DATA_COMMANDS, READ_THEIR_OWN_ARGUMENTS, Command
from pytorchrl.installed_files import is_installed
from pytorchrl.terminal import ending_with_its_reader, format_warning, printable, tell
from pytorchrl.version import VERSION

_PROGRAM = "python -m pytorchrl"
_EXPECTED = (DependencyNotInstalled, ImportError, MemoryError, OSError, RuntimeError, ValueError)
"""Errors that the toolkit raises with a message for its user; others are faults, whose traceback is shown."""


def main() -> None:
    """Run the command named on the command line; expected errors end it with a message and no traceback."""
    warnings.formatwarning = format_warning
    try:
        with ending_with_its_reader():
            _run(sys.argv[1:])
    except InterruptedError as error:
        tell(f"error: {error}", is_error=True)
        raise SystemExit(STOPPED) from error
    except KeyboardInterrupt:
        tell("Stopped at once by Ctrl-C; runs continue from their last checkpoints.", is_error=True)
        raise SystemExit(STOPPED) from None
    except Exception as error:
        # Any exception: one in an environment of the user's may be of any kind.
        raise SystemExit(printable(format_error(error))) from error


def _run(arguments: Sequence[str]) -> None:
    match list(arguments):
        case ["--version"]:
            tell(f"pytorchrl {VERSION}")
        case ["data", name, *rest] if name in DATA_COMMANDS:
            tyro.cli(DATA_COMMANDS[name].function, prog=f"{_PROGRAM} data {name}", args=rest)
        case ["data", *rest]:
            _describe(DATA_COMMANDS, f"{_PROGRAM} data", COMMANDS["data"].summary, rest)
        case [name, *rest] if name in READ_THEIR_OWN_ARGUMENTS:
            COMMANDS[name].function(rest)
        case [name, *rest] if name in COMMANDS:
            if name in ("resume", "repeat"):
                refuse_settings(name, rest)
            tyro.cli(COMMANDS[name].function, prog=f"{_PROGRAM} {name}", args=rest)
        case _:
            _describe(COMMANDS, _PROGRAM, str(__doc__), arguments)


def _describe(commands: Mapping[str, Command], program: str, summary: str, arguments: Sequence[str]) -> None:
    """Print the list of commands, or what is wrong with arguments that name none, and end the process."""
    choices = [
        Annotated[Any, tyro.conf.subcommand(name, description=command.summary, constructor=_nothing)]
        for name, command in commands.items()
    ]
    choice: Any = functools.reduce(operator.or_, choices)
    tyro.cli(choice, prog=program, description=summary, args=arguments)


def _nothing() -> None:
    """Do nothing: a command that is named is run without the list of all."""


def format_error(error: Exception) -> str:
    """Return what is printed of an error that ends a command.

    An error that passed through code outside of all packages, such as an environment of the user's, is shown with the
    frames of that code; a fault of the toolkit with the whole traceback.
    """
    notes = list(getattr(error, "__notes__", ()))
    place = _place_in_users_code(error)
    if place:
        return "\n".join(
            ["Traceback (most recent call last):", place, f"error: {type(error).__name__}: {error}", *notes]
        )
    if isinstance(error, _EXPECTED):
        # The notes of the error say how to continue the run.
        return "\n".join([f"error: {error}", *notes])
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _place_in_users_code(error: BaseException) -> str:
    """Return the frames of a user's code, of an error or of what it was raised from; of a fault, all after these."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        of_user = [number for number, frame in enumerate(frames) if _is_of_user(frame.filename)]
        if of_user:
            # An error about a value that the user gave is shown without frames of the toolkit, a fault of it with them.
            is_said = isinstance(cause, (*_EXPECTED, TypeError)) or of_user[-1] == len(frames) - 1
            shown = [frames[number] for number in of_user] if is_said else frames[of_user[0] :]
            return "".join(traceback.format_list(shown)).rstrip("\n")
        cause = cause.__cause__
    return ""


def _is_of_user(filename: str) -> bool:
    if filename.startswith("<"):
        # Code that is no file's, such as that of a frozen module.
        return False
    return not is_installed(filename) and not any(map(Path(filename).resolve().is_relative_to, _own_folders()))


@functools.cache
def _own_folders() -> tuple[Path, ...]:
    """Return the folders of the toolkit, and of what runs its commands, which may lie outside of installed packages."""
    specs = map(importlib.util.find_spec, ("pytorchrl", "storages", "tyro"))
    folders = (folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ())
    return tuple(Path(folder).resolve() for folder in folders)


if __name__ == "__main__":
    main()
