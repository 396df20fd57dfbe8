"""Labels of axes in several lines where one does not fit."""

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_OF_A_CHARACTER = 0.6
"""Mean width of a character, relative to the size of its font."""
_POINTS_PER_INCH = 72.0


def points_of(parameter: str) -> float:
    """Return a size of texts of ``matplotlib.rcParams``, which may be relative to that of the font, in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    parameters: Any = rcParams
    return float(FontProperties(size=parameters[parameter]).get_size_in_points())


def characters_in(inches: float, points: float) -> int:
    """Return how many characters of a font of a size fit in a length; at least 1."""
    return max(1, int(inches * _POINTS_PER_INCH / (WIDTH_OF_A_CHARACTER * points)))


def fit_labels(figure: "Figure") -> None:
    """Break the labels of the axes and the titles of a figure that are longer than the axes or the figure.

    Layouts depend on the labels, and the room for labels on the layout, which is therefore computed first.
    """
    figure.draw_without_rendering()
    renderer: Any = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    heading = figure.get_suptitle() and figure._suptitle  # type: ignore[attr-defined]
    texts: list[tuple[Any, float, bool]] = [(heading, figure.bbox.width, False)] if heading else []
    for axes in figure.axes:
        # Labels of the horizontal axis may reach over the ends of the axes, as long as those beside them do not.
        box = axes.get_window_extent(renderer)
        texts += [
            (axes.xaxis.label, box.width, False),
            (axes.title, box.width, False),
            (axes.yaxis.label, box.height, True),
        ]
    for text, room, is_upright in texts:
        extent = text.get_window_extent(renderer)
        length = extent.height if is_upright else extent.width
        content = text.get_text()
        if content and length > room:
            lines = content.splitlines()
            longest = max(map(len, lines))
            text.set_text(textwrap.fill(" ".join(lines), max(1, int(longest * room / length))))
