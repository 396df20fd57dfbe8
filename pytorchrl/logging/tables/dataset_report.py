"""Tables of the contents of data sets, for a terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pytorchrl.logging.formats import counted, format_bytes
from pytorchrl.logging.tables.storage_report import episodes_tables, fields_table
from pytorchrl.terminal import printable
from storages.core.ring.summary import ENDINGS, EpisodeSummary, Field
from storages.datasets import About, Dataset, normalised, open_dataset, references_of, return_of
from storages.datasets.dataset import action_names_of, layout_of
from storages.datasets.episode_bounds import LastSteps
from storages.episode import Episode
from storages.errors import PersistenceError


def datasets_table(paths: Iterable[Path], folder: Path) -> Table:
    """Return a row for each data set and storage in or below a folder; one that cannot be read shows the reason."""
    table = Table()
    for heading in ("path", "format"):
        table.add_column(heading, overflow="fold")
    for heading in ("episodes", "transitions", "size"):
        table.add_column(heading, justify="right")
    for path in paths:
        size = format_bytes(bytes_at(path))
        name = str(path if path == folder else path.relative_to(folder))
        try:
            dataset = open_dataset(path)
            table.add_row(name, format_of(dataset), f"{len(dataset):,}", f"{dataset.steps:,}", size)
        except (OSError, PersistenceError) as error:
            table.add_row(name, Text(printable(f"cannot be read: {error}"), style="red"), "", "", size)
    return table


def dataset_report(dataset: Dataset, episodes: Iterable[Episode]) -> Group:
    """Return the metadata, the fields, and the episodes' ends, returns and lengths of a data set.

    Args:
        dataset: the data set.
        episodes: all of its episodes, which are iterated over once.
    """
    fields: list[Field] = []
    lengths, returns, endings, begins = [], [], [], []
    for episode in episodes:
        fields = fields or _fields(episode)
        lengths.append(len(episode))
        returns.append(return_of(episode))
        endings.append(_ending(episode))
        begins.append(bool(episode.facts.get("begins", True)))
    ended = np.array(endings, np.int64)
    return Group(
        _heading(dataset, returns, sum(lengths)),
        fields_table(fields),
        episodes_tables(
            EpisodeSummary(
                np.array(returns), np.array(lengths, np.int64), ended, np.array(begins, bool) & (ended < _ENDED)
            )
        ),
    )


_ENDED = 2
"""The index in :data:`ENDINGS` below which an episode has ended."""


def _ending(episode: Episode) -> int:
    if episode.terminated:
        return ENDINGS.index("terminated")
    return ENDINGS.index("truncated" if episode.truncated else "running")


def _fields(episode: Episode) -> list[Field]:
    return [
        Field(name, leaf.shape, leaf.dtype.name, leaf.count * leaf.dtype.itemsize)
        for name, leaf in layout_of(episode).items()
    ]


def numbered_actions(about: About) -> list[str]:
    """Return the numbers and the names of discrete actions, ``0 high``; none where they have no names."""
    return [f"{number} {name}" for number, name in enumerate(action_names_of(about))]


def left_out_of(dataset: Dataset) -> str:
    """Return which last steps are not read, as no next observation is recorded; "" if all are read."""
    found: LastSteps | None = getattr(dataset, "left_out", None)
    if found is None or not found.of_others.any():
        return ""
    cut = int(found.of_terminated.sum())
    said = (
        f"the last steps of {counted(int(found.of_others.sum()), 'episode')} that did not terminate, whose next "
        f"observations are not recorded"
    )
    if cut:
        return f"{said}, and of {cut:,} of the {cut + found.kept:,} that terminated, which stay as frequent so"
    return said


def format_scores(about: About, returns: Sequence[float]) -> str | None:
    """Return the mean return of episodes as a normalised score; None where the data set has no reference returns."""
    references = references_of(about)
    if references is None or not returns:
        return None
    source = about.further.get("ref_source")
    of = f"; {source}" if isinstance(source, str) else ""
    mean = normalised([float(np.mean(returns))], references)[0]
    return f"{mean:.3f} on average ({references[0]:g} is 0, {references[1]:g} is 1{of})"


def _heading(dataset: Dataset, returns: Sequence[float], steps: int) -> Table:
    table = Table.grid(padding=(0, 2))
    about = dataset.about
    rows: Sequence[tuple[str, object]] = (
        ("Data set", about.dataset_id),
        ("Path", dataset.path),
        ("Format", format_of(dataset)),
        ("Size", f"{format_bytes(bytes_at(dataset.path))} on disk"),
        ("Contents", f"{counted(len(returns), 'episode')} of {counted(steps, 'transition')}"),
        ("Normalised score", format_scores(about, returns)),
        ("Algorithm", about.algorithm_name),
        ("Author", ", ".join(about.author)),
        ("Merged from", ", ".join(about.combined_datasets)),
        ("Description", about.description),
        ("Actions", ", ".join(numbered_actions(about))),
        ("Not used", ", ".join(getattr(dataset, "unused", ()))),
        ("Left out", left_out_of(dataset)),
    )
    for name, value in rows:
        if value:
            table.add_row(Text(name, style="bold"), str(value))
    return table


def format_of(dataset: Dataset) -> str:
    """Return the name of a data set's format and layout."""
    layout = getattr(dataset, "layout", None)
    return f"{dataset.format}-{layout}" if layout else dataset.format


def bytes_at(path: Path) -> int:
    """Return the size in bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
