"""Commits of a directory, read without making the storage and without changing anything."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.persistent.episodes.episode_manifest import WAL_FOLDER
from storages.persistent.log.log_files import LogFiles
from storages.persistent.log.records import StoredRecord, read
from storages.persistent.replay.recovery import SUFFIX


def has_commits(directory: str | Path) -> bool:
    """Whether anything was committed there, to a storage of steps or of episodes."""
    return any(_log(folder).numbers() for folder in _folders(directory))


def has_commit(directory: str | Path, position: Mapping[str, Any]) -> bool:
    """Whether the commit of that number and checksum is there: what a state's "position" says.

    Only one who has read the directory can know a checksum in it.
    """
    commit, checksum = position.get("commit"), position.get("checksum")
    if not isinstance(commit, int) or not isinstance(checksum, int):
        return False
    for folder in _folders(directory):
        log = _log(folder)
        before = [number for number in log.numbers() if number <= commit]
        for found in read(log.path(before[-1])) if before else ():
            if isinstance(found, StoredRecord) and (found.record.commit, found.checksum) == (commit, checksum):
                return True
    return False


def _folders(directory: str | Path) -> list[Path]:
    return [folder for folder in (Path(directory), Path(directory) / WAL_FOLDER) if folder.is_dir()]


def _log(folder: Path) -> LogFiles:
    return LogFiles(folder, SUFFIX, durable=False)
