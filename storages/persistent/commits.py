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
    return any(log.numbers() for log in _logs(directory))


def has_commit(directory: str | Path, position: Mapping[str, Any]) -> bool:
    """Whether the commit of that number and checksum is there: what a state's "position" says.

    Only one who has read the directory can know a checksum in it.
    """
    commit, checksum = position.get("commit"), position.get("checksum")
    if not isinstance(commit, int) or not isinstance(checksum, int):
        return False
    for log in _logs(directory):
        before = [number for number in log.numbers() if number <= commit]
        for found in read(log.path(before[-1])) if before else ():
            if isinstance(found, StoredRecord) and (found.record.commit, found.checksum) == (commit, checksum):
                return True
    return False


def _logs(directory: str | Path) -> list[LogFiles]:
    folders = Path(directory), Path(directory) / WAL_FOLDER
    return [LogFiles(folder, SUFFIX, durable=False) for folder in folders if folder.is_dir()]
