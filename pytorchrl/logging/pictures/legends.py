"""Legends outside the axes, where they hide no curve, in as many columns as have room."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytorchrl.logging.pictures.figure_options import FigureOptions, LegendPlace
from pytorchrl.logging.pictures.label_fitting import WIDTH_OF_A_CHARACTER, characters_in, points_of
from pytorchrl.logging.pictures.styles import LineStyle, in_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend as Drawn

_MOST_BELOW = 6
_CHARACTERS_BESIDE = 44
"""Characters of a line to the right of the axes."""
_SHARE_BESIDE = 0.35
"""Share of the width of a figure of a given size that a legend beside the axes has."""
_LENGTH_OF_A_LINE = 3.5
"""Of an entry's line and the space around it, relative to the size of the font."""
_LOCATIONS = {
    "below": "outside lower center",
    "above": "outside upper center",
    "right": "outside right upper",
    "inside": "best",
}
_COMPACT = {
    "borderaxespad": 0.3,
    "borderpad": 0.1,
    "columnspacing": 1.0,
    "handlelength": 1.5,
    "handletextpad": 0.5,
    "labelspacing": 0.3,
}
"""Spaces in the legend of a figure of a given size, relative to the size of the font."""


@dataclass(frozen=True)
class Entry:
    """A line of a legend."""

    label: str
    color: str
    line_style: LineStyle = "-"
    marker: str = ""
    line_width: float = 1.0
    """Relative to the usual."""


@dataclass(frozen=True)
class Legend:
    """A legend below the axes, or to the right of them where there are many entries, unless its place is chosen.

    Its texts, lines and markers have the sizes of ``matplotlib.rcParams`` when it is drawn.
    """

    entries: Sequence[Entry]
    caption: str
    options: FigureOptions

    @property
    def place(self) -> LegendPlace:
        """Where the legend lies."""
        if not self.entries and not self.caption:
            return "none"
        if self.options.legend_place is not None:
            return self.options.legend_place
        return "below" if len(self.entries) <= _MOST_BELOW or self.options.is_narrow else "right"

    def size_with(self, width: float, height: float) -> tuple[float, float]:
        """Return the size in inches of a figure with axes of this size and the legend."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if self.place in ("inside", "none"):
            return width, height
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        wide, high = _extent(figure, self._drawn_in(figure, loc="center"))
        if self.place == "right":
            return width + wide, max(height, high)
        return width, height + high

    def add_to(self, figure: "Figure") -> None:
        """Draw the legend; one inside the axes belongs to the first ones."""
        if self.place != "none":
            self._drawn_in(figure, loc=_LOCATIONS[self.place])

    def add_to_axes(self, axes: "Axes") -> None:
        """Draw the legend inside axes of a user's figure."""
        if self.entries or self.caption:
            width = axes.bbox.width / axes.figure.dpi
            self._drawn_by(axes, width, _LOCATIONS["inside"], self.options.legend_columns or 1)

    def _drawn_in(self, figure: "Figure", loc: str) -> "Drawn":
        """Draw the legend with as many columns as have room in the width of the figure, or of the axes."""
        if self.options.legend_columns is not None:
            return self._drawn(figure, loc, self.options.legend_columns)
        # A legend inside the axes hides the least if it is narrow.
        most = 1 if self.place in ("right", "inside") else max(1, len(self.entries))
        for columns in range(most, 1, -1):
            drawn = self._drawn(figure, loc, columns)
            if _extent(figure, drawn)[0] <= figure.get_figwidth() and _is_even(len(self.entries), columns):
                return drawn
            drawn.remove()
        return self._drawn(figure, loc, 1)

    def _drawn(self, figure: "Figure", loc: str, columns: int) -> "Drawn":
        owner = figure.axes[0] if self.place == "inside" and figure.axes else figure
        return self._drawn_by(owner, figure.get_figwidth(), loc, columns)

    def _drawn_by(self, owner: "Figure | Axes", width: float, loc: str, columns: int) -> "Drawn":
        """Draw the legend of a figure or of axes; texts are broken into lines of a width in inches."""
        from matplotlib import rcParams
        from matplotlib.lines import Line2D

        lines = [
            Line2D(
                *([], []),
                color=entry.color,
                linestyle=entry.line_style,
                marker=entry.marker,
                markersize=1.25 * rcParams["lines.markersize"],
                linewidth=entry.line_width * rcParams["lines.linewidth"],
            )
            for entry in self.entries
        ]
        room = self._room(width)
        labels = [entry.label for entry in self._wrapped(room)]
        caption = textwrap.fill(self.caption, room)
        # Matplotlib leaves out what has a label that begins with an underscore; the texts are set afterwards.
        place: dict[str, Any] = {"loc": loc, "ncols": columns, "title": in_figure(caption) or None, "frameon": False}
        if self.options.size is not None:
            place |= _COMPACT
        legend: Drawn = owner.legend(lines, ["-"] * len(labels), **place)
        for text, label in zip(legend.get_texts(), labels, strict=True):
            text.set_text(in_figure(label))
        legend.get_title().set_color("#555555")
        return legend

    def _room(self, width: float) -> int:
        """Return how many characters of a figure of a width a line of the legend has."""
        points = points_of("legend.fontsize")
        if self.place == "right":
            return _CHARACTERS_BESIDE if self.options.size is None else characters_in(_SHARE_BESIDE * width, points)
        return characters_in(width, points)

    def _wrapped(self, room: int) -> list[Entry]:
        width = room if self.place == "right" else max(1, int(room - _LENGTH_OF_A_LINE / WIDTH_OF_A_CHARACTER))
        return [replace(entry, label=textwrap.fill(entry.label, width)) for entry in self.entries]


def _extent(figure: "Figure", legend: "Drawn") -> tuple[float, float]:
    """Return the width and the height in inches."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    box = legend.get_window_extent(renderer)
    return box.width / figure.dpi, box.height / figure.dpi


def _is_even(entries: int, columns: int) -> bool:
    """Whether fewer columns would need more rows."""
    return -(-entries // columns) < -(-entries // (columns - 1))
