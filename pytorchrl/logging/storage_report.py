"""What a storage holds, as tables for a terminal and as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from rich.text import Text

from storages.core.summary import ENDINGS, Episodes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pytorchrl.experiments.inspection import Inspection

_MOST_BINS = 50
_KIBI = 1024


def storage_report(inspection: "Inspection") -> Group:
    """Fields, sizes, episodes and priorities, to be printed."""
    parts: list[Any] = [_heading(inspection)]
    if inspection.episodes is None:
        return Group(*parts, Text("It is empty."))
    parts.append(_fields(inspection))
    parts.append(_episodes(inspection.episodes))
    if inspection.priorities is not None:
        parts.append(_numbers("Priorities", {"of all transitions": inspection.priorities}))
    return Group(*parts)


def plot_storage(inspection: "Inspection", output: Path) -> Path:
    """Draw histograms of returns, lengths, priorities and ages into a PNG file.

    Raises:
        ValueError: nothing is stored, or ``output`` is not to be a PNG.
    """
    output = Path(output)
    if output.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG; its name must end in .png, got {str(output)!r}")
    if inspection.episodes is None:
        raise ValueError(f"{inspection.path}: the storage is empty; there is nothing to draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    returns_axes, lengths_axes, priorities_axes, ages_axes = figure.subplots(2, 2).ravel()
    whole = inspection.episodes.whole
    _draw(returns_axes, inspection.episodes.returns[whole], "Returns of whole episodes", "return", "episodes")
    _draw(lengths_axes, inspection.episodes.lengths[whole], "Lengths of whole episodes", "steps", "episodes")
    priorities = inspection.priorities
    _draw(priorities_axes, priorities, "Priorities", "priority", "transitions", logarithmic=True)
    ages = inspection.steps - 1 - np.repeat(np.arange(inspection.steps), inspection.num_envs)
    drawn = "what priorities draw" if priorities is not None else "what is stored"
    _draw(ages_axes, ages, f"Age of {drawn}", "steps ago", "share", weights=_shares(priorities, len(ages)))
    figure.suptitle(
        f"{inspection.name}: {inspection.transitions:,} transitions of {_counted(inspection.num_envs, 'environment')}"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, format="png")
    return output


def _heading(inspection: "Inspection") -> Table:
    table = Table.grid(padding=(0, 2))
    parameters = ", ".join(f"{name}={value}" for name, value in inspection.hyper_parameters.items())
    for name, value in (
        ("Storage", f"{inspection.name}({parameters})"),
        ("Checkpoint", str(inspection.path)),
        (
            "Transitions",
            f"{inspection.transitions:,} of {inspection.capacity_steps * inspection.num_envs:,}: "
            f"{inspection.steps:,} steps of {_counted(inspection.num_envs, 'environment')}",
        ),
        ("Inserted", f"{inspection.inserted_steps:,} steps so far"),
        ("Memory", f"{_bytes(inspection.nbytes)}, free room included"),
    ):
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _fields(inspection: "Inspection") -> Table:
    table = Table(title="Fields", title_justify="left")
    for heading in ("field", "shape", "dtype"):
        table.add_column(heading)
    table.add_column("bytes a transition", justify="right")
    for field in inspection.fields:
        kept = f"{field.bytes_each:,}" if field.bytes_each else "in the next step's"
        table.add_row(field.name, str(field.shape), field.dtype, kept)
    return table


def _episodes(episodes: Episodes) -> Group:
    whole = int(np.count_nonzero(episodes.whole))
    endings = ", ".join(f"{episodes.ended(ending):,} {ending}" for ending in ENDINGS)
    lines = Text(f"{_counted(len(episodes.returns), 'episode')}, {whole:,} of them whole: {endings}")
    if not whole:
        return Group(lines)
    of_whole = {"return": episodes.returns[episodes.whole], "length": episodes.lengths[episodes.whole]}
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


def _draw(
    axes: "Axes",
    values: NDArray[Any] | None,
    title: str,
    unit: str,
    counted: str,
    weights: NDArray[np.float64] | None = None,
    *,
    logarithmic: bool = False,
) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(title)
    if values is None or not len(values):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes, color="gray")
        return
    different = len(np.unique(values[: 10 * _MOST_BINS])) if len(values) <= 10 * _MOST_BINS else _MOST_BINS
    axes.hist(values, bins=max(1, min(_MOST_BINS, different)), weights=weights, color="C0")
    axes.set_xlabel(unit)
    axes.set_ylabel(counted)
    if logarithmic:
        axes.set_yscale("log")
    if np.abs(values).max() >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _shares(priorities: NDArray[np.float64] | None, transitions: int) -> NDArray[np.float64]:
    if priorities is None or priorities.sum() == 0:
        return np.full(transitions, 1 / transitions)
    shares: NDArray[np.float64] = priorities / priorities.sum()
    return shares


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    size, units = float(number), iter(("bytes", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= _KIBI and unit != "GiB":
        size, unit = size / _KIBI, next(units)
    return f"{size:,.4g} {unit}"
