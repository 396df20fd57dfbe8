"""Repair of a replay storage's directory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, HAS_FINAL, ArrayKey, RowSpan
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.log_files import LogOffset
from storages.persistent.log.notes import ClosingNote
from storages.persistent.log.records import Record, StoredRecord
from storages.persistent.replay.recovery import ErrorRows, changed_in
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import (
    CHANGES,
    NEWER_STATES,
    flaw_of_part,
    flaw_of_state,
    part_of,
    repaired_state,
    replaced_in,
)
from storages.transition import DONE2, TRUNC2


@dataclass
class _Extent:
    """Consecutive steps [first, end) of the log, which are renumbered from ``now`` on."""

    first: int
    end: int
    now: int


class IntactRows:
    """The intact rows of a replay storage, in a ring without gaps.

    Steps after a gap are renumbered to follow those before it.

    Args:
        folder: the directory.
        manifest: its manifest.
        log: its write-ahead log.
    """

    def __init__(self, folder: Path, manifest: RingManifest, log: CommitLog) -> None:
        self.log, self._folder = log, folder
        self._log_bytes = self.log.files.nbytes
        self.ring = manifest.ring("repair", self._log_bytes)
        self.manifest = manifest
        self._errors = ErrorRows(self.ring)
        self._runs: list[_Extent] = []
        self._apart: _AfterGap | None = None
        self.newest: StoredRecord | None = None
        self._oldest_there = 0
        """Number of the oldest step in the log since its last full snapshot."""
        self._before_flaws: LogOffset | None = None
        """Offset at which the log can be truncated, because no intact record follows damage; None if one does."""

    @property
    def steps(self) -> int:
        """Number of live steps."""
        return self.ring.live_steps

    def take(self) -> list[str]:
        """Replay all intact records; return descriptions of the damaged ones."""
        dropped: list[str] = []
        # ``gap``: damage since the last intact record; ``within``: damage before some intact record.
        gap, within = False, False
        for one in self.log.walk(lambda record: flaw_of_part(record, self.ring)):
            if isinstance(one, str):
                dropped.append(one)
                gap = True
                continue
            self.newest, self._before_flaws = one
            within, record = within or gap, self.newest.record
            self._put(part_of(record), apart=gap)
            gap = False
            self._replace_states(record)
            if ArrayKey(ERRORS) in record.arrays:
                self._errors.change(record, self._renumbered(changed_in(record)))
        if not dropped and self.newest and (needed := self.newest.record.facts["needed"]) < self._oldest_there:
            dropped.append(f"{self._folder}: the file with steps {needed} to {self._oldest_there} is gone")
            within = True
        if self.newest is not None and (flaw := flaw_of_state(self.newest.record.facts["state"])):
            dropped.append(f"{self._folder}: commit {self.newest.record.commit} has {flaw}, which begins anew")
            within = True
        if within:
            self._before_flaws = None
        return dropped

    def adopt_sidecars(self, errors: int | None) -> list[str]:
        """Return no descriptions: a replay storage has no other files."""
        return []

    def drop_sidecars(self) -> None:
        """Do nothing: a replay storage has no other files."""

    def _replace_states(self, record: Record) -> None:
        replaced = replaced_in(record)
        if len(replaced):
            numbers = self._renumbered(replaced)
            self.ring.replace_states(numbers[numbers >= 0], record.arrays[NEWER_STATES][0][numbers >= 0])

    def _put(self, part: RowSpan, apart: bool) -> None:
        """Append the rows of a record; ``apart`` if there is a gap before them."""
        if part.begins or not self._runs:
            self._oldest_there = part.first
        if part.begins:
            self._runs, self._apart = [_Extent(part.first, part.first, self.ring.steps)], None
        elif apart or not self._runs:
            self._apart = _AfterGap(self.manifest.ring("repair", self._log_bytes), part.first)
        if self._apart is not None and self._apart.needs_no_earlier_rows(part):
            self._apart = None
        if self._apart is None:
            self._append_part(part)
        else:
            self._insert_after_gap(part, self._apart)

    def _append_part(self, part: RowSpan) -> None:
        run = self._runs[-1]
        run.end = part.steps
        first = run.now + part.first - run.first
        since = first if part.begins else max(self.ring.first, self._renumbered_step(part.since))
        part = part.numbered(first, since)
        self.ring.append_span(part)
        self._put_errors(part)

    def _insert_after_gap(self, part: RowSpan, apart: "_AfterGap") -> None:
        """Insert step by step the rows whose frame stacks do not reach into the gap."""
        first = self.ring.steps
        if apart.first is None or apart.broken_before(part):
            self.ring.interrupt()
        for step, sample, broken in apart.samples(part):
            if apart.first is None:
                apart.first = step
                self._runs.append(_Extent(step, step, self.ring.steps))
            self.ring.insert(sample)
            if broken:
                self.ring.interrupt()
        if apart.first is None:
            return
        self._runs[-1].end = part.steps
        self.ring.drop_before(max(self.ring.first, self._renumbered_step(part.since)))
        if ArrayKey(ERRORS) in part.arrays:
            errors = part.array(ERRORS)[len(part) - (self.ring.steps - first) :]
            self._put_errors(replace(part, first=first, steps=self.ring.steps, arrays={ArrayKey(ERRORS): (errors,)}))

    def _put_errors(self, part: RowSpan) -> None:
        if ArrayKey(ERRORS) in part.arrays:
            self._errors.put(part)

    def _renumbered_step(self, step: int) -> int:
        """Return the new number of a step, or of the first intact step after it."""
        for run in self._runs:
            if step < run.end:
                return run.now + max(0, step - run.first)
        return self.ring.steps

    def _renumbered(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new numbers of transitions, -1 for those that were dropped."""
        steps, envs = np.divmod(numbers, self.ring.envs)
        now = np.full_like(numbers, -1)
        for run in self._runs:
            here = (run.first <= steps) & (steps < run.end)
            now[here] = (steps[here] - run.first + run.now) * self.ring.envs + envs[here]
        now[now < self.ring.start] = -1
        return now

    def write(self, lost: bool, missing: bool, closed: ClosingNote | None) -> None:
        """Truncate the log, or replace it by one commit of the intact rows.

        Args:
            lost: whether records are damaged.
            missing: whether commits of the closing note are missing.
            closed: the closing note, if there is an intact one.
        """
        if lost and not missing and self._before_flaws is not None:
            self.log.files.cut(self._before_flaws)
        elif lost or missing:
            last = 0 if self.newest is None else self.newest.record.commit
            self._rewrite(max(0 if closed is None else closed.commit, last, *self.log.files.numbers()) + 1)
        self.log.files.close()

    def _rewrite(self, number: int) -> None:
        if self.newest is not None:
            ring, newest = self.ring, self.newest.record
            size = newest.facts.get("size")
            if size is not None and ring.live_steps > size:
                ring.drop_before(ring.steps - size)
            part = replace(ring.snapshot(ring.needed), begins=True)
            facts = self.log.next_facts(ring.needed, [], begins=True)
            state = repaired_state(newest.facts["state"], ring.live_transitions)
            facts |= {"state": state, "since": part.since, "start": ring.start}
            facts |= {"size": size} if size is not None else {}
            facts["manifest"] = self.manifest.facts()
            if ArrayKey(ERRORS) in newest.arrays:
                live = self._errors.live(ring)
                live[np.isnan(live)] = facts["state"]["priorities"]["largest_error"]
                of_rows = np.zeros((len(part), ring.envs), np.float32)
                of_rows[len(part) - ring.live_steps :] = live.reshape(-1, ring.envs)
                part = replace(part, arrays=part.arrays | {ArrayKey(ERRORS): (of_rows,), ArrayKey(CHANGES): (live,)})
            self.log.files.append(Record(number, part.first, part.steps, facts, part.arrays), new_file=True)
        self.log.files.delete_before(number)


