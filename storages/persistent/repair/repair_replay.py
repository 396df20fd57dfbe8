"""Repair of the directory of a replay storage."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, HAS_FINAL, ArrayKey, RowSpan
from storages.errors import DamageError, PersistenceError
from storages.persistent.log.closing_note import ClosingNote, remove_note
from storages.persistent.log.files import refuse_links_in
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.lock import Lock
from storages.persistent.log.log_files import LogFiles, LogOffset
from storages.persistent.log.records import CorruptRange, Record, StoredRecord
from storages.persistent.repair.repair_episodes import holds_episodes, repair_episodes
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.recovery import ErrorRows, numbers_in, was_not_written_here
from storages.persistent.replay.snapshot_records import flaw_of_errors, flaw_of_part, part_of
from storages.persistent.replay.write_ahead_log import ERRORS_SUFFIX, STEPS_SUFFIX
from storages.transition import DONE2, TRUNC2


@dataclass(frozen=True)
class Repair:
    """Result of a repair.

    Args:
        dropped: what was damaged or missing, in words, with the files and steps; empty where nothing was.
        steps: how many steps the storage holds now; of whole episodes, how many are in segments.
    """

    dropped: tuple[str, ...]
    steps: int

    def __str__(self) -> str:
        if not self.dropped:
            return f"nothing is damaged; {self.steps} steps are there"
        return "\n".join((*self.dropped, f"all of this was dropped; {self.steps} steps are there"))


def repair(directory: str | Path) -> Repair:
    """Drop what is damaged in a storage's directory, keep the rest, and say what was dropped.

    Steps on both sides of what was dropped are not joined: no transition and no sequence reaches across. Of priorities
    that are lost, those that were known before stand. Counters and the random generator are those of the newest commit
    that is whole. Commits that checkpoints refer to are gone if anything had to be dropped but the end of the newest
    file of steps.

    Of a directory of whole episodes, those segments of episodes are dropped that are damaged.

    One that is interrupted can be done again, and does the rest.

    Raises:
        PersistenceError: the directory is in use, or holds no storage of a format that is known, and nothing was
            changed; or it cannot be read or written.
    """
    folder = Path(directory).absolute()
    if not folder.is_dir():
        raise PersistenceError(f"{folder} is no directory")
    try:
        refuse_links_in(folder)
        with name_damage(folder):
            return _repaired(folder)
    except OSError as error:
        raise PersistenceError(
            f"{folder} cannot be read or written: {error}; not all that is damaged was dropped, repair it again"
        ) from error


def _repaired(folder: Path) -> Repair:
    if holds_episodes(folder):
        lost, transitions = repair_episodes(folder)
        return Repair(tuple(lost), transitions)
    logs = LogFiles(folder, STEPS_SUFFIX, durable=True), LogFiles(folder, ERRORS_SUFFIX, durable=True)
    manifest, dropped = _manifest(folder, logs[0])
    lock = Lock(folder)
    try:
        rest = _Survivors(manifest, logs[0].nbytes)
        lost = rest.take(*logs)
        missing = _missing(folder, rest, lost)
        rest.dropped_anything = bool(lost or missing)
        dropped += [*lost, *missing, *_flaws_of_note(folder)]
        if dropped:
            remove_note(folder, durable=True)
        if rest.before_flaws is not None and lost and not missing:
            # As after a kill, the errors that belong to what is cut are dropped when the storage is made.
            logs[0].cut(rest.before_flaws)
        elif rest.dropped_anything:
            rest.write(*logs)
        if dropped:
            manifest.write(folder, durable=True)
    finally:
        for log in logs:
            log.close()
        lock.release()
    return Repair(tuple(dropped), rest.ring.live_steps)


def _manifest(folder: Path, steps: LogFiles) -> tuple[Manifest, list[str]]:
    try:
        manifest = Manifest.read(folder)
        if manifest is None:
            raise PersistenceError(f"{folder} holds no storage")
        return manifest, []
    except PersistenceError as error:
        # Every file of steps says it again.
        for _, found in steps.everything():
            if isinstance(found, StoredRecord) and "storage" in found.record.facts:
                return Manifest.from_facts(found.record.facts["storage"]), [str(error).partition(";")[0]]
        if isinstance(error, DamageError):
            raise PersistenceError(f"{error}, but there is no file of steps that is whole to make it of") from None
        raise


def _flaws_of_note(folder: Path) -> list[str]:
    try:
        ClosingNote.read(folder)
    except PersistenceError as error:
        return [str(error).partition(";")[0]]
    return []


def _missing(folder: Path, rest: "_Survivors", lost: list[str]) -> list[str]:
    """Describe what is missing since the storage was closed, unless it is described already."""
    if _flaws_of_note(folder) or (closed := ClosingNote.read(folder)) is None:
        return []
    commit, checksum, steps = (0, 0, 0)
    if rest.newest is not None:
        commit, checksum, steps = rest.newest.record.commit, rest.newest.checksum, rest.newest.record.steps
    missing = closed.missing(folder, commit, checksum, steps)
    if lost and (commit >= closed.commit or closed.shorter(folder) is None):
        missing = None
    rest.last_number = max(rest.last_number, closed.commit)
    return [] if missing is None else [missing]


class _Extent:
    """Steps that followed one another without a gap, and the numbers that they have now."""

    def __init__(self, first: int, now: int) -> None:
        self.first, self.end, self.now = first, first, now


class _Survivors:
    """What is left, in a ring without gaps: steps after a gap follow those before it."""

    def __init__(self, manifest: Manifest, log_bytes: int) -> None:
        self._log_bytes = log_bytes
        self.ring = manifest.ring("repair", log_bytes)
        self.dropped_anything = False
        """Whether anything of the logs is damaged or missing."""
        self._manifest = manifest
        self._errors = ErrorRows(self.ring)
        self._runs: list[_Extent] = []
        self._apart: _AfterGap | None = None
        self.newest: StoredRecord | None = None
        """The newest commit that is whole."""
        self._oldest_there = 0
        """The first step that the logs hold of what is live."""
        self.last_number = 0
        """Of the commits and files that there are, damaged ones too."""
        self.before_flaws: LogOffset | None = None
        """Where all ends that can stay as it is, if nothing after it is whole."""

    def take(self, steps: LogFiles, errors: LogFiles) -> list[str]:
        """Replay all records that are whole; describe the others."""
        dropped, changes = _changes(errors, self._manifest.num_envs)
        intact, told = not dropped, [change.record.commit for change in changes]
        missing: list[int] = []
        gap, end, before = False, 0, None
        # Whether something before a commit that is whole is not.
        within = bool(dropped)
        for log_file, found in steps.everything():
            if isinstance(found, CorruptRange):
                dropped.append(steps.describe(log_file, found, end))
                gap = True
                continue
            record = found.record
            if "begins" not in record.facts:
                dropped.append(f"{steps.path(log_file)} holds no steps: another file has taken its place")
                gap = True
                continue
            if flaw := flaw_of_part(record, self.ring):
                dropped.append(was_not_written_here(steps.path(log_file), record, flaw))
                gap = True
                continue
            if before is not None and not gap and (reason := _why_apart(before, found, end)):
                dropped.append(f"{steps.path(log_file)} does not follow: {reason}")
                gap = True
            self.before_flaws = LogOffset(log_file, found.end)
            within = within or gap
            self._put(part_of(record), apart=gap)
            gap, end, before = False, record.steps, found
            while changes and changes[0].record.commit <= record.commit:
                change = changes.pop(0)
                if change.record.commit < record.commit or change.checksum == record.facts["errors"]:
                    self._errors.change(change.record, self._now(numbers_in(change.record)))
                else:
                    told.remove(record.commit)
            if ArrayKey(ERRORS) in record.arrays and record.commit not in told and record.commit > min(told, default=0):
                missing.append(record.commit)
            self.newest = found
        newest = None if self.newest is None else self.newest.record
        if not dropped and newest is not None and (needed := newest.facts["needed"]) < self._oldest_there:
            dropped.append(f"{steps.path(0).parent}: the file with steps {needed} to {self._oldest_there} is gone")
            within = True
        if missing and intact:
            dropped.append(f"{errors.path(0).parent}: errors of commits {missing[0]} to {missing[-1]} are gone")
            within = True
        if within:
            self.before_flaws = None
        last = 0 if before is None else before.record.commit
        self.last_number = max([last, *told, *steps.numbers(), *errors.numbers()])
        return dropped

    def _put(self, part: RowSpan, apart: bool) -> None:
        """Insert some rows, ``apart`` from those before them where there is a gap."""
        if part.begins or not self._runs:
            self._oldest_there = part.first
        if part.begins:
            self._runs, self._apart = [_Extent(part.first, self.ring.steps)], None
        elif apart or not self._runs:
            self._apart = _AfterGap(self._manifest.ring("repair", self._log_bytes), part.first)
        if self._apart is not None and self._apart.whole_without_it(part):
            self._apart = None
        if self._apart is None:
            self._put_behind(part)
        else:
            self._put_apart(part, self._apart)

    def _put_behind(self, part: RowSpan) -> None:
        run = self._runs[-1]
        run.end = part.steps
        first = run.now + part.first - run.first
        since = first if part.begins else max(self.ring.first, self._step_now(part.since))
        part = part.numbered(first, since)
        self.ring.append_span(part)
        self._put_errors(part)

    def _put_apart(self, part: RowSpan, apart: "_AfterGap") -> None:
        """Insert those rows step by step whose stacks reach to no row that is lost."""
        first = self.ring.steps
        if apart.first is None or apart.broken_before(part):
            self.ring.break_off()
        for step, sample, broken in apart.samples(part):
            if apart.first is None:
                apart.first = step
                self._runs.append(_Extent(step, self.ring.steps))
            self.ring.insert(sample)
            if broken:
                self.ring.break_off()
        if apart.first is None:
            return
        self._runs[-1].end = part.steps
        self.ring.drop_before(max(self.ring.first, self._step_now(part.since)))
        if ArrayKey(ERRORS) in part.arrays:
            errors = part.array(ERRORS)[len(part) - (self.ring.steps - first) :]
            self._put_errors(replace(part, first=first, steps=self.ring.steps, arrays={ArrayKey(ERRORS): (errors,)}))

    def _put_errors(self, part: RowSpan) -> None:
        if ArrayKey(ERRORS) in part.arrays:
            self._errors.put(part)

    def _step_now(self, step: int) -> int:
        """The number that a step has now, or the first one after it that is there."""
        for run in self._runs:
            if step < run.end:
                return run.now + max(0, step - run.first)
        return self.ring.steps

    def _now(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers that transitions have now, -1 for those that are gone."""
        steps, envs = np.divmod(numbers, self.ring.envs)
        now = np.full_like(numbers, -1)
        for run in self._runs:
            here = (run.first <= steps) & (steps < run.end)
            now[here] = (steps[here] - run.first + run.now) * self.ring.envs + envs[here]
        now[now < self.ring.start] = -1
        return now

    def write(self, steps: LogFiles, errors: LogFiles) -> None:
        """Write what is left as one commit, and drop everything else."""
        number = self.last_number + 1
        if self.newest is not None:
            ring, newest = self.ring, self.newest.record
            part = replace(ring.snapshot(ring.needed), begins=True)
            facts: dict[str, Any] = {
                "state": newest.facts["state"],
                "pinned": [],
                "begins": True,
                "since": part.since,
                "needed": ring.needed,
                "storage": self._manifest.facts(),
                "after": 0,
                "errors": None,
            }
            if ArrayKey(ERRORS) in newest.arrays:
                live = self._errors.live(ring)
                live[np.isnan(live)] = facts["state"]["priorities"]["largest_error"]
                of_rows = np.zeros((len(part), ring.envs), np.float32)
                of_rows[len(part) - ring.live_steps :] = live.reshape(-1, ring.envs)
                part = replace(part, arrays=part.arrays | {ArrayKey(ERRORS): (of_rows,)})
                record = Record(number, part.first, part.steps, {"start": ring.start}, {ArrayKey(ERRORS): (live,)})
                facts["errors"] = errors.append(record, new_file=True)
            steps.append(Record(number, part.first, part.steps, facts, part.arrays), new_file=True)
        steps.delete_before(number)
        errors.delete_before(number)


