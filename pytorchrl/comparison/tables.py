"""Comparisons as tables: for the terminal, as Markdown, and as comma-separated values."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table as RichTable

from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.scores import ScoreName
from pytorchrl.logging.bootstrap import Estimate
from pytorchrl.logging.groups import shown_environment
from pytorchrl.logging.tables.evaluation_table import csv_of
from pytorchrl.terminal import TextConsole, on_one_line

_WIDTH_OF_FILES = 160
_COLUMNS_OF_A_HALF = 6
_LEAST_OF_A_NAME = 20
"""Width of the names below which a table is printed in two parts."""


@dataclass(frozen=True)
class Table:
    """Texts in rows and columns; the first column is a name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    """How many columns, from the first, are texts; the others are numbers, at the right of their column."""


def print_table(table: Table) -> None:
    """Print a table; where the terminal is too narrow, names take several lines, or the columns two parts."""
    console = TextConsole()
    if not console.is_terminal:
        # A file or a pipe is not limited to the width of a terminal.
        console = TextConsole(width=max(_WIDTH_OF_FILES, _width(table)))
    table = Table(table.title, table.columns, [list(map(on_one_line, row)) for row in table.rows], table.left)
    is_narrow = console.width - _width(table, first=1) < min(_LEAST_OF_A_NAME, _width_of_names(table))
    for part in _halves(table) if is_narrow else [table]:
        shown = RichTable(title=part.title or None, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
        for number, column in enumerate(part.columns):
            justify: Literal["left", "right"] = "left" if number < part.left else "right"
            shown.add_column(column, justify=justify, no_wrap=number > 0, overflow="fold")
        room = console.width - _width(part, first=1)
        for name, *cells in part.rows:
            shown.add_row(_broken(name, room), *cells)
        console.print(shown)


def _width(table: Table, first: int = 0) -> int:
    """Return the width of the columns from the first one on, with the spaces between and beside them."""
    return sum(widths + 1 for widths in _widths(table)[first:]) + 2


def _width_of_names(table: Table) -> int:
    return _widths(table)[0] + 1


def _widths(table: Table) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(table.columns, *table.rows, strict=True)]


def _broken(name: str, room: int) -> str:
    """Break a name that is too long for its column into lines, after separators of words."""
    lines = [""]
    for part in re.findall(r"[^/\\\-_ ,.=]*[/\\\-_ ,.=]|[^/\\\-_ ,.=]+", name):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _halves(table: Table) -> list[Table]:
    """Split the columns of a table in two, with the names in both parts."""
    if len(table.columns) <= _COLUMNS_OF_A_HALF:
        return [table]
    rows = [row[:_COLUMNS_OF_A_HALF] for row in table.rows]
    first = Table(table.title, table.columns[:_COLUMNS_OF_A_HALF], rows, table.left)
    rows = [[row[0], *row[_COLUMNS_OF_A_HALF:]] for row in table.rows]
    return [first, Table("", [table.columns[0], *table.columns[_COLUMNS_OF_A_HALF:]], rows)]


def as_markdown(comparison: Comparison, columns: Sequence[str] = ()) -> str:
    """Format the tables of a comparison, its answer and its notes in Markdown.

    Args:
        comparison: what is formatted.
        columns: as for :func:`tables_of`.
    """
    parts = []
    for table in tables_of(comparison, columns):
        parts.append(f"### {on_one_line(table.title)}\n\n{table_in_markdown(table)}")
    parts.append(on_one_line(comparison.answer))
    return "\n\n".join([*parts, "\n".join(f"- {on_one_line(note)}" for note in comparison.notes)]) + "\n"


def table_in_markdown(table: Table) -> str:
    """Format the rows of a table in Markdown."""
    right = len(table.columns) - table.left
    lines = [table.columns, [*["---"] * table.left, *["---:"] * right], *table.rows]
    return "\n".join(f"| {' | '.join(_in_markdown(cell) for cell in line)} |" for line in lines)


def _in_markdown(cell: str) -> str:
    """Format a text for a cell of a table in Markdown, in which it is neither a column nor HTML."""
    return on_one_line(cell).replace("|", r"\|").replace("<", r"\<")


def as_csv(comparison: Comparison) -> str:
    """Format results in full precision, a line each; the environment of overall results is empty."""
    return csv_of([_record(comparison, result) for result in [*comparison.results, *comparison.overall]])


