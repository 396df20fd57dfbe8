"""Comparisons as tables of LaTeX, with the rules of the package booktabs."""

import re
from collections.abc import Sequence

from pytorchrl.comparison.results import Comparison
from pytorchrl.comparison.tables import Table, tables_of
from pytorchrl.terminal import on_one_line

_ESCAPED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def as_latex(comparison: Comparison, columns: Sequence[str] = ()) -> str:
    """Format the tables of a comparison in LaTeX, with its answer and its notes as comments.

    Args:
        comparison: what is formatted.
        columns: as for :func:`~pytorchrl.comparison.tables.tables_of`.
    """
    lines = [f"% {on_one_line(comment)}" for comment in (_NEEDS, comparison.answer, *comparison.notes)]
    return "\n\n".join(["\n".join(lines), *map(_formatted, tables_of(comparison, columns))]) + "\n"


def table_in_latex(table: Table) -> str:
    """Format a table in LaTeX."""
    return f"% {_NEEDS}\n\n{_formatted(table)}\n"


_NEEDS = r"Needs \usepackage{booktabs} before the document."


def _formatted(table: Table) -> str:
    kinds = "l" * table.left + "r" * (len(table.columns) - table.left)
    header, *rows = (_row(row) for row in (table.columns, *table.rows))
    body = ["\\toprule", header, "\\midrule", *rows, "\\bottomrule"]
    return "\n".join(
        [
            "\\begin{table}",
            "  \\centering",
            f"  \\caption{{{_escaped(table.title)}}}",
            # Letters and digits alone, of which a label of LaTeX may consist.
            f"  \\label{{tab:{re.sub(r'[^a-z0-9]+', '-', table.title.lower()).strip('-')}}}",
            f"  \\begin{{tabular}}{{{kinds}}}",
            *(f"    {line}" for line in body),
            "  \\end{tabular}",
            "\\end{table}",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    text = " & ".join(map(_escaped, cells))
    # A bracket or a star would be read as an argument of the end of the row before it.
    return f"{'{}' if text.startswith(('[', '*')) else ''}{text} \\\\"


def _escaped(text: str) -> str:
    escaped = re.sub(r"[\\~^<>|\"&%$#_{}]", lambda found: _ESCAPED[found[0]], on_one_line(text))
    # Of a number, it is a minus; LaTeX would set a hyphen.
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)
