"""Tables of a storage's contents, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pytorchrl.logging.formats import as_written, counted, format_bytes
from storages.core.ring.summary import ENDINGS, EpisodeSummary, Field

if TYPE_CHECKING:
    from pytorchrl.experiments.inspection.overview import Inspection


def storage_report(inspection: "Inspection") -> Group:
    """Return tables of fields, sizes, episodes and priorities; returns that are not finite are counted apart."""
    parts: list[Any] = [_heading(inspection)]
    if inspection.episodes is None:
        return Group(*parts, Text("The storage is empty."))
    parts.append(fields_table(inspection.fields))
    parts.append(episodes_tables(inspection.episodes))
    if inspection.lacks_alpha:
        parts.append(
            Text(
                "Priorities: unknown, because alpha is neither a number nor a LinearSchedule with the run's "
                "config.json beside the checkpoint"
            )
        )
    elif inspection.priorities is not None:
        values = inspection.priorities.values
        if len(values):
            parts.append(_numbers("Priorities", {f"of {counted(len(values), inspection.priorities.of)}": values}))
        else:
            parts.append(Text("Priorities: none, because no episode is whole yet"))
    return Group(*parts)


def _heading(inspection: "Inspection") -> Table:
    table = Table.grid(padding=(0, 2))
    config = {"name": inspection.name, "hyper_parameters": inspection.hyper_parameters}
    memory = f"{format_bytes(inspection.nbytes)} for transitions"
    if inspection.index_nbytes:
        memory += f", {format_bytes(inspection.index_nbytes)} for the boundaries of episodes"
    if inspection.priorities is not None:
        memory += f", {format_bytes(inspection.priorities.nbytes)} for priorities"
    for name, value in (
        ("Storage", as_written(config)),
        ("Checkpoint", str(inspection.path)),
        (
            "Transitions",
            f"{inspection.transitions:,} of {inspection.capacity_steps * inspection.num_envs:,}: "
            f"{counted(inspection.steps, 'step')} of {counted(inspection.num_envs, 'environment')}",
        ),
        ("Inserted", f"{counted(inspection.inserted_steps, 'step')} so far"),
        ("Memory", f"{memory}, unused capacity included"),
    ):
        table.add_row(Text(name, style="bold"), value)
    return table


def fields_table(fields: Sequence[Field]) -> Table:
    """Return a table of the fields of a transition, with their sizes."""
    table = Table(title="Fields", title_justify="left")
    for heading in ("field", "shape", "dtype"):
        table.add_column(heading)
    table.add_column("bytes per transition", justify="right")
    for field in fields:
        kept = f"{field.bytes_each:,}" if field.bytes_each else "shared with the next step"
        table.add_row(field.name, str(field.shape), field.dtype, kept)
    return table


def episodes_tables(episodes: EpisodeSummary) -> Group:
    """Return the number and the ends of episodes, and the returns and lengths of whole ones."""
    whole = int(np.count_nonzero(episodes.whole))
    endings = ", ".join(f"{episodes.ended(ending):,} {ending}" for ending in ENDINGS)
    lines = Text(f"{counted(len(episodes.returns), 'episode')}, {whole:,} of them whole: {endings}")
    if not whole:
        return Group(lines)
    returns = episodes.returns[episodes.whole]
    finite = np.isfinite(returns)
    if not finite.all():
        lines.append(f"; {len(finite) - np.count_nonzero(finite):,} of the whole ones have a return that is not finite")
    of_whole: dict[str, NDArray[Any]] = {"return": returns[finite]} if finite.any() else {}
    of_whole["length"] = episodes.lengths[episodes.whole]
    return Group(lines, _numbers("Whole episodes", of_whole))


def _numbers(title: str, rows: Mapping[str, NDArray[Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for heading in ("mean", "smallest", "median", "largest"):
        table.add_column(heading, justify="right")
    for name, values in rows.items():
        numbers = (values.mean(), values.min(), np.median(values), values.max())
        table.add_row(name, *(f"{number:,.4g}" for number in numbers))
    return table
