"""Curves of a figure, and how lines of each kind are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytorchrl.logging.bands import common_positions
from pytorchrl.logging.bootstrap import StatisticName
from pytorchrl.logging.curves import SMOOTHED_SHARE, Curve, XAxis
from pytorchrl.logging.pictures.styles import DISTINCT_COLORS, GroupStyle, LineStyle

_MEASURED_IN_TRAINING = ("train/", "losses/", "learning/", "storage/", "speed/")
"""Beginnings of the names of metrics that differ much from record to record."""


@dataclass(frozen=True)
class Choice:
    """The quantity that is drawn, and its axis."""

    x: XAxis = "steps"
    metric: str | None = None
    """None for the returns of evaluations and training."""
    statistic: StatisticName = "iqm"
    training: bool = True
    """Whether the returns of training are drawn beside those of evaluations."""
    smooth: float | None = None
    """Share of a curve over which values measured in training are averaged; None for the usual."""
    colors: Mapping[str, str] = field(default_factory=dict)
    """Colours of groups that the user has chosen, by their names."""

    @property
    def smoothed_share(self) -> float:
        """Share of a curve over which values are averaged: 0 for metrics of a user's own, if none was chosen."""
        if self.smooth is not None:
            return self.smooth
        return SMOOTHED_SHARE if self.metric is None or self.metric.startswith(_MEASURED_IN_TRAINING) else 0.0


@dataclass(frozen=True)
class Measured:
    """The curves of a group's runs."""

    name: str
    runs: int
    look: GroupStyle
    evaluations: Sequence[Curve]
    training: Sequence[Curve]


@dataclass(frozen=True)
class Style:
    """How lines of a kind are drawn."""

    line: LineStyle
    width: float = 1.0
    """Relative to the usual."""
    alpha: float = 1.0
    has_band: bool = True
    marked: bool = False
    """Whether each point has a marker, if there are few points."""
    order: int = 3
    """Lines of a larger number cover those of a smaller one."""


OF_EVALUATIONS = Style("-", marked=True)
OF_TRAINING = Style("-")
"""Of a figure without evaluations."""
OF_TRAINING_ALONE = Style("--")
"""Of a group without evaluations, where other groups have some."""
OF_TRAINING_BESIDE = Style("--", width=2 / 3, alpha=0.65, has_band=False, order=2)


def are_many(panel: Sequence[Measured]) -> bool:
    """Whether a panel has too many groups for more than one line per group."""
    return len(panel) > DISTINCT_COLORS


def style_of_training(measured: Measured, panel: Sequence[Measured], *, only_training: bool) -> Style | None:
    """Return the style of training curves; None where there are none, or where they would hide evaluations."""
    if not measured.training:
        return None
    if only_training:
        return OF_TRAINING
    if not measured.evaluations:
        return OF_TRAINING_ALONE
    return None if are_many(panel) or not _is_line(measured.training) else OF_TRAINING_BESIDE


def _is_line(curves: Sequence[Curve]) -> bool:
    """Whether curves, drawn together or beside one another, have more than a point each."""
    common = common_positions(curves)
    return len(common) > 1 if len(common) else all(len(curve) > 1 for curve in curves)
