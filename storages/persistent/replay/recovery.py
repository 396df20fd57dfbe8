"""Recovery: replay the commits of a directory into a ring, up to a commit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey, RowSpan, fill, spans
from storages.errors import DamageError
from storages.persistent.log.log_files import EMPTY_LOG, LogFiles, LogOffset
from storages.persistent.log.records import Record, StoredRecord
from storages.persistent.replay.snapshot_records import OFFSETS, flaw_of_errors, flaw_of_part, part_of


@dataclass
class Recovered:
    """Where a directory recovered."""

    state: dict[str, Any] | None = None
    """State of the storage beside the ring; None before the first commit."""
    commit: int = 0
    checksum: int = 0
    pinned: list[list[int]] = field(default_factory=list)
    """Commits that checkpoints refer to, and the oldest step that each needs."""
    log_files: list[tuple[int, int]] = field(default_factory=list)
    """The number of each file of steps, and its first step."""
    steps_end: LogOffset = EMPTY_LOG
    errors_end: LogOffset = EMPTY_LOG


def recover(ring: Ring, steps: LogFiles, errors: LogFiles, until: int | None = None) -> Recovered:
    """Replay a log into an empty ring whose columns are made.

    Args:
        ring: to fill.
        steps: the log of steps; each of its records is a commit.
        errors: the log of what updates said of them.
        until: the last commit to replay; None for all.

    Raises:
        DamageError: something is damaged; the text names file and steps.
    """
    recovered, kept = Recovered(), ErrorRows(ring)
    changes = _ErrorReader(errors, ring.envs)
    available, change, has_errors = 0, None, False
    for found, place in steps.read():
        record = found.record
        if "begins" not in record.facts:
            raise DamageError(f"{steps.path(place.log_file)} holds no steps: another file has taken its place")
        if flaw := flaw_of_part(record, ring):
            raise DamageError(was_not_written_here(steps.path(place.log_file), record, flaw))
        if recovered.state is not None and record.commit != recovered.commit + 1:
            raise DamageError(
                f"{steps.path(place.log_file)} begins with commit {record.commit}, but the one before it in the "
                f"directory is {recovered.commit}: a file with steps {ring.steps} to {record.first} is missing"
            )
        if recovered.state is not None and record.facts["after"] != recovered.checksum:
            raise DamageError(
                f"{steps.path(place.log_file)}: commit {record.commit} was made after another commit "
                f"{recovered.commit} than that in the directory: one of the two files was replaced by another "
                f"version of it"
            )
        if until is not None and record.commit > until:
            break
        if flaw := _flaw_of_order(record, ring, recovered):
            raise DamageError(was_not_written_here(steps.path(place.log_file), record, flaw))
        part = part_of(record)
        if part.begins or recovered.state is None:
            available = part.first
        if place.log_file not in (log_file for log_file, _ in recovered.log_files[-1:]):
            recovered.log_files.append((place.log_file, record.first))
        ring.append_span(part)
        has_errors = ArrayKey(ERRORS) in record.arrays
        if has_errors:
            kept.put(part)
            change = changes.of(record.commit, record.facts["errors"])
            if change is not None:
                kept.change(change)
        recovered.commit, recovered.checksum, recovered.steps_end = record.commit, found.checksum, place
        recovered.state, recovered.pinned = record.facts["state"], record.facts["pinned"]
    if recovered.state is None:
        return recovered
    if ring.needed < available:
        raise DamageError(f"{steps.path(0).parent}: the file with steps {ring.needed} to {available} is missing")
    recovered.errors_end = changes.end
    if has_errors:
        if change is None:
            raise DamageError(f"{errors.path(0).parent}: the errors of commit {recovered.commit} are missing")
        recovered.state["priorities"]["errors"] = torch.from_numpy(kept.live(ring))
    return recovered


def was_not_written_here(path: Path, record: Record, flaw: str) -> str:
    """Describe what is wrong with a record whose checksum is right."""
    return (
        f"{path} is damaged, or was not written by this package: commit {record.commit}, with steps {record.first} to "
        f"{record.steps}, has {flaw}"
    )


def _flaw_of_order(record: Record, ring: Ring, recovered: Recovered) -> str | None:
    if recovered.state is None or record.facts["begins"] or record.first == ring.steps:
        return None
    return f"steps that do not follow step {ring.steps}"


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
            numbers: of the transitions that it tells about, -1 for those that are gone; its own where None.
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
    """(changed,): the numbers of the transitions that a record of the log of errors tells about."""
    start: int = record.facts["start"]
    if ArrayKey(OFFSETS) in record.arrays:
        offsets: NDArray[np.int64] = record.arrays[ArrayKey(OFFSETS)][0].astype(np.int64)
        return start + offsets
    return np.arange(start, start + len(record.arrays[ArrayKey(ERRORS)][0]))


class _ErrorReader:
    """The log of errors beside the log of steps."""

    def __init__(self, errors: LogFiles, num_envs: int) -> None:
        self._errors, self._num_envs = errors, num_envs
        self._blocks: Iterator[tuple[StoredRecord, LogOffset]] = errors.read()
        self._next = next(self._blocks, None)
        self._begun = False
        self.end = EMPTY_LOG
        """Of the last record that belongs to a commit."""

    def of(self, commit: int, checksum: int) -> Record | None:
        """The one of a commit, which knows its checksum; None where it is older than the log."""
        found = None
        while self._next is not None and self._next[0].record.commit <= commit:
            candidate, end = self._next
            if flaw := flaw_of_errors(candidate.record, self._num_envs):
                raise DamageError(was_not_written_here(self._errors.path(end.log_file), candidate.record, flaw))
            if not self._begun and ArrayKey(OFFSETS) in candidate.record.arrays:
                # It tells only what has changed since one that is not there.
                break
            self._begun = True
            if (candidate.record.commit, candidate.checksum) == (commit, checksum):
                found, self.end = candidate.record, end
            self._next = next(self._blocks, None)
        if found is None and (self._begun or self._next is None or self._next[0].record.commit <= commit):
            raise DamageError(
                f"{self._errors.path(self.end.log_file)}: the errors of commit {commit} are missing, which priorities "
                f"follow from"
            )
        return found
