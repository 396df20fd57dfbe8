"""Texts of the legend of learning curves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytorchrl.logging.curves import TRAINING
from pytorchrl.logging.pictures.curve_styles import (
    OF_EVALUATIONS,
    Choice,
    Measured,
    Style,
    are_many,
    style_of_training,
)
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.legends import Entry

_GREY = "#555555"
_STATISTICS = {"iqm": "interquartile mean", "median": "median", "mean": "mean"}


@dataclass(frozen=True)
class LegendTexts:
    """Entries and note of the legend of some panels."""

    panels: Sequence[Sequence[Measured]]
    choice: Choice
    options: FigureOptions

    @property
    def only_training(self) -> bool:
        """Whether no group has evaluations."""
        return not any(measured.evaluations for measured in self._everything())

    def entries(self) -> list[Entry]:
        """Return a colour for each group, and a line style for each kind of curve where there are several kinds."""
        groups = self._groups()
        color = _GREY if len(groups) > 1 else self.panels[0][0].look.color
        kinds = [Entry(text, color, style.line, line_width=style.width) for text, style in self._kinds()]
        if len(groups) == 1:
            return kinds
        entries = [
            Entry(
                self._named(name, members),
                (look := members[0].look).color,
                marker=look.marker if look.is_repeated else "",
            )
            for name, members in groups.items()
        ]
        return [*entries, *kinds] if len(kinds) > 1 else entries

    def label_of(self, measured: Measured, style: Style) -> str:
        """Return the text of the legend for a line: that of its group, or of its kind if there is a single group."""
        groups = self._groups()
        if len(groups) > 1:
            is_main = style.line == OF_EVALUATIONS.line or not measured.evaluations
            return self._named(measured.name, groups[measured.name]) if is_main else ""
        return next((text for text, kind in self._kinds() if kind.line == style.line), "")

    def caption(self) -> str:
        """Return the note: the kind of curve where there is only one, the statistic, the runs, and the interval."""
        if not self.options.note:
            return ""
        kinds, groups = self._kinds(), self._groups()
        kind = kinds[0][0] if len(kinds) == 1 and len(groups) > 1 else ""
        if max(measured.runs for measured in self._everything()) == 1:
            return kind
        runs = self._equal_runs()
        of = f" of {runs} runs" if runs and self.options.counts else "" if self.options.is_narrow else " of the runs"
        interval = "" if all(map(are_many, self.panels)) else ", with its 95% bootstrap interval"
        if self.options.is_narrow:
            interval = interval and ", 95% interval"
        return f"{f'{kind}: ' if kind else ''}{_STATISTICS[self.choice.statistic]}{of}{interval}"

    def _kinds(self) -> list[tuple[str, Style]]:
        """Return the name and the style of each kind of curve."""
        is_return = self.choice.metric in (None, TRAINING)
        smoothed = ", smoothed" if self.choice.smoothed_share else ""
        training = f"training (exploring){smoothed}" if is_return else f"during training{smoothed}"
        evaluation = "evaluation (greedy)"
        if self.options.is_narrow:
            evaluation, training = "evaluation", "training" if is_return else "during training"
        kinds = [] if self.only_training else [(evaluation, OF_EVALUATIONS)]
        styles = (
            style_of_training(one, panel, only_training=self.only_training) for panel in self.panels for one in panel
        )
        style = next(filter(None, styles), None)
        return kinds if style is None else [*kinds, (training, style)]

    def _groups(self) -> dict[str, list[Measured]]:
        """Return the curves of each group, by its name."""
        by_name: dict[str, list[Measured]] = {}
        for measured in self._everything():
            by_name.setdefault(measured.name, []).append(measured)
        return by_name

    def _named(self, name: str, group: Sequence[Measured]) -> str:
        """Return the name of a group, with its number of runs in each environment where groups differ in it."""
        name = name.removeprefix(self.options.shared_beginning(self._groups()))
        fewest, most = (function(measured.runs for measured in group) for function in (min, max))
        if most == 1 or self._equal_runs() or not self.options.counts:
            return name
        return f"{name} ({most} runs)" if fewest == most else f"{name} ({fewest} to {most} runs)"

    def _equal_runs(self) -> int | None:
        """Return the number of runs of every group in every environment; None where they differ."""
        numbers = {measured.runs for measured in self._everything()}
        return numbers.pop() if len(numbers) == 1 else None

    def _everything(self) -> Iterator[Measured]:
        return (measured for panel in self.panels for measured in panel)
