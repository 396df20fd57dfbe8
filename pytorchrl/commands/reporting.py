"""The command that writes a page about runs."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.logging.formats import format_bytes
from pytorchrl.report import Limits, write_report
from pytorchrl.terminal import tell


def report(
    runs: tyro.conf.Positional[list[Path]],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    title: str | None = None,
    videos: float = Limits.videos,
    largest_checkpoint: float = Limits.checkpoint,
    names: Annotated[tuple[tuple[str, str], ...], tyro.conf.arg(help_behavior_hint="")] = (),
    order: Annotated[tuple[str, ...], tyro.conf.arg(help_behavior_hint="")] = (),
) -> None:
    """Write a page about runs that a browser shows without a network, and that can be sent to others.

    Args:
        runs: run folders, and folders that hold some.
        output: the page.
        title: of the page; the algorithms and environments where left out.
        videos: megabytes that the runs' videos may take of the page; those that do not fit are only named.
        largest_checkpoint: in megabytes; the storage in a larger checkpoint is not read.
        names: pairs of a group's name and the one that is shown instead: DQN "deep Q" PPO ours.
        order: names, as they are shown, of the groups that come first: ours "deep Q".
    """
    page = write_report(runs, output, title, Limits(videos, largest_checkpoint), names=dict(names), order=order)
    tell(f"{page}: {format_bytes(page.stat().st_size)}")
