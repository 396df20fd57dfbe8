"""Choices of how a figure looks: its size, its texts, and the names and the order of groups."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pytorchrl.logging.groups import Group

USUAL_POINTS = 10.0
"""Size of texts."""
_SMALLEST_SCALE = 0.7
_WIDTH_OF_USUAL_TEXTS = 6.0
"""Inches from which on texts have their usual size."""


@dataclass(frozen=True)
class FigureOptions:
    """Size, labels, legend names and order of a figure.

    Raises:
        ValueError: a size is not positive, or two groups would have the same name.
    """

    size: tuple[float, float] | None = None
    """Width and height in inches; None fits the figure to its content."""
    title: str | None = None
    """None names algorithms and environments; an empty text leaves the title out."""
    x_label: str | None = None
    """Of the horizontal axis; None names what it shows."""
    y_label: str | None = None
    """Of the vertical axis; None names what it shows."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Pairs of a group's name and the one that the legend shows instead."""
    order: Sequence[str] = ()
    """Names, as the legend shows them, of the groups that come first."""

    def __post_init__(self) -> None:
        """Check the size and the names."""
        if self.size is not None and not all(math.isfinite(length) and length > 0 for length in self.size):
            raise ValueError(f"size must be a width and a height in inches, above 0, got {self.size}")
        if isinstance(self.order, str):
            raise ValueError(f"order must be a list of names, got the text {self.order!r}; write [{self.order!r}]")
        if len(set(self.names.values())) < len(self.names):
            raise ValueError(f"names must differ, got {', '.join(map(repr, self.names.values()))}")

    @property
    def text_scale(self) -> float:
        """Size of texts relative to the usual, which is smaller in a figure of a column's width."""
        return 1.0 if self.size is None else min(1.0, max(_SMALLEST_SCALE, self.size[0] / _WIDTH_OF_USUAL_TEXTS))

    @contextmanager
    def texts(self) -> Iterator[None]:
        """Make matplotlib write texts of that size in a context."""
        from matplotlib import rc_context

        with rc_context({"font.size": self.text_scale * USUAL_POINTS}):
            yield

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
        ranks = {name: rank for rank, name in enumerate(self.order)}
        return dict(sorted(shown.items(), key=lambda pair: ranks.get(pair[1], len(ranks))))


def _refuse_unknown(option: str, given: Iterable[str], known: Sequence[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{option}: there is no group {unknown[0]!r}; choose from: {'; '.join(known)}")