class _AfterGap:
    """The rows after a gap, with their original numbers, of which those with incomplete frame stacks are left out.

    Args:
        ring: an empty ring.
        since: number of the first row after the gap.
    """

    def __init__(self, ring: Ring, since: int) -> None:
        self._ring, self._since = ring, since
        self._ended: NDArray[np.bool_] = np.ones(ring.envs, np.bool_)
        self.first: int | None = None
        """Number of the first row with a complete frame stack; None as long as there is none."""

    def needs_no_earlier_rows(self, part: RowSpan) -> bool:
        """Return whether the frame stacks of a part need no rows before :attr:`first`."""
        # A part without rows proves nothing.
        return self.first is not None and len(part) > 0 and part.first_whole(self.first) == part.first

    def samples(self, part: RowSpan) -> Iterator[tuple[int, dict[str, Any], bool]]:
        """Yield the complete rows of a part: number, sample, and whether an episode was broken off after the row."""
        ring = self._ring
        ring.append_span(part)
        for step in range(part.first_whole(self._since), part.steps):
            sample = ring.gather(np.arange(step * ring.envs, (step + 1) * ring.envs))
            self._ended = (sample[DONE2] + sample[TRUNC2])[:, 0] > 0
            yield step, sample, bool((ring.broken(step, step + 1)[0] & ~self._ended).any())

    def broken_before(self, part: RowSpan) -> bool:
        """Return whether a part records that an episode was broken off after the row before it."""
        has_final = part.array(HAS_FINAL)
        return len(has_final) > len(part) and bool((has_final[0] & ~self._ended).any())
