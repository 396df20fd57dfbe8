"""Which files of a directory the commits need that may be gone back to, and which nothing needs any more."""

from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.errors import PersistenceError
from storages.persistent.log.log_segments import Segments
from storages.persistent.replay.recovery import Recovered


def drop_unneeded(stands: Recovered, needed: int, steps: Segments, errors: Segments) -> None:
    """Delete the files that neither the last commit nor a pinned one needs.

    Args:
        stands: where the directory stands; told which files of steps are left.
        needed: the oldest step that the last commit needs.
        steps: the log of steps.
        errors: the log of errors.

    Raises:
        OSError: the directory cannot be read.
    """
    errors_there = errors.numbers()
    oldest = oldest_errors = stands.commit
    for commit, step in [[stands.commit, needed], *stands.pinned]:
        enough = [number for number, first in stands.segments if number <= commit and first <= step]
        oldest = min(oldest, enough[-1] if enough else 0)
        oldest_errors = min(oldest_errors, max((number for number in errors_there if number <= commit), default=0))
    steps.drop_before(oldest)
    errors.drop_before(oldest_errors)
    stands.segments = [(number, first) for number, first in stands.segments if number >= oldest]


def needed_of(commit: int, checksum: int, stands: Recovered, steps: Segments, errors: Segments, place: str) -> int:
    """The oldest step that a commit needs.

    Args:
        commit: its number.
        checksum: of it.
        stands: where the directory stands.
        steps: the log of steps.
        errors: the log of errors.
        place: the storage and its directory, for errors.

    Raises:
        PersistenceError: the directory does not have it.
        DamageError: something of the log of steps is not what was written.
    """
    commits, errors_there = [], errors.numbers()
    for found, _ in steps.read():
        block = found.block
        commits.append(block.commit)
        if (block.commit, found.checksum) == (commit, checksum):
            needed: int = block.facts["needed"]
            has_steps = any(number <= commit and first <= needed for number, first in stands.segments)
            has_errors = ArrayKey(ERRORS) not in block.arrays or any(number <= commit for number in errors_there)
            if has_steps and has_errors:
                return needed
    there = f"commits {commits[0]} to {commits[-1]}" if commits else "no commits"
    raise PersistenceError(
        f"{place} has {there}, and not the commit {commit} that is asked for, or not what it needs any more; nothing "
        f"was changed. Name the directory as it was when the position was taken, or start anew with another one"
    )
