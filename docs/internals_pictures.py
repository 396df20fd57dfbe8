"""Draws the pictures of the pages on internals: ``python docs/internals_pictures.py``."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

FOLDER = Path(__file__).parent
BLUE, GREEN, ORANGE, RED, GREY, WHITE = "#cfe2f3", "#d9ead3", "#fce5cd", "#f4cccc", "#eeeeee", "#ffffff"
_FONT_SIZE = 9


def main() -> None:
    """Draw all pictures."""
    for name, (draw, width, height) in PICTURES.items():
        figure, axes = plt.subplots(figsize=(width, height))
        axes.set_xlim(0, width)
        axes.set_ylim(0, height)
        axes.set_aspect("equal")
        axes.axis("off")
        draw(axes)
        figure.savefig(FOLDER / name, dpi=120, bbox_inches="tight", metadata={"Software": None})
        plt.close(figure)


def path(axes: Axes) -> None:
    """From a step of the environments to a batch on the device."""
    box(axes, 0, 2.6, 1.6, 0.8, "envs.step", WHITE)
    box(axes, 2.2, 2.6, 1.9, 0.8, "insert_transition", BLUE)
    box(axes, 4.7, 2.6, 1.6, 0.8, "ring buffer", BLUE)
    box(axes, 6.9, 2.6, 2.1, 0.8, "observers:\nlog, device cache", ORANGE)
    arrow(axes, (1.6, 3.0), (2.2, 3.0))
    arrow(axes, (4.1, 3.0), (4.7, 3.0))
    arrow(axes, (6.3, 3.0), (6.9, 3.0))
    box(axes, 0, 0.6, 1.6, 0.8, "sampler:\nchooses rows", GREEN)
    box(axes, 2.2, 0.6, 1.9, 0.8, "window:\nchooses steps", GREEN)
    box(axes, 4.7, 0.6, 1.6, 0.8, "gather\n(compiled)", BLUE)
    box(axes, 6.9, 0.6, 1.2, 0.8, "relabeler\n(HER)", GREEN)
    box(axes, 8.6, 0.6, 1.4, 0.8, "transfer to\nthe device", GREY)
    for left, right in ((1.6, 2.2), (4.1, 4.7), (6.3, 6.9), (8.1, 8.6)):
        arrow(axes, (left, 1.0), (right, 1.0))
    arrow(axes, (5.5, 2.6), (5.5, 1.4))
    note(axes, 5.6, 2.0, "copy of the rows")
    axes.plot([9.3, 9.3, 0.8, 0.8], [0.6, 0.15, 0.15, 0.15], color="black", linewidth=0.8)
    arrow(axes, (0.8, 0.15), (0.8, 0.6))
    note(axes, 3.1, 0.27, "after_gradients: errors of the update set the priorities")
    note(axes, 0, 3.55, "collection", bold=True)
    note(axes, 0, 1.55, "generate_batches", bold=True)


def record(axes: Axes) -> None:
    """Rows of one environment: each observation is stored once."""
    fields = (("OBS", 2.4, BLUE), ("ACT", 1.0, GREY), ("REW", 0.9, GREY), ("DONE", 0.9, GREY))
    fields += (("DONE2", 1.0, GREY), ("TRUNC2", 1.1, GREY), ("slot", 0.8, ORANGE))
    for number, bottom in enumerate((2.2, 1.2, 0.2)):
        left = 1.0
        for name, width, colour in fields:
            label = f"o{number + 3}" if name == "OBS" else ("-" if name == "slot" and number != 2 else name)
            box(axes, left, bottom, width, 0.6, "7" if label == "slot" else label, colour)
            left += width
        note(axes, 0, bottom + 0.3, f"row {number + 3}")
    arrow(axes, (0.95, 2.4), (0.95, 1.6), bend=0.6)
    arrow(axes, (0.95, 1.4), (0.95, 0.6), bend=0.6)
    note(axes, 1.0, 2.95, "OBS of the next row is OBS2 of this one: no observation is stored twice")
    note(axes, 1.0, -0.15, "the episode ended in row 5: slot 7 of the side table has its final observation")


def ring(axes: Axes) -> None:
    """The ring buffer, and the side table of final observations."""
    labels = ("24", "25", "18", "19", "20", "21", "22", "23")
    colours = (BLUE, BLUE, WHITE, ORANGE, BLUE, BLUE, BLUE, BLUE)
    for place, (label, colour) in enumerate(zip(labels, colours, strict=True)):
        box(axes, place * 1.1, 2.5, 1.1, 0.7, label, colour)
        note(axes, place * 1.1 + 0.46, 3.35, str(place))
    note(axes, 0, 3.75, "Step t is in row t % rows. The ring buffer has size + 1 rows; one is for the next step.")
    arrow(axes, (2.75, 1.8), (2.75, 2.45))
    note(axes, 2.0, 1.65, "next step: 26")
    arrow(axes, (4.9, 1.8), (3.9, 2.45))
    note(axes, 4.5, 1.65, "oldest stored step: 19")
    note(axes, 0, 0.75, "side table of the final observations of episodes: a queue that grows as required")
    for place, label in enumerate(("", "after 22", "after 24", "")):
        box(axes, 4.9 + place * 1.0, 0.1, 1.0, 0.5, label, ORANGE)


def log(axes: Axes) -> None:
    """The directory of a replay storage."""
    box(axes, 0, 2.4, 2.0, 0.7, "storage.json\n(manifest)", WHITE)
    box(axes, 0, 1.4, 2.0, 0.7, "lock", WHITE)
    for number, (left, width) in enumerate(((2.8, 3.0), (6.2, 2.4))):
        commits = 5 if number == 0 else 3
        for commit in range(commits):
            colour = ORANGE if number == 0 and commit == 2 else BLUE
            box(axes, left + commit * width / 5, 2.4, width / 5, 0.7, str(commit + 1 + 5 * number), colour)
        note(axes, left, 3.2, f"{1 + 5 * number:012d}.steps")
    box(axes, 6.2 + 3 * 2.4 / 5, 2.4, 0.3, 0.7, "", RED)
    note(axes, 2.8, 1.85, "each box is a commit: one record of steps,")
    note(axes, 2.8, 1.45, "and of errors where there are priorities")
    arrow(axes, (4.3, 4.0), (4.3, 3.12))
    note(axes, 2.8, 4.15, "a checkpoint refers to commit 3: the log files that it needs are kept")
    arrow(axes, (8.6, 1.0), (7.85, 2.4))
    note(axes, 7.6, 0.85, "incomplete after a kill: truncated")
    note(
        axes,
        0,
        0.4,
        "A commit holds the steps since the previous commit, the state of the random generator, and the counters.",
    )


def recovery(axes: Axes) -> None:
    """The steps of opening a directory."""
    steps = (
        ("acquire the lock", "a second writer raises an error", WHITE),
        ("read the manifest", "another format or other fields raise an error", WHITE),
        ("read log files in order", "each record: header, JSON, arrays, checksum", BLUE),
        ("incomplete record at the end", "truncated: its commit was not completed", ORANGE),
        ("damaged record elsewhere", "DamageError names the file and the steps; repair() drops the record", RED),
        ("fill the ring buffer, set the generator", "the next batch is that of an uninterrupted process", GREEN),
    )
    for number, (step, outcome, colour) in enumerate(steps):
        bottom = 3.9 - number * 0.75
        box(axes, 0, bottom, 3.2, 0.55, step, colour)
        note(axes, 3.5, bottom + 0.27, outcome)
        if number:
            arrow(axes, (1.6, bottom + 0.75), (1.6, bottom + 0.55))


def update(axes: Axes) -> None:
    """From a batch to the new weights, and the file of each step."""
    box(axes, 0, 2.6, 1.5, 0.8, "batch", WHITE)
    box(axes, 2.1, 2.6, 1.7, 0.8, "read: rows", BLUE)
    box(axes, 4.4, 2.6, 2.2, 0.8, "losses(rows)", GREEN)
    box(axes, 7.2, 2.6, 1.8, 0.8, "backward of\nthe sum", BLUE)
    box(axes, 9.6, 2.6, 1.6, 0.8, "clip, step", ORANGE)
    for left, right in ((1.5, 2.1), (3.8, 4.4), (6.6, 7.2), (9.0, 9.6)):
        arrow(axes, (left, 3.0), (right, 3.0))
    for left, name in (
        (0, "storage"),
        (2.1, "rows.py"),
        (4.4, "sac.py"),
        (7.2, "results.py"),
        (9.6, "flat_stepper.py"),
    ):
        note(axes, left, 3.6, name)
    axes.plot([10.4, 10.4, 3.0, 3.0], [2.6, 2.05, 2.05, 1.4], color="black", linewidth=0.8)
    arrow(axes, (3.0, 1.5), (3.0, 1.35))
    note(axes, 5.1, 2.2, "features are computed again with the new weights")
    box(axes, 2.1, 0.5, 1.7, 0.8, "rows without\nfeatures", BLUE)
    box(axes, 4.4, 0.5, 2.2, 0.8, "losses_after_step\n(rows)", GREEN)
    box(axes, 7.2, 0.5, 1.8, 0.8, "backward,\nclip, step", ORANGE)
    box(axes, 9.6, 0.5, 1.6, 0.8, "targets\nfollow", GREY)
    for left, right in ((3.8, 4.4), (6.6, 7.2), (9.0, 9.6)):
        arrow(axes, (left, 0.9), (right, 0.9))


def box(axes: Axes, left: float, bottom: float, width: float, height: float, text: str, colour: str) -> None:
    """A rectangle with a text in its middle."""
    axes.add_patch(Rectangle((left, bottom), width, height, facecolor=colour, edgecolor="black", linewidth=0.8))
    axes.text(left + width / 2, bottom + height / 2, text, ha="center", va="center", fontsize=_FONT_SIZE)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
    """An arrow from one point to another, bent to one side."""
    style = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, linewidth=0.8, connectionstyle=style)
    )


def note(axes: Axes, left: float, bottom: float, text: str, bold: bool = False) -> None:
    """A text beside what it explains."""
    axes.text(left, bottom, text, ha="left", va="center", fontsize=_FONT_SIZE - 1, weight="bold" if bold else "normal")


PICTURES = {
    "how-storages-path.png": (path, 10.0, 3.8),
    "how-storages-record.png": (record, 9.2, 3.2),
    "how-storages-ring.png": (ring, 9.0, 3.9),
    "how-storages-log.png": (log, 9.5, 4.4),
    "how-storages-recovery.png": (recovery, 8.0, 4.6),
    "how-an-update-works.png": (update, 11.3, 3.9),
}

if __name__ == "__main__":
    main()
