"""Recovery: replay the commits of a directory into a ring, up to a commit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey, RowSpan, fill, spans
from storages.errors import DamageError
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.log_files import EMPTY_LOG, LogFiles, LogOffset
from storages.persistent.log.records import Record, StoredRecord
from storages.persistent.replay.snapshot_records import OFFSETS, flaw_of_errors, flaw_of_part, part_of


def recover(
    ring: Ring, steps: CommitLog, errors: LogFiles, until: int | None = None
) -> tuple[dict[str, Any] | None, LogOffset]:
    """Replay a log into an empty ring whose columns are made.

    Args:
        ring: to fill.
        steps: the log of steps, which then stands at the last commit that was replayed.
        errors: the log of the errors of these steps.
        until: the last commit to replay; None for all.

    Returns:
        The state of the storage beside the ring, None before the first commit, and the end of the log of errors.

    Raises:
        DamageError: something is damaged; the text names file and steps.
    """
    rows, changes = ErrorRows(ring), _ErrorReader(errors, ring.envs)
    state: dict[str, Any] | None = None
    available, change, has_errors = 0, None, False
    for record in steps.replay(lambda record: flaw_of_part(record, ring), until):
        part = part_of(record)
        if part.begins or state is None:
            available = part.first
        ring.append_span(part)
        has_errors = ArrayKey(ERRORS) in record.arrays
        if has_errors:
            rows.put(part)
            change = changes.of(record.commit, record.facts["errors"])
            if change is not None:
                rows.change(change)
        state = record.facts["state"]
    if state is None:
        return None, EMPTY_LOG
    if ring.needed < available:
        raise DamageError(f"{steps.files.path(0).parent}: the file with steps {ring.needed} to {available} is missing")
    if has_errors:
        if change is None:
            raise DamageError(f"{errors.path(0).parent}: the errors of commit {steps.position['commit']} are missing")
        state["priorities"]["errors"] = torch.from_numpy(rows.live(ring))
    return state, changes.end


class ErrorRows:
    """Errors of a ring's transitions, replayed beside it.

    Args:
        ring: whose memory is made.
    """

    def __init__(self, ring: Ring) -> None:
        self._errors = np.full((ring.rows, ring.envs), np.nan, np.float32)
        self._end = 0
        """Number after the newest transition."""

    def put(self, part: RowSpan) -> None:
        """Store the errors of new steps."""
        rows, size = part.array(ERRORS), len(self._errors) - 1
        first = max(part.first, part.steps - size)
        fill(self._errors, list(spans(first, part.steps, size + 1)), rows[first - part.first :])
        self._end = part.steps * self._errors.shape[1]

    def change(self, record: Record, numbers: NDArray[np.int64] | None = None) -> None:
        """Apply the errors of an update.

        Args:
            record: of the log of errors.
            numbers: of its transitions, -1 for those that were dropped; those of the record where None.
        """
        flat = self._errors.reshape(-1)
        told = numbers_in(record) if numbers is None else numbers
        # Of transitions that were live then and lie in files that were dropped, there may be more than rows.
        here = told >= max(0, self._end - len(flat))
        flat[told[here] % len(flat)] = record.arrays[ArrayKey(ERRORS)][0][here]

    def live(self, ring: Ring) -> NDArray[np.float32]:
        """(transitions,): of all that is live, oldest first; NaN where nothing was told."""
        flat = self._errors.reshape(-1)
        live: NDArray[np.float32] = flat[np.arange(ring.start, ring.end) % len(flat)]
        return live


def numbers_in(record: Record) -> NDArray[np.int64]:
    """(changed,): the numbers of the transitions that a record of the log of errors has errors of."""
    start: int = record.facts["start"]
    if ArrayKey(OFFSETS) in record.arrays:
        offsets: NDArray[np.int64] = record.arrays[ArrayKey(OFFSETS)][0].astype(np.int64)
        return start + offsets
    return np.arange(start, start + len(record.arrays[ArrayKey(ERRORS)][0]))


class _ErrorReader:
    """The log of errors beside the log of steps."""

    def __init__(self, errors: LogFiles, num_envs: int) -> None:
        self._errors = errors
        self._records: Iterator[tuple[StoredRecord, LogOffset]] = errors.read(
            lambda record: flaw_of_errors(record, num_envs)
        )
        self._next = next(self._records, None)
        self._begun = False
        self.end = EMPTY_LOG
        """Of the last record that belongs to a commit."""

    def of(self, commit: int, checksum: int) -> Record | None:
        """The one of a commit, which knows its checksum; None where it is older than the log."""
        found = None
        while self._next is not None and self._next[0].record.commit <= commit:
            candidate, end = self._next
            if not self._begun and ArrayKey(OFFSETS) in candidate.record.arrays:
                # It holds only the changes since a record that is not there.
                break
            self._begun = True
            if (candidate.record.commit, candidate.checksum) == (commit, checksum):
                found, self.end = candidate.record, end
            self._next = next(self._records, None)
        if found is None and (self._begun or self._next is None or self._next[0].record.commit <= commit):
            raise DamageError(
                f"{self._errors.path(self.end.log_file)}: the errors of commit {commit} are missing, which priorities "
                f"follow from"
            )
        return found
