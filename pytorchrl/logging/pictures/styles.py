"""The style of figures: colours and markers that colour-blind readers can distinguish, and texts."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pytorchrl.terminal import printable

LineStyle: TypeAlias = Literal["-", "--"]

_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of Okabe and Ito, "Color Universal Design", 2008; without the yellow, which is hard to see on white."""
DISTINCT_COLORS = len(_COLORS)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class GroupStyle:
    """The colour and the marker of a group's lines."""

    color: str
    marker: str
    is_repeated: bool
    """Whether an earlier group has the same colour, so that only the marker distinguishes them."""


def style_for(number: int) -> GroupStyle:
    """The look of a group by its number; the first 56 differ."""
    round_ = number // DISTINCT_COLORS
    return GroupStyle(_COLORS[number % DISTINCT_COLORS], _MARKERS[round_ % len(_MARKERS)], round_ > 0)


def in_figure(text: object) -> str:
    """Return a text for a figure, in which dollar signs begin no formula and control codes are escaped."""
    return printable(text).replace("$", r"\$")
