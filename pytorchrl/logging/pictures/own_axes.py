"""Axes of a user's figure, which curves, intervals and profiles are drawn into."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytorchrl.logging.pictures.figure_options import FigureOptions
from storages.component.other_names import OtherNames

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OF_OPTIONS = (
    "size figsize dpi font_size fontsize title xlabel ylabel x_label y_label names labels order legend_place "
    "legend_columns note counts training"
)
_HERE = {"figsize": "size", "fontsize": "font_size", "xlabel": "x_label", "ylabel": "y_label", "labels": "names"}
OF_FILES: OtherNames = {
    **{name: {"": f"options=prl.FigureOptions({_HERE.get(name, name)}=...)"} for name in _OF_OPTIONS.split()},
}
"""Names of arguments elsewhere, of functions that draw into files."""
TO_DRAW_INTO: OtherNames = {**OF_FILES, "ax": {"": "axes"}, "subplot": {"": "axes"}}
"""Those of functions that draw into axes."""


def axes_of_environments(
    given: "Axes | Mapping[str, Axes]", environments: Sequence[str], options: FigureOptions | None
) -> dict[str, "Axes"]:
    """Return the axes of each environment, from one for a single environment, or from axes by environment.

    Raises:
        TypeError: one is none of matplotlib's axes.
        ValueError: an environment has none, or ``options`` have a size.
    """
    if not isinstance(given, Mapping):
        check_axes([given], options)
        if len(environments) > 1:
            raise ValueError(
                f"axes: the runs are in {len(environments)} environments; give axes for each, "
                f"{{{environments[0]!r}: axes[0], {environments[1]!r}: axes[1]}}"
            )
        return {environments[0]: given}
    check_axes(list(given.values()), options)
    if missing := [env for env in environments if env not in given]:
        raise ValueError(f"axes: there are none for {missing[0]!r}; the runs are in {', '.join(environments)}")
    return {env: given[env] for env in environments}


def check_axes(axes: Sequence[Any], options: FigureOptions | None) -> None:
    """Refuse what are no axes, and a size of the figure, which has its own.

    Raises:
        TypeError: one is none of matplotlib's axes.
        ValueError: ``options`` have a size.
    """
    from matplotlib.axes import Axes

    for one in axes:
        if not isinstance(one, Axes):
            raise TypeError(f"axes must be matplotlib's, such as one of plt.subplots(1, 2)[1], got {one!r}")
    if options is not None and options.size is not None:
        raise ValueError("options: size is that of the figure of the axes; leave it out, or make the figure so")
