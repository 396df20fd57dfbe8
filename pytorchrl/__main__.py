"""``python -m pytorchrl``: train, resume and compare runs, and inspect their storages and data sets."""

import functools
import operator
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from gymnasium.error import DependencyNotInstalled

import pytorchrl
import storages
from pytorchrl.commands import comparing, policies, publishing, runs
from pytorchrl.commands import env as env_command
from pytorchrl.commands import inspect as inspect_command
from pytorchrl.commands import train as train_command
from pytorchrl.commands.data import commands as data_commands
from pytorchrl.commands.shared import STOPPED, DataSets, Imports, Run, check_seed
from pytorchrl.commands.sweeps import sweep as sweep_command
from pytorchrl.experiments.runs.user_modules import import_modules
from pytorchrl.learner import Learner
from pytorchrl.terminal import format_warning, printable, tell
from pytorchrl.version import VERSION

_EXPECTED = (DependencyNotInstalled, ImportError, OSError, RuntimeError, ValueError)
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


def resume(run: Run, target_steps: int | None = None, data: DataSets = (), imports: Imports = ()) -> None:
    """Continue a run from its last checkpoint.

    Args:
        run: the run folder.
        target_steps: a new target, in environment transitions (updates, of a run that collects none); the old one where
            left out.
        data: the data sets that the run learns from, in the order of its configuration; they may have moved.
        imports: modules to import first.
    """
    import_modules(imports)
    _finish(Learner.resume(run, target_steps=target_steps, data=data))


def repeat(
    run: Run,
    log_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    seed: int | None = None,
    target_steps: int | None = None,
    device: str | None = None,
    data: DataSets = (),
    imports: Imports = (),
) -> None:
    """Train a new run with the configuration of another, such as with another seed.

    Args:
        run: the run folder; only its config.json is read.
        log_dir: the folder of the new run.
        seed: of the new run; the old one's where left out, as for what follows.
        target_steps: its number of environment transitions (updates, of a run that collects none).
        device: cpu, cuda or auto.
        data: the data sets that the run learns from, in the order of its configuration; they may have moved.
        imports: modules to import first.
    """
    import_modules(imports)
    if seed is not None:
        check_seed(seed)
    _finish(Learner.repeat(run, log_dir, seed=seed, target_steps=target_steps, device=device, data=data))


def _finish(learner: Learner) -> None:
    """Train until the target, and print the results."""
    with learner:
        learner.run()
        if learner.is_complete:
            learner.print_info()
            if learner.curve_file.is_file():
                tell(f"Learning curve: {learner.curve_file}")
        if learner.was_interrupted:
            raise SystemExit(STOPPED)


def train(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Compose a run from classes given by name, and train it with one or more seeds; see `train --help`.

    Args:
        arguments: such as --algorithm sac --env Pendulum-v1 --storage per --storage.alpha 0.6 --seeds 1 2 3.
    """
    train_command.train(arguments)


def sweep(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Train a composition with every combination of some hyper-parameters; see `sweep --help`.

    Args:
        arguments: as of train, and such as --vary algorithm.lr 1e-3 3e-4 --processes 2.
    """
    sweep_command.sweep(arguments)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "train": train,
    "sweep": sweep,
    "resume": resume,
    "repeat": repeat,
    "evaluate": policies.evaluate,
    "evaluations": runs.evaluations,
    "play": policies.watch,
    "record": policies.record,
    "export": policies.export,
    "push": publishing.push,
    "ls": runs.ls,
    "show": runs.show,
    "env": env_command.env,
    "compare": comparing.compare,
    "plot": comparing.plot,
    "report": comparing.report,
    "inspect": inspect_command.inspect,
}
"""All commands but those of data sets, by name."""


def main() -> None:
    """Run the command named on the command line; expected errors end it with a message and no traceback."""
    data = tyro.conf.subcommand(
        "data", description="Make, collect, list, show, convert, merge, prune and split data sets."
    )
    commands = [
        *_commands(COMMANDS),
        Annotated[_choice_of(_commands(data_commands.COMMANDS)), data],
    ]
    warnings.formatwarning = format_warning
    try:
        if sys.argv[1:2] == ["--version"]:
            tell(f"pytorchrl {VERSION}")
            return
        if sys.argv[1:2] in (["train"], ["sweep"]):
            # Their options depend on the classes that are named.
            (train if sys.argv[1] == "train" else sweep)(tuple(sys.argv[2:]))
            return
        tyro.cli(_choice_of(commands), prog="python -m pytorchrl", description=__doc__)
    except InterruptedError as error:
        tell(f"error: {error}", is_error=True)
        raise SystemExit(STOPPED) from error
    except KeyboardInterrupt:
        tell("Stopped at once by Ctrl-C; runs continue from their last checkpoints.", is_error=True)
        raise SystemExit(STOPPED) from None
    except Exception as error:
        # Any exception: one in an environment of the user's may be of any kind.
        raise SystemExit(printable(format_error(error))) from error


def _commands(functions: Mapping[str, Callable[..., None]]) -> list[Any]:
    return [Annotated[Any, tyro.conf.subcommand(name, constructor=function)] for name, function in functions.items()]


def _choice_of(commands: Sequence[Any]) -> Any:
    """Return the union type of commands, of which tyro makes subcommands."""
    return functools.reduce(operator.or_, commands)


def format_error(error: Exception) -> str:
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
    if isinstance(error, _EXPECTED):
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


if __name__ == "__main__":
    main()
