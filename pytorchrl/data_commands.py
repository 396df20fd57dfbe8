"""Collect, list, show, convert, merge and prune data sets: ``python -m pytorchrl data``."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from pytorchrl.experiments import RunFolder, collect_demonstrations
from pytorchrl.experiments.inspection.overview import CheckpointDataset, directory_of_episodes
from pytorchrl.logging.bars import watched
from pytorchrl.logging.dataset_report import dataset_report, datasets_table
from pytorchrl.logging.storage_report import counted
from storages.datasets import (
    FORMATS,
    About,
    Dataset,
    Ends,
    FlatNames,
    Written,
    about_merged,
    chosen,
    find_datasets,
    format_for,
    merged,
    open_dataset,
    return_of,
    write_dataset,
)
from storages.episode import Episode

Format = Annotated[
    str | None,
    tyro.conf.arg(metavar="{" + ",".join(FORMATS) + "}", help_behavior_hint=""),
]
Names = Annotated[dict[str, str], tyro.conf.arg(metavar="WHAT NAME ...", help_behavior_hint="")]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
Output = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]


def ls(path: tyro.conf.Positional[Path] = Path()) -> None:
    """List the data sets and the storages on disk in a folder and all folders below it.

    Args:
        path: where to look.
    """
    found = list(find_datasets(path))
    if found:
        Console().print(datasets_table(watched(found, "Reading", len(found), "data sets"), path))
    else:
        Console().print(f"None in {path}.")


def show(
    path: tyro.conf.Positional[Path],
    names: Names = {},  # noqa: B006
    ends: Ends = "unknown",
) -> None:
    """Tell what is in a data set: fields, episodes, returns, how episodes ended.

    Args:
        path: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is meant.
        names: what flat arrays are called, in pairs: observations obs actions act rewards r terminals done.
        ends: how episodes of flat arrays ended that say where, and not how.
    """
    dataset = _opened(path, names, ends)
    Console().print(dataset_report(dataset, watched(dataset, f"Reading {path}", len(dataset), "episodes")))


def convert(
    source: Source,
    output: Output,
    format: Format = None,  # noqa: A002
    names: Names = {},  # noqa: B006
    ends: Ends = "unknown",
) -> None:
    """Write a data set, or what a storage holds, in another format.

    Args:
        source: what is read: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is
            meant.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
        names: what flat arrays are called, in pairs: observations obs actions act rewards r terminals done.
        ends: how episodes of flat arrays ended that say where, and not how. The last step of one that terminated
            counts; that of any other is left out, since what followed it is not known.
    """
    format_for(output, format)
    dataset = _opened(source, names, ends)
    _write(output, dataset, len(dataset), format, dataset.about)


def merge(
    sources: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUTPUT")],
    format: Format = None,  # noqa: A002
) -> None:
    """Put several data sets into one, one after the other.

    Args:
        sources: what is read; their fields and spaces must be alike.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    format_for(output, format)
    if not sources:
        raise ValueError("merge: name the data sets to be merged")
    datasets = [open_dataset(source) for source in sources]
    _write(output, merged(datasets), sum(map(len, datasets)), format, about_merged(datasets))


def prune(
    source: Source,
    output: Output,
    min_return: Annotated[float | None, tyro.conf.arg(metavar="RETURN", help_behavior_hint="")] = None,
    max_episodes: Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")] = None,
    format: Format = None,  # noqa: A002
) -> None:
    """Write the best episodes of a data set as a new one, in their order.

    Args:
        source: what is read; it stays as it is.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        min_return: leave out episodes whose rewards add up to less.
        max_episodes: keep so many at most, those with the highest returns.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    format_for(output, format)
    if min_return is None and max_episodes is None:
        raise ValueError("prune: say what to leave out, by --min-return or --max-episodes or both")
    if max_episodes is not None and max_episodes < 1:
        raise ValueError(f"prune: --max-episodes must be at least 1, got {max_episodes}")
    dataset = open_dataset(source)
    returns = [return_of(one) for one in watched(dataset, f"Reading {source}", len(dataset), "episodes")]
    kept = chosen(returns, min_return=min_return, max_episodes=max_episodes)
    if not kept:
        best = max(returns, default=math.nan)
        raise ValueError(f"prune: none of the {len(returns)} episodes of {source} is left; the best returned {best:g}")
    episodes = (one for number, one in enumerate(dataset) if number in kept)
    _write(output, episodes, len(kept), format, dataset.about)


def collect(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    output: Output,
    episodes: Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")] = None,
    steps: Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")] = None,
    seed: int = 0,
    explore: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    format: Format = None,  # noqa: A002
) -> None:
    """Record what the agent of a run's last checkpoint does.

    Args:
        run: the run folder.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        episodes: how many to record.
        steps: environment transitions to record instead, the running episode included.
        seed: all randomness follows from it.
        explore: act as in training, instead of as well as possible.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    _say(
        collect_demonstrations(
            run, path=output, steps=steps, episodes=episodes, seed=seed, deterministic=not explore, format=format
        )
    )


COMMANDS: dict[str, Callable[..., None]] = {
    "collect": collect,
    "ls": ls,
    "show": show,
    "convert": convert,
    "merge": merge,
    "prune": prune,
}


def _opened(path: Path, names: dict[str, str], ends: Ends) -> Dataset:
    if path.suffix == RunFolder(path).checkpoint_file.suffix or RunFolder(path).checkpoint_file.is_file():
        episodes = directory_of_episodes(path)
        return CheckpointDataset(path) if episodes is None else open_dataset(episodes)
    known = set(FlatNames.__dataclass_fields__)
    unknown = set(names) - known
    if unknown:
        raise ValueError(f"--names: there is no {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return open_dataset(path, names=FlatNames(**names) if names else None, ends=ends)


def _write(output: Path, episodes: Iterable[Episode], total: int, format_: str | None, about: About) -> None:
    # The id is the name's, as Minari has it.
    of_output = replace(about, dataset_id=None)
    shown = watched(episodes, f"Writing {output}", total, "episodes")
    _say(write_dataset(output, shown, format=format_, about=of_output))


def _say(written: Written) -> None:
    told = f"{counted(written.episodes, 'episode')}, {counted(written.steps, 'transition')}"
    print(f"{written.path}: {told} ({written.format})")
