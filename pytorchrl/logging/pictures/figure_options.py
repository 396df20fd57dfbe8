"""Choices of how a figure looks: its size, texts and legend, and the names and the order of groups."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast, get_args

from pytorchrl.logging.groups import Group

LegendPlace: TypeAlias = Literal["below", "above", "right", "inside", "none"]

_SMALLEST_TEXTS = 0.75
"""Size of texts in a figure of a column's width, relative to the usual."""
_THINNEST_LINES = 0.65
"""Width of lines and size of markers in such a figure, relative to the usual."""
_WIDTH_OF_USUAL_SIZES = 6.0
"""Inches from which on texts, lines and markers have their usual size."""
_NARROW = 5.0
"""Inches below which texts of the legend are short."""
_ALGORITHM = re.compile(r"(.+?)( \+ |, )")
"""The beginning of the name of a group: the algorithm, and what joins it to storage or settings."""
_LINE_WIDTH = 1.8
_MARKER_SIZE = 4.0
_SIZES_OF_TEXTS = {
    "axes.labelsize": "medium",
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "xtick.labelsize": "medium",
    "ytick.labelsize": "medium",
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
}
"""Relative to ``font.size``, where the user has not chosen others."""


@dataclass(frozen=True)
class FigureOptions:
    """Size, labels, legend, names and order of a figure.

    Sizes of texts, ``lines.linewidth`` and ``lines.markersize`` that were changed in ``matplotlib.rcParams`` are used
    as they are. The others become smaller in figures that are narrower than 6 inches.

    Raises:
        ValueError: a size, a resolution or a number of columns is not positive, a share is not in [0, 1], a place of
            the legend or a colour is unknown, or two groups would have the same name.
    """

    size: tuple[float, float] | None = None
    """Width and height in inches; None fits the figure to its content."""
    font_size: float | None = None
    """Points of all texts; None for matplotlib's, which are smaller in a narrow figure."""
    dpi: float | None = None
    """Pixels per inch of a PNG file; None for 150, or ``savefig.dpi`` of matplotlib where that was changed."""
    title: str | None = None
    """None names algorithms and environments; an empty text leaves the title out."""
    x_label: str | None = None
    """Of the horizontal axis; None names what it shows."""
    y_label: str | None = None
    """Of the vertical axis; None names what it shows."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Pairs of a group's name and the one that is shown instead: DQN "deep Q" PPO ours."""
    order: Sequence[str] = ()
    """Names, as they are shown, of the groups that come first: ours "deep Q"."""
    legend_place: LegendPlace | None = None
    """"below", "above" or to the "right" of the axes, "inside" them, or "none"; None has it below, if it has room."""
    legend_columns: int | None = None
    """None for as many as have room."""
    note: bool = True
    """Whether the legend says which statistic of how many runs is drawn."""
    counts: bool = True
    """Whether the note, or the legend where groups differ in it, says the number of runs."""
    training: bool = True
    """Whether the returns of training are drawn beside those of evaluations."""
    smooth: float | None = None
    """Share of a curve over which what is measured in training is averaged: 0 draws it as it was logged. None for 0.1,
    and for 0 where the metric is one of your own."""
    colors: Mapping[str, str] = field(default_factory=dict)
    """Pairs of a group's name, as it is shown, and a colour of matplotlib: ours "#d62728" DQN tab:blue."""

    def __post_init__(self) -> None:
        """Check sizes, legend and names."""
        if self.size is not None and not all(math.isfinite(length) and length > 0 for length in self.size):
            raise ValueError(f"size must be a width and a height in inches, above 0, got {self.size}")
        if self.font_size is not None and not (math.isfinite(self.font_size) and self.font_size > 0):
            raise ValueError(f"font_size must be a number of points, above 0, got {self.font_size}")
        if self.dpi is not None and not (math.isfinite(self.dpi) and self.dpi > 0):
            raise ValueError(f"dpi must be a number of pixels per inch, above 0, got {self.dpi}")
        if self.smooth is not None and not 0 <= self.smooth <= 1:
            raise ValueError(f"smooth must be a share of the curve, from 0 to 1, got {self.smooth}")
        if self.legend_columns is not None and self.legend_columns < 1:
            raise ValueError(f"legend_columns must be at least 1, got {self.legend_columns}")
        if self.legend_place is not None and self.legend_place not in get_args(LegendPlace):
            raise ValueError(
                f"legend_place must be one of {', '.join(get_args(LegendPlace))}, got {self.legend_place!r}"
            )
        if isinstance(self.order, str):
            raise ValueError(f"order must be a list of names, got the text {self.order!r}; write [{self.order!r}]")
        if len(set(self.names.values())) < len(self.names):
            raise ValueError(f"names must differ, got {', '.join(map(repr, self.names.values()))}")

    @property
    def is_narrow(self) -> bool:
        """Whether the figure has the width of a paper's column, in which texts of the legend are short."""
        return self.size is not None and self.size[0] < _NARROW

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set matplotlib's sizes of texts, lines and markers to those of the figure in a context."""
        from matplotlib import rc_context, rcParams
        from matplotlib.colors import is_color_like

        for name, color in self.colors.items():
            if not is_color_like(color):
                raise ValueError(
                    f"colors: {color!r} of {name!r} is no colour of matplotlib, such as '#d62728' or 'red'"
                )
        texts, lines = self._scale(_SMALLEST_TEXTS), self._scale(_THINNEST_LINES)
        # Matplotlib's types name every parameter.
        sizes: dict[Any, Any] = {
            "font.size": _chosen("font.size", rcParams["font.size"] * texts),
            "lines.linewidth": _chosen("lines.linewidth", _LINE_WIDTH * lines),
            "lines.markersize": _chosen("lines.markersize", _MARKER_SIZE * lines),
        }
        sizes |= {name: _chosen(name, usual) for name, usual in _SIZES_OF_TEXTS.items()}
        sizes["legend.title_fontsize"] = _chosen("legend.title_fontsize", sizes["legend.fontsize"])
        if self.font_size is not None:
            sizes |= {"font.size": self.font_size} | dict.fromkeys(_SIZES_OF_TEXTS, "medium")
        with rc_context(sizes):
            yield

    def shared_beginning(self, names: Iterable[str]) -> str:
        """Return the algorithm that the names of all groups begin with, for which a narrow figure has no room.

        Args:
            names: as they are shown; those that a user has chosen are not shortened.

        Returns:
            ``"DQN + "`` for "DQN + PERBuffer" and "DQN + ReplayBuffer", ``"PPO, "`` for "PPO, lr=0.1" and
            "PPO, lr=0.01", and an empty text for names without that.
        """
        names = list(names)
        beginnings = {found[0] if (found := _ALGORITHM.match(name)) else "" for name in names}
        if not self.is_narrow or len(names) < 2 or len(beginnings) > 1 or set(names) & set(self.names.values()):
            return ""
        return beginnings.pop()

    def _scale(self, least: float) -> float:
        return 1.0 if self.size is None else min(1.0, max(least, self.size[0] / _WIDTH_OF_USUAL_SIZES))

    def arranged(self, groups: Sequence[Group]) -> list[Group]:
        """Return groups with the names that are shown, in the order in which they are shown.

        Raises:
            ValueError: there is no group of a name, or two groups would have the same.
        """
        return [
            replace(group, name=shown)
            for name, shown in self.shown_names(group.name for group in groups).items()
            for group in groups
            if group.name == name
        ]

    def shown_names(self, names: Iterable[str]) -> dict[str, str]:
        """Return the names that are shown, by the groups' own, in the order of the figure.

        Raises:
            ValueError: there is no group of a name, or two groups would have the same.
        """
        own = list(dict.fromkeys(names))
        _refuse_unknown("names", self.names, own)
        shown = {name: self.names.get(name, name) for name in own}
        if len(set(shown.values())) < len(shown):
            raise ValueError(f"names: two groups would be named alike: {'; '.join(shown.values())}")
        _refuse_unknown("order", self.order, list(shown.values()))
        _refuse_unknown("colors", self.colors, list(shown.values()))
        ranks = {name: rank for rank, name in enumerate(self.order)}
        return dict(sorted(shown.items(), key=lambda pair: ranks.get(pair[1], len(ranks))))


def _chosen(name: str, usual: Any) -> Any:
    """Return a parameter of matplotlib where the user has changed it, and the usual of these figures otherwise."""
    from matplotlib import rcParams, rcParamsDefault

    current, default = cast("dict[str, Any]", rcParams)[name], cast("dict[str, Any]", rcParamsDefault)[name]
    return current if current != default else usual


def _refuse_unknown(option: str, given: Iterable[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{option}: there is no group {unknown[0]!r}; choose from: {'; '.join(known)}")
