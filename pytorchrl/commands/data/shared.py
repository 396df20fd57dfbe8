"""Shared parts of the commands for data sets: arguments, opening and writing."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from pytorchrl.experiments import RunFolder
from pytorchrl.experiments.inspection.overview import CheckpointDataset, directory_of_episodes
from pytorchrl.logging.bars import watched
from pytorchrl.logging.tables.storage_report import counted
from pytorchrl.scheme.dataset_factory import converting_named
from pytorchrl.terminal import tell
from storages.datasets import FORMATS, About, Dataset, Ends, FlatNames, Written, open_dataset, write_dataset
from storages.datasets.answers import Answers
from storages.episode import Episode

Format = Annotated[
    str | None,
    tyro.conf.arg(metavar="{" + ",".join(FORMATS) + "}", help_behavior_hint=""),
]
Names = Annotated[dict[str, str], tyro.conf.arg(metavar="WHAT NAME ...", help_behavior_hint="")]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
Output = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
Count = Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
HowEnded = Annotated[Ends | None, tyro.conf.arg(help_behavior_hint="")]
Number = Annotated[int | None, tyro.conf.arg(metavar="NUMBER", help_behavior_hint="")]
Parts = Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART ...", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]


def opened(path: Path, names: Mapping[str, str], **answers: Any) -> Dataset:
    """Open a data set, the directory of a storage, or the storage in a run's checkpoint.

    Args:
        path: where it is.
        names: what flat arrays are called, by argument name of :class:`FlatNames`.
        answers: further arguments of :func:`open_dataset`.
    """
    known = set(FlatNames.__dataclass_fields__)
    unknown = set(names) - known
    if unknown:
        raise ValueError(f"--names: unknown {', '.join(sorted(unknown))}; choose from {', '.join(sorted(known))}")
    said = {"names": FlatNames(**names) if names else None, **answers}
    if path.suffix == RunFolder(path).checkpoint_file.suffix or RunFolder(path).checkpoint_file.is_file():
        Answers(**said).refuse_others(path, "a run, or a checkpoint", ())
        episodes = directory_of_episodes(path)
        return CheckpointDataset(path) if episodes is None else open_dataset(episodes)
    return open_dataset(path, **said)


def opened_as_it_is(path: Path) -> Dataset:
    """Open a data set by a command that takes no answers to what a file leaves open.

    Raises:
        AmbiguousDataError: it leaves something open; the text says that `data convert` takes the answers.
    """
    with converting_named(path):
        return open_dataset(path)


def write(output: Path, episodes: Iterable[Episode], total: int, format_: str | None, about: About) -> None:
    """Write episodes and print what was written."""
    # The id follows from the output's path, as in Minari.
    of_output = replace(about, dataset_id=None)
    shown = watched(episodes, f"Writing {output}", total, "episodes")
    say(write_dataset(output, shown, format=format_, about=of_output))


def say(written: Written) -> None:
    """Print what was written."""
    size = f"{counted(written.episodes, 'episode')}, {counted(written.steps, 'transition')}"
    tell(f"{written.path}: {size} ({written.format})")
