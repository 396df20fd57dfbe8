"""Retention: which files the last commit and the pinned ones need, and which may be deleted."""

from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.errors import PersistenceError
from storages.persistent.log.log_files import LogFiles
from storages.persistent.replay.recovery import Recovered


def drop_unneeded(recovered: Recovered, needed: int, steps: LogFiles, errors: LogFiles) -> None:
    """Delete the files that neither the last commit nor a pinned one needs.

    Args:
        recovered: where the directory stands; told which files of steps are left.
        needed: the oldest step that the last commit needs.
        steps: the log of steps.
        errors: the log of errors.

    Raises:
        OSError: the directory cannot be read.
    """
    errors_there = errors.numbers()
    oldest = oldest_errors = recovered.commit
    for commit, step in [[recovered.commit, needed], *recovered.pinned]:
        enough = [number for number, first in recovered.log_files if number <= commit and first <= step]
        oldest = min(oldest, enough[-1] if enough else 0)
        oldest_errors = min(oldest_errors, max((number for number in errors_there if number <= commit), default=0))
    steps.drop_before(oldest)
    errors.drop_before(oldest_errors)
    recovered.log_files = [(number, first) for number, first in recovered.log_files if number >= oldest]


def oldest_needed(
    commit: int, checksum: int, recovered: Recovered, steps: LogFiles, errors: LogFiles, place: str
) -> int:
    """The oldest step that a commit needs.

    Args:
        commit: its number.
        checksum: of it.
        recovered: where the directory recovered.
        steps: the log of steps.
        errors: the log of errors.
        place: the storage and its directory, for errors.

    Raises:
        PersistenceError: the directory does not have it.
        DamageError: something of the log of steps is not what was written.
    """
    commits, errors_there = [], errors.numbers()
    for found, _ in steps.read():
        record = found.record
        commits.append(record.commit)
        if (record.commit, found.checksum) == (commit, checksum):
            needed: int = record.facts["needed"]
            has_steps = any(number <= commit and first <= needed for number, first in recovered.log_files)
            has_errors = ArrayKey(ERRORS) not in record.arrays or any(number <= commit for number in errors_there)
            if has_steps and has_errors:
                return needed
    there = f"commits {commits[0]} to {commits[-1]}" if commits else "no commits"
    raise PersistenceError(
        f"{place} has {there}, and not the commit {commit} that is asked for, or not what it needs any more; nothing "
        f"was changed. Name the directory as it was when the position was taken, or start anew with another one"
    )
