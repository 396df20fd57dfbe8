"""Commands that list, show, convert and merge data sets."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.commands.data.shared import (
    NOTHING_SAID,
    AsOptions,
    Format,
    Output,
    Source,
    opened,
    opened_as_it_is,
    write,
)
from pytorchrl.logging.bars import watched
from pytorchrl.logging.pictures.dataset_plot import plot_dataset, refuse_other_suffix
from pytorchrl.logging.pictures.dataset_sample import data_warnings, sample_of
from pytorchrl.logging.tables.dataset_report import dataset_report, datasets_table
from pytorchrl.terminal import TextConsole, tell
from storages.datasets import about_merged, find_datasets, format_for, merged

Picture = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")]


def ls(path: tyro.conf.Positional[Path] = Path()) -> None:
    """List the data sets and the storages on disk in a folder and all folders below it.

    Args:
        path: where to look.
    """
    found = list(find_datasets(path))
    if found:
        TextConsole().print(datasets_table(watched(found, "Reading", len(found), "data sets"), path))
    else:
        TextConsole().print(f"There is no data set in {path}.")


def show(
    path: tyro.conf.Positional[Path],
    output: Picture = None,
    said: AsOptions = NOTHING_SAID,
) -> None:
    """Describe a data set: fields, episodes, returns, scores, how episodes ended, and what is suspicious.

    Args:
        path: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is meant.
        output: a picture that ends in .png, or a page that ends in .html: returns, lengths, rewards, actions, coverage.
        said: what the file leaves open.
    """
    if output is not None:
        refuse_other_suffix(output)
    dataset = opened(path, said)
    report = dataset_report(dataset, watched(dataset, f"Reading {path}", len(dataset), "episodes"))
    console = TextConsole(record=output is not None)
    console.print(report)
    if output is not None:
        sample = sample_of(dataset, watched(dataset, f"Drawing {path}", len(dataset), "episodes"))
        for complaint in data_warnings(sample, dataset.about.action_space):
            tell(f"Warning: {complaint}")
        tell(f"Picture: {plot_dataset(dataset, sample, output, console.export_text())}")


def convert(
    source: Source,
    output: Output,
    format: Format = None,  # noqa: A002
    said: AsOptions = NOTHING_SAID,
) -> None:
    """Write a data set, a table of steps, or what a storage holds, in another format.

    Args:
        source: what is read: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is
            meant.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
        said: what the source leaves open.
    """
    format_for(output, format)
    dataset = opened(source, said)
    write(output, dataset, len(dataset), format, dataset.about)


def merge(
    sources: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUTPUT")],
    format: Format = None,  # noqa: A002
) -> None:
    """Concatenate several data sets into a new one.

    Args:
        sources: what is read; their fields and spaces must be alike.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    format_for(output, format)
    if not sources:
        raise ValueError("merge: name the data sets to be merged")
    datasets = [opened_as_it_is(source) for source in sources]
    write(output, merged(datasets), sum(map(len, datasets)), format, about_merged(datasets))
