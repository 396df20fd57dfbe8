"""Read-only look-up of the commits of a directory, without making its storage."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.persistent.episodes.episode_manifest import WAL_FOLDER
from storages.persistent.log.log_files import LogFiles
from storages.persistent.log.records import StoredRecord, read
from storages.persistent.replay.recovery import SUFFIX


def has_commits(directory: str | Path) -> bool:
    """Return whether a directory holds a commit, of a replay storage or of a storage of episodes."""
    return any(log.numbers() for log in _logs(directory))


def has_commit(directory: str | Path, position: Mapping[str, Any]) -> bool:
    """Return whether a directory holds the commit of a position, with the same number and checksum.

    The checksum shows that the position was taken from this directory.
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
