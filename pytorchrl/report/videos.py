"""Videos of runs, embedded in the page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pytorchrl.logging.formats import format_bytes
from pytorchrl.report.runs import RunRead
from pytorchrl.run_files import RunFiles

_KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Video:
    """A video of a run."""

    run: str
    path: str
    """Relative to the run folder."""
    size: str
    kind: str
    """MIME type."""
    address: str | None
    """The whole video, as a data URL; None where it is left out."""


def videos_of(runs: Sequence[RunRead], megabytes: float) -> list[Video]:
    """Return the videos in the runs' folders, newest first.

    Args:
        runs: the runs.
        megabytes: the limit of all videos together. The newest of each run comes first, then the second of each, and so
            on; a video that does not fit any more has no address.
    """
    by_run = [_files(RunFiles(run.folder).videos_folder) for run in runs]
    left = megabytes * _MEGABYTE
    addresses: dict[Path, str] = {}
    for file in (file for together in zip_longest(*by_run) for file in together if file is not None):
        size = file.stat().st_size
        if size <= left:
            left -= size
            addresses[file] = f"data:{_KINDS[file.suffix]};base64,{base64.b64encode(file.read_bytes()).decode()}"
    return [
        Video(
            run=run.name,
            path=f"videos/{file.name}",
            size=format_bytes(file.stat().st_size),
            kind=_KINDS[file.suffix],
            address=addresses.get(file),
        )
        for run, files in zip(runs, by_run, strict=True)
        for file in files
    ]


def _files(folder: Path) -> list[Path]:
    """Return the videos in a folder, newest first, without symbolic links."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    files = [file for file in folder.iterdir() if file.suffix in _KINDS and not file.name.startswith(".unfinished-")]
    # Their names begin with the number of steps.
    return sorted((file for file in files if file.is_file() and not file.is_symlink()), reverse=True)