def _record(comparison: Comparison, result: GroupResult) -> dict[str, object]:
    better = next((one for one in comparison.improvements if one.name == result.name), None)
    if result not in comparison.main:
        better = None
    record: dict[str, object] = {
        "group": result.name,
        "environment": result.environment,
        "seeds": result.seeds,
        "score": comparison.score,
        **figures_of(result),
        "baseline": better and better.baseline,
        "probability_of_improvement": better and better.probability.value,
        "probability_low": better and better.probability.low,
        "probability_high": better and better.probability.high,
        "seeds_needed": better and better.seeds_needed,
    }
    # NaN stands for an unknown value.
    return {name: "" if value is None or value != value else value for name, value in record.items()}


def figures_of(result: GroupResult) -> dict[str, float]:
    """Return the figures of a result by their names."""
    iqm = result.iqm
    names = ("mean", "std", "median", "final", "last_ten", "best", "steps", "seconds")
    return {"iqm": iqm.value, "iqm_low": iqm.low, "iqm_high": iqm.high} | {
        name: getattr(result, name) for name in names
    }


def table_of_runs(result: GroupResult) -> Table:
    """Return a table of the scores of each run of a group."""
    rows = [
        [
            "" if run.seed is None else str(run.seed),
            *map(shown, (run.final, run.last_ten, run.best)),
            f"{run.steps:,.0f}",
            "" if math.isnan(run.seconds) else f"{run.seconds:,.0f}",
        ]
        for run in result.runs
    ]
    return Table("Returns of each seed", ["seed", "final", "last ten", "best", "steps", "seconds"], rows)


def tables_of(comparison: Comparison, columns: Sequence[str] = ()) -> list[Table]:
    """Return the results of each environment, those of all, and the probabilities of improvement.

    Args:
        comparison: what is shown.
        columns: names of those that follow the group's, in their order; all where there are none. A table without any
            of them is left out.

    Raises:
        ValueError: no table has a column of a name.
    """
    several = len(comparison.environments) > 1
    tables = [
        _results(f"Scores in {shown_environment(env)}" if env else "Scores", comparison.of(env), comparison.score)
        for env in comparison.environments
    ]
    if several and comparison.overall:
        tables.append(_results("Normalised scores in all environments", comparison.overall, comparison.score))
    if comparison.improvements:
        tables.append(_improvements(comparison))
    return _with_columns(tables, columns) if columns else tables


def _with_columns(tables: Sequence[Table], columns: Sequence[str]) -> list[Table]:
    known = list(dict.fromkeys(name for table in tables for name in table.columns[1:]))
    if unknown := [name for name in columns if name not in known]:
        raise ValueError(f"columns: there is no {unknown[0]!r}; choose from: {'; '.join(known)}")
    found = []
    for table in tables:
        places = [0, *(table.columns.index(name) for name in columns if name in table.columns)]
        if len(places) > 1:
            rows = [[row[place] for place in places] for row in table.rows]
            found.append(Table(table.title, [table.columns[place] for place in places], rows, table.left))
    return found


def shown(value: float) -> str:
    """Format a number, with fewer decimals the larger it is; empty for NaN."""
    if math.isnan(value):
        return ""
    size = abs(value)
    return f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}" if size >= 10 else f"{value:.2f}"


def shown_interval(estimate: Estimate) -> str:
    """Format the bounds of an interval; empty where there is none."""
    return f"[{shown(estimate.low)}, {shown(estimate.high)}]" if estimate.has_interval else ""


def _results(title: str, results: Sequence[GroupResult], score: ScoreName) -> Table:
    of = "final" if score == "final" else "last ten"
    columns = ["group", "seeds", f"{of} IQM", "95% interval", "mean", "std", "median"]
    # The best score is biased, and never shown without final and last ten.
    columns += [*(["final"] if score != "final" else []), *(["last ten"] if score == "final" else []), "best"]
    return Table(title, [*columns, "steps", "seconds"], list(_rows(results, score)))


def _rows(results: Sequence[GroupResult], score: ScoreName) -> Iterator[list[str]]:
    for result in results:
        yield [
            result.name,
            result.seeds,
            shown(result.iqm.value),
            shown_interval(result.iqm),
            *map(shown, (result.mean, result.std, result.median)),
            *map(shown, (result.last_ten if score == "final" else result.final, result.best)),
            f"{result.steps:,.0f}",
            "" if math.isnan(result.seconds) else f"{result.seconds:,.0f}",
        ]


def _improvements(comparison: Comparison) -> Table:
    rows = [
        [
            better.name,
            f"{better.probability.value:.2f}",
            shown_interval(better.probability),
            str(better.seeds),
            "" if better.seeds_needed is None else str(better.seeds_needed) if better.seeds_needed < 1000 else ">1,000",
            better.conclusion,
        ]
        for better in comparison.improvements
    ]
    columns = ["group", "probability", "95% interval", "seeds", "needed", "conclusion"]
    return Table(f"Probability of improvement over {comparison.baseline}", columns, rows)
