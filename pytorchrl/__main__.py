"""``python -m pytorchrl``: train, continue and compare runs, look into what they learn from and into data sets."""

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from pytorchrl import data_commands
from pytorchrl.commands import comparing, policies, runs
from pytorchrl.commands import sweep as sweep_command
from pytorchrl.commands import train as train_command
from pytorchrl.commands.shared import Imports, Run
from pytorchrl.experiments.inspection import directory_of_episodes, inspect_storage
from pytorchrl.experiments.own_modules import import_modules
from pytorchrl.learner import Learner
from pytorchrl.logging.storage_plot import plot_storage
from pytorchrl.logging.storage_report import storage_report


def resume(run: Run, target_steps: int | None = None, imports: Imports = ()) -> None:
    """Continue a run from its last checkpoint.

    Args:
        run: the run folder.
        target_steps: a new target, in environment transitions; the old one where left out.
        imports: modules of yours.
    """
    import_modules(imports)
    learner = Learner.resume(run, target_steps=target_steps)
    try:
        if learner.run():
            learner.print_info()
            print(f"Learning curve: {learner.curve_file}")
    finally:
        learner.close()


def inspect(
    path: tyro.conf.Positional[Path],
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    imports: Imports = (),
) -> None:
    """Tell what a checkpoint's storage holds, and draw its returns, lengths, priorities and ages into a PNG file.

    Of a storage that keeps whole episodes on disk it tells what `data show` tells of them, all there are now.

    Args:
        path: a run folder, or a checkpoint.
        output: the picture; storage.png beside the checkpoint where left out.
        imports: modules of yours.
    """
    import_modules(imports)
    if (episodes := directory_of_episodes(path)) is not None:
        print(f"The storage keeps whole episodes in {episodes}:")
        data_commands.show(episodes)
        return
    inspection = inspect_storage(path)
    Console().print(storage_report(inspection))
    if inspection.episodes is not None:
        print(f"Histograms: {plot_storage(inspection, output or inspection.path.parent / 'storage.png')}")


def train(arguments: tyro.conf.Positional[tuple[str, ...]] = ()) -> None:
    """Compose a run of classes by their names, and train it with some seeds; see `train --help`.

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


def main() -> None:
    """Run the command that the command line names; an error that says what to do needs no traceback."""
    data = tyro.conf.subcommand("data", description="Collect, list, show, convert, merge and prune data sets.")
    functions: Mapping[str, Callable[..., None]] = {
        "train": train,
        "sweep": sweep,
        "resume": resume,
        "evaluate": policies.evaluate,
        "evaluations": runs.evaluations,
        "play": policies.watch,
        "record": policies.record,
        "export": policies.export,
        "ls": runs.ls,
        "plot": comparing.plot,
        "inspect": inspect,
    }
    commands = [
        *_commands(functions),
        Annotated[_choice_of(_commands(data_commands.COMMANDS)), data],
    ]
    try:
        if sys.argv[1:2] == ["--version"]:
            print(f"pytorchrl {metadata.version('pytorchrl')}")
            return
        if sys.argv[1:2] in (["train"], ["sweep"]):
            # Their options follow from the classes that are named.
            (train if sys.argv[1] == "train" else sweep)(tuple(sys.argv[2:]))
            return
        tyro.cli(_choice_of(commands), prog="python -m pytorchrl", description=__doc__)
    except (OSError, RuntimeError, ValueError) as error:
        # What was noted at it says how to continue.
        raise SystemExit("\n".join([f"error: {error}", *getattr(error, "__notes__", ())])) from error


def _commands(functions: Mapping[str, Callable[..., None]]) -> list[Any]:
    return [Annotated[Any, tyro.conf.subcommand(name, constructor=function)] for name, function in functions.items()]


def _choice_of(commands: Sequence[Any]) -> Any:
    """One of them, as tyro wants it said."""
    return functools.reduce(operator.or_, commands)


if __name__ == "__main__":
    main()
