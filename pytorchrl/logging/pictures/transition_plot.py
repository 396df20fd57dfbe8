"""Plot of the steps around a transition."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.logging.pictures.plots import refuse_other_than_png
from pytorchrl.logging.tables.transition_report import format_values
from storages.files import replacing

if TYPE_CHECKING:
    from pytorchrl.experiments.inspection.episode_film import EpisodeFilm
    from pytorchrl.experiments.inspection.transitions import TransitionDescription

_INCHES = 1.5
"""Width of a frame."""


def plot_transition(
    description: "TransitionDescription", around: Sequence["TransitionDescription"], film: "EpisodeFilm", output: Path
) -> Path:
    """Draw the frames before and after a transition side by side into a PNG file; its own have a red border.

    Args:
        description: the transition.
        around: those of its episode before and after it, and itself, in the order of time.
        film: the frames of its episode.
        output: the file.

    Raises:
        ValueError: ``output`` does not end in .png, or there is no frame of the transition.
    """
    # Slow to import. No pyplot: its backend is the user's to choose.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    output = Path(output)
    refuse_other_than_png(output)
    if film.moment >= len(film.frames):
        raise ValueError(f"row {description.row}: {film.description} The transition comes after that")
    place = next(number for number, one in enumerate(around) if one.row == description.row)
    first = film.moment - place
    frames = film.frames[max(0, first) : first + len(around) + 1]
    height, width = frames[0].shape[:2]
    figure = Figure(figsize=(_INCHES * len(frames), _INCHES * height / width + 1.1), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for number, frame in enumerate(frames):
        axes = figure.add_subplot(1, len(frames), number + 1)
        axes.imshow(frame)
        axes.set_xticks([])
        axes.set_yticks([])
        is_moment = number in (place, place + 1)
        for spine in axes.spines.values():
            spine.set(edgecolor="tab:red" if is_moment else "lightgrey", linewidth=3 if is_moment else 1)
        if number < len(around):
            one = around[number]
            step = "" if one.step_in_episode is None else f"step {one.step_in_episode:,}\n"
            caption = f"{step}action {format_values(one.action)}\nreward {one.reward:.4g}"
            axes.set_xlabel(caption, fontsize="small", color="tab:red" if number == place else "black")
        elif around[-1].terminated or around[-1].truncated:
            axes.set_xlabel("terminated" if around[-1].terminated else "truncated", fontsize="small")
    known = "" if description.priority is None else f", priority {description.priority:.4g}"
    counted = "" if description.draws is None else f", drawn {description.draws:,} times"
    figure.suptitle(f"Row {description.row}, {description.age_steps:,} steps ago{known}{counted}", fontsize="medium")
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        figure.savefig(file, format="png")
    return output
