"""Legends outside the axes, where they hide no curve."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytorchrl.logging.pictures.styles import LineStyle, in_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BELOW = 6
_CHARACTERS_BELOW = 95
"""Characters that fit in a row below axes of ``_USUAL_WIDTH``."""
_USUAL_WIDTH = 8.0
"""Inches."""
_CHARACTERS_BESIDE = 44
"""Characters of a line to the right of the axes."""
_CHARACTERS_OF_A_LINE = 8
"""Width of an entry's line and the space around it, in characters."""
_INCHES_PER_CHARACTER = 0.078
_INCHES_PER_LINE = 0.21


@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    label: str
    color: str
    line_style: LineStyle = "-"
    marker: str = ""
    line_width: float = 1.8


@dataclass(frozen=True)
class Legend:
    """A legend below the axes, or to the right of them where there are many entries."""

    entries: Sequence[Entry]
    caption: str = ""
    width: float = _USUAL_WIDTH
    """Of the figure without a legend beside it, in inches."""

    @property
    def is_below(self) -> bool:
        """Whether it lies below the axes."""
        return len(self.entries) <= _MOST_BELOW

    @property
    def columns(self) -> int:
        """Number of columns of entries."""
        if not self.is_below:
            return 1
        return max(1, min(len(self.entries), self._room // (self._longest() + _CHARACTERS_OF_A_LINE)))

    def size_with(self, width: float, height: float) -> tuple[float, float]:
        """Return the size in inches of a figure with axes of this size and the legend."""
        lines = sum(entry.label.count("\n") + 1 for entry in self._wrapped())
        if self.is_below:
            return width, height + _INCHES_PER_LINE * (-(-lines // self.columns) + 1)
        wide = max(self._longest() + _CHARACTERS_OF_A_LINE, min(len(self.caption), _CHARACTERS_BESIDE))
        return width + _INCHES_PER_CHARACTER * wide, max(height, _INCHES_PER_LINE * (lines + 3))

    def add_to(self, figure: "Figure") -> None:
        """Draw the legend."""
        from matplotlib.lines import Line2D

        lines = [
            Line2D(
                *([], []),
                color=entry.color,
                linestyle=entry.line_style,
                marker=entry.marker,
                markersize=5,
                linewidth=entry.line_width,
            )
            for entry in self.entries
        ]
        place: dict[str, Any] = {"loc": "outside lower center" if self.is_below else "outside right upper"}
        caption = textwrap.fill(self.caption, self._room if self.is_below else _CHARACTERS_BESIDE)
        labels = [entry.label for entry in self._wrapped()]
        # Matplotlib leaves out what has a label that begins with an underscore; the texts are set afterwards.
        legend = figure.legend(
            lines, ["-"] * len(labels), ncols=self.columns, title=in_figure(caption) or None, frameon=False, **place
        )
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_text(in_figure(label))
        for text in (*legend.get_texts(), legend.get_title()):
            text.set_fontsize("small")
        legend.get_title().set_color("#555555")

    def _wrapped(self) -> list[Entry]:
        width = max(1, self._room - _CHARACTERS_OF_A_LINE) if self.is_below else _CHARACTERS_BESIDE
        return [replace(entry, label=textwrap.fill(entry.label, width)) for entry in self.entries]

    @property
    def _room(self) -> int:
        """Characters that fit in a row below the axes."""
        return round(_CHARACTERS_BELOW * self.width / _USUAL_WIDTH)

    def _longest(self) -> int:
        return max((len(line) for entry in self._wrapped() for line in entry.label.splitlines()), default=0)
