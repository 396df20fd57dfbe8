"""The style of figures: colours and markers that colour-blind readers can distinguish, and texts."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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


def style_of(name: str, number: int, colors: Mapping[str, str]) -> GroupStyle:
    """The look of a group by its name and number, with the colour that the user has chosen.

    Args:
        name: as it is shown.
        number: of the group.
        colors: by names; other groups have those of ``axes.prop_cycle`` of matplotlib, where these were changed.
    """
    style = style_for(number)
    if name in colors:
        return replace(style, color=colors[name])
    own = _own_colors()
    return replace(style, color=own[number % len(own)]) if own else style


def _own_colors() -> list[str]:
    """Return matplotlib's cycle of colours where it was changed, which only a process that has imported it can have."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return []
    cycle = matplotlib.rcParams["axes.prop_cycle"]
    return [] if cycle == matplotlib.rcParamsDefault["axes.prop_cycle"] else cycle.by_key().get("color", [])


def in_figure(text: object) -> str:
    """Return a text for a figure, in which dollar signs begin no formula and control codes are escaped."""
    return printable(text).replace("$", r"\$")