class _AfterGap:
    """The rows since a gap, under their own numbers: those whose stacks of frames reach into the gap are left out.

    Args:
        ring: an empty one.
        since: the first row after the gap.
    """

    def __init__(self, ring: Ring, since: int) -> None:
        self._ring, self._since = ring, since
        self._ended: NDArray[np.bool_] = np.ones(ring.envs, np.bool_)
        self.first: int | None = None
        """The first row that is whole; None as long as none was."""

    def whole_without_it(self, part: RowSpan) -> bool:
        """Whether all rows are whole with those from :attr:`first` on."""
        # Rows that are not there yet say nothing.
        return self.first is not None and len(part) > 0 and part.first_whole(self.first) == part.first

    def samples(self, part: RowSpan) -> Iterator[tuple[int, dict[str, Any], bool]]:
        """Insert some rows; yields the whole ones, and whether something else than the next row follows each."""
        ring = self._ring
        ring.append_span(part)
        for step in range(part.first_whole(self._since), part.steps):
            sample = ring.gather(np.arange(step * ring.envs, (step + 1) * ring.envs))
            self._ended = (sample[DONE2] + sample[TRUNC2])[:, 0] > 0
            yield step, sample, bool((ring.broken_after(step) & ~self._ended).any())

    def broken_before(self, part: RowSpan) -> bool:
        """Whether a part says that it does not continue the row before it, which did not know it yet."""
        told = part.array(HAS_FINAL)
        return len(told) > len(part) and bool((told[0] & ~self._ended).any())


def _why_apart(before: StoredRecord, found: StoredRecord, end: int) -> str | None:
    record = found.record
    if record.commit != before.record.commit + 1:
        return f"a file with steps {end} to {record.first} is gone"
    if record.facts["after"] != before.checksum:
        return f"commit {record.commit} was made after another commit {before.record.commit}"
    if not record.facts["begins"] and record.first != end:
        return f"step {record.first} does not follow step {end}"
    return None


def _changes(errors: LogFiles, num_envs: int) -> tuple[list[str], list[StoredRecord]]:
    """Describe the damage in the log of errors, and return the rest."""
    dropped: list[str] = []
    changes: list[StoredRecord] = []
    end = 0
    for log_file, found in errors.everything():
        if isinstance(found, CorruptRange):
            dropped.append(errors.describe(log_file, found, end).replace("where steps", "where errors of steps"))
        elif "start" not in found.record.facts:
            dropped.append(f"{errors.path(log_file)} holds no errors: another file has taken its place")
        elif flaw := flaw_of_errors(found.record, num_envs):
            dropped.append(was_not_written_here(errors.path(log_file), found.record, flaw))
        else:
            changes.append(found)
            end = found.record.steps
    return dropped, changes
