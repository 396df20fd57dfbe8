"""Read run folders for a report; nothing in them is changed, and no symbolic link is followed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.logging import read_metrics
from pytorchrl.logging.curves import Run
from storages.errors import PersistenceError
from storages.files import read_text, refuse_link

UNREADABLE = (CheckpointError, PersistenceError, OSError, ValueError, RecursionError)
"""Errors of reading a file that is damaged, or that belongs to another user."""


@dataclass(frozen=True)
class RunRead:
    """The contents of a run folder."""

    folder: Path
    name: str
    """Unique among the runs of the report."""
    config: Mapping[str, Any]
    records: Sequence[Mapping[str, float]]
    versions: Mapping[str, Any]
    diff: str | None
    error: str | None
    """Traceback of the error that ended it."""
    measured: Run
    """Its records, and its composition without paths, for curves."""

    @property
    def checkpoint(self) -> Path:
        """Path of the newest checkpoint, which need not exist."""
        return RunFolder(self.folder).checkpoint_file

    @property
    def steps(self) -> int:
        """Environment transitions, or updates, up to the last record."""
        return int(max((record.get("steps", 0) for record in self.records), default=0))

    @property
    def seconds(self) -> float:
        """Seconds of training, up to the last record."""
        return max((record.get("seconds", 0.0) for record in self.records), default=0.0)


@dataclass(frozen=True)
class Unreadable:
    """A run folder that cannot be read."""

    name: str
    reason: str


def read_runs(folders: Sequence[Path]) -> Iterator[RunRead | Unreadable]:
    """Read run folders, one after the other."""
    for folder, name in zip(folders, _names(folders), strict=True):
        try:
            yield _read(folder, name)
        except UNREADABLE as error:
            yield Unreadable(name, " ".join(str(error).split()))


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' paths relative to their common parent."""
    resolved = [folder.resolve() for folder in folders]
    parents = [folder.parent for folder in resolved]
    common = next(parent for parent in (parents[0], *parents[0].parents) if all(_is_in(p, parent) for p in parents))
    return [folder.relative_to(common).as_posix() for folder in resolved]


def _is_in(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def _read(path: Path, name: str) -> RunRead:
    folder = RunFolder(path)
    config = folder.read_config()
    records = read_metrics(folder.metrics_file) if folder.metrics_file.is_file() else []
    records.sort(key=lambda record: record.get("steps", 0.0))
    return RunRead(
        folder=path,
        name=name,
        config=config,
        records=records,
        versions=_versions(folder.versions_file),
        diff=_text(folder.diff_file),
        error=_text(folder.error_file),
        measured=Run(path, storage_paths.without_paths({"sources": {}, **config}), records),
    )


def _versions(path: Path) -> Mapping[str, Any]:
    refuse_link(path)
    versions = json.loads(read_text(path))
    if not isinstance(versions, dict):
        raise ValueError(f"{path} is damaged: it is not a mapping of names to values")
    return versions


def _text(path: Path) -> str | None:
    refuse_link(path)
    return read_text(path) if path.is_file() else None
