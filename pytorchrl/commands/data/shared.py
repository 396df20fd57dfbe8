"""Shared parts of the commands for data sets: arguments, opening and writing."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.experiments import RunFolder
from pytorchrl.experiments.inspection.overview import CheckpointDataset, directory_of_episodes
from pytorchrl.logging.bars import watched
from pytorchrl.logging.tables.storage_report import counted
from pytorchrl.terminal import tell
from storages.datasets import FORMATS, About, Dataset, Ends, FlatNames, Written, open_dataset, write_dataset
from storages.episode import Episode

Format = Annotated[
    str | None,
    tyro.conf.arg(metavar="{" + ",".join(FORMATS) + "}", help_behavior_hint=""),
]
Names = Annotated[dict[str, str], tyro.conf.arg(metavar="WHAT NAME ...", help_behavior_hint="")]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
Output = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
Count = Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]


def opened(path: Path, names: dict[str, str], ends: Ends) -> Dataset:
    """Open a data set, the directory of a storage, or the storage in a run's checkpoint."""
    if path.suffix == RunFolder(path).checkpoint_file.suffix or RunFolder(path).checkpoint_file.is_file():
        episodes = directory_of_episodes(path)
        return CheckpointDataset(path) if episodes is None else open_dataset(episodes)
    known = set(FlatNames.__dataclass_fields__)
    unknown = set(names) - known
    if unknown:
        raise ValueError(f"--names: unknown {', '.join(sorted(unknown))}; choose from {', '.join(sorted(known))}")
    return open_dataset(path, names=FlatNames(**names) if names else None, ends=ends)


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
