"""Segments on disk: immutable groups of whole episodes, and the log that records them.

A directory holds ``episodes.json`` (the manifest), ``episodes`` (a zarr group with an array for each leaf) and a log.
Each commit records a segment: its rows of the arrays, its episodes, and the checksum of each chunk. A segment begins at
a chunk boundary, so that committed chunks are never written again. Chunks without a commit, which a crash may leave,
are not read, and are overwritten by the next segment.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storages.errors import DamageError, DroppedError, PersistenceError
from storages.files import make_directory, read_beside_a_writer
from storages.persistent.episodes.ancestors import (
    is_lost,
    missing,
    place_of_nearest,
    places_of,
    split,
)
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.episode_manifest import GROUP, EpisodeManifest
from storages.persistent.episodes.segment import Segment, flaw_of_record, read_segment, record_of, segment_of
from storages.persistent.episodes.segment_log import rewrite_log, segments_log
from storages.persistent.log.commit_log import Position
from storages.persistent.log.json_file import name_damage, name_repair
from storages.persistent.log.notes import NAME as NOTE
from storages.persistent.log.notes import refuse_missing, remove_note
from storages.system_calls import open_file, sync_data, sync_directory, write_all

LOG_FILE_BYTES = 4 << 20
"""Size of a log file beyond which the next commit begins a new one."""


class SegmentStore:
    """Segments of a directory, and the log that records them.

    Args:
        directory: the directory.
        manifest: its manifest.
        durable: whether commits survive a power cut.
        read_only: whether another process may be writing to the directory.

    Raises:
        DamageError: the log is damaged; the text names the file.
        PersistenceError: the ancestor has changed or is missing.
    """

    def __init__(self, directory: Path, manifest: EpisodeManifest, durable: bool = False, read_only: bool = False):
        self.directory, self.manifest = directory, manifest
        self._durable, self._read_only = durable, read_only
        self._columns = manifest.columns
        self.log = segments_log(directory, durable)
        """The log of segments."""
        self.segments: list[Segment] = []
        """Segments with transitions that are live, or were at a pinned commit; including those of the ancestors."""
        self.lost: dict[int, Segment] = {}
        """Such segments that ancestors have not any more, by their first transitions."""
        self.live = 0
        """Number of the oldest live transition."""
        self.end = 0
        """Number after the newest transition."""
        self.watermarks: list[int] = []
        """For each environment, the number of its steps that are in segments or were dropped."""
        self.next_row = 0
        """Row of the arrays at which the next segment begins."""
        self._deleted = 0
        """Number after the last transition whose chunks were deleted."""
        self._read_log()

    @classmethod
    def beside_a_writer(cls, directory: Path, manifest: EpisodeManifest) -> "SegmentStore":
        """Open a directory read-only while another process may be writing to it."""
        return read_beside_a_writer(directory, lambda: cls(directory, manifest, read_only=True))

    # Recovery

    def _read_log(self, until: int | None = None) -> None:
        with name_repair(self.directory), name_damage(self.directory):
            if not self._read_only and until is None:
                self._record_ancestors()
            self._replay(until)

    def _record_ancestors(self) -> None:
        """Record the segments of the ancestors in the log of a new directory."""
        there, manifest = self.log.files.numbers() or (self.directory / NOTE).exists(), self.manifest
        if there or not manifest.has_records_of_ancestors:
            return
        older = self._older()
        segments = [*older.segments, *older.lost.values()]
        rewrite_log(self.directory, manifest, 1, segments, older.live, older.end, durable=self._durable)

    def _replay(self, until: int | None) -> None:
        log = segments_log(self.directory, self._durable)
        segments: list[Segment] = []
        self.live, self.end, self.next_row, self.watermarks = 0, 0, 0, []
        is_complete, missing_before = not self.manifest.ancestors, False
        for record in log.replay(lambda record: flaw_of_record(record, self.manifest), until):
            facts = record.facts
            if facts["begins"]:
                segments = []
            # Earlier versions did not record the segments of ancestors.
            is_complete |= facts["begins"] or self.manifest.has_records_of_ancestors
            if (segment := segment_of(record, self.directory / GROUP)) is not None:
                segments.append(segment)
            self.end, self.live = record.steps, facts["needed"]
            self.next_row, self.watermarks = facts["next_row"], facts["watermarks"]
        self.log.files.close()
        self.log = log
        if not self._read_only:
            if until is None:
                refuse_missing(self.directory, log)
            log.cut()
        if not is_complete:
            older = self._older()
            missing_before = older.record["commit"] != self.manifest.ancestors[0].commit
            if not log.position["commit"]:
                self.live, self.end = older.live, older.end
            segments = [*older.segments, *older.lost.values(), *segments]
        self._deleted = self._needed
        self.segments = [segment for segment in segments if segment.end > self._deleted]
        first = min((segment.first for segment in self.segments), default=self.end)
        if first > self.live and not missing_before:
            oldest = log.files.path(min(log.files.numbers(), default=0))
            raise DamageError(f"{oldest} does not go back to transition {self.live}: the log up to {first} is missing")
        self._find_ancestors()

    def _find_ancestors(self) -> None:
        """Set the present directories of the segments of ancestors, and set aside those that are lost."""
        inherited = [segment for segment in self.segments if segment.ancestor]
        if not inherited:
            return
        # Those that the log of an ancestor records have its place already.
        own = self.directory / GROUP
        places = places_of(self.directory, self.manifest, [one for one in inherited if one.directory == own])
        inherited = [
            replace(one, directory=places[one.ancestor] / GROUP) if one.directory == own else one for one in inherited
        ]
        there, lost = split(inherited, self._columns)
        self.lost |= {segment.first: segment for segment in lost}
        there = [segment for segment in there if segment.first not in self.lost]
        of_this = (segment for segment in self.segments if not segment.ancestor)
        self.segments = sorted([*there, *of_this], key=lambda segment: segment.first)

    @property
    def held(self) -> list[Segment]:
        """Those of :attr:`segments` that are not lost."""
        return [segment for segment in self.segments if not (segment.ancestor and segment.first in self.lost)]

    @property
    def _needed(self) -> int:
        """Number of the oldest transition that is live or was live at a pinned commit."""
        return min([self.live, *(live for _, live in self.log.pinned)])

    @property
    def record(self) -> Position:
        """Position of the last commit."""
        return self.log.position.copy()

    def _older(self) -> "SegmentStore":
        """Return the directory that this one continues, at the commit from which it does.

        Raises:
            PersistenceError: it is missing, or was changed.
        """
        ancestor = self.manifest.ancestors[0]
        place = place_of_nearest(self.directory, self.manifest)
        manifest = EpisodeManifest.read(place)
        if manifest is None:
            raise missing(self.directory, place)
        older = SegmentStore.beside_a_writer(place, manifest)
        numbers = older.log.files.numbers()
        older._read_log(ancestor.commit)
        known = older.record
        if (
            known != {"commit": ancestor.commit, "checksum": ancestor.checksum}
            and min(numbers, default=0) <= ancestor.commit
        ):
            raise PersistenceError(
                f"{place}, the ancestor of {self.directory}, was changed: it has commit {known['commit']}, and commit "
                f"{ancestor.commit} of that time is needed; restore its content, or name its present place with "
                f"ancestor=. If it is lost, storages.persistent.repair({str(self.directory)!r}) drops its episodes, "
                f"and keeps the rest"
            )
        older.segments = [replace(segment, ancestor=segment.ancestor + 1) for segment in older.segments]
        older.lost = {first: replace(one, ancestor=one.ancestor + 1) for first, one in older.lost.items()}
        return older

    def warn_of_lost(self) -> None:
        """Warn of the segments that were lost with ancestors."""
        if self.lost:
            transitions = sum(segment.steps for segment in self.lost.values())
            places = ", ".join(sorted({str(segment.directory.parent) for segment in self.lost.values()}))
            warnings.warn(
                f"{self.directory}: {transitions} transitions of its ancestors are not there any more, because "
                f"{places} dropped or lost their files; the rest is used",
                stacklevel=2,
            )

    # Writing

    def append(self, batch: EpisodeBatch, segment: Segment, live: int, watermarks: Sequence[int]) -> Segment:
        """Write a segment, commit it, and return it with its checksums.

        Args:
            batch: its episodes.
            segment: the segment that :meth:`planned` returned.
            live: number of the oldest live transition.
            watermarks: see :attr:`watermarks`.

        Raises:
            OSError: the write failed; nothing was committed.
        """
        checksums, nbytes = self._write_chunks(batch, segment)
        segment = replace(segment, checksums=checksums, nbytes=nbytes)
        self.note(live, watermarks, segment=segment)
        return segment

    def planned(self, batch: EpisodeBatch, first: int, row: int) -> Segment:
        """Return the description of the segment that a batch will become, without checksums."""
        return Segment(
            first,
            row,
            0,
            batch.lengths.astype(np.int32),
            batch.leading.astype(np.int32),
            batch.paddings,
            {},
            {str(place): facts for place, facts in enumerate(batch.facts) if facts},
            self.directory / GROUP,
        )

    def row_after(self, segment: Segment) -> int:
        """Return the row at which the segment after this one begins."""
        return segment.row + -(-segment.rows // self.manifest.segment_rows) * self.manifest.segment_rows

    def note(
        self,
        live: int,
        watermarks: Sequence[int],
        *,
        pinned: list[list[int]] | None = None,
        segment: Segment | None = None,
    ) -> None:
        """Commit a new live range, watermarks, pins or a segment; delete segments that are not needed any more.

        Args:
            live: number of the oldest live transition.
            watermarks: see :attr:`watermarks`.
            pinned: the pinned commits, and the oldest live transition at each; unchanged if None.
            segment: the segment that was written, if any.

        Raises:
            OSError: the commit could not be written.
        """
        pinned = self.log.pinned if pinned is None else pinned
        end, next_row = max(self.end, live), self.next_row
        if segment is not None:
            end, next_row = segment.end, self.row_after(segment)
        facts = self.log.next_facts(live, pinned, begins=False)
        facts |= {"watermarks": list(watermarks), "next_row": next_row}
        if self.log.is_full(LOG_FILE_BYTES):
            facts["manifest"] = self.manifest.facts()
        self.log.append(record_of(self.record["commit"] + 1, segment, facts, end))
        if segment is not None:
            self.segments = [*self.segments, segment]
        self.live, self.end, self.next_row, self.watermarks = live, end, next_row, list(watermarks)
        self._delete_unneeded()

    def _write_chunks(
        self, batch: EpisodeBatch, segment: Segment
    ) -> tuple[dict[tuple[str, ...], NDArray[np.uint32]], int]:
        group, checksums, nbytes = self.directory / GROUP, {}, 0
        for column in self._columns:
            rows, sums = batch.columns[column.leaf], []
            if not column.layout.count:
                # Rows without elements need no chunks.
                rows = rows[:0]
            make_directory(column.directory(group), self._durable)
            for first in range(0, len(rows), column.rows):
                data, checksum = column.encode(rows[first : first + column.rows])
                _write(column.path(group, (segment.row + first) // column.rows), data, self._durable)
                sums.append(checksum)
                nbytes += len(data)
            if self._durable:
                sync_directory(column.directory(group))
            checksums[column.leaf] = np.array(sums, np.uint32)
        return checksums, nbytes

    # Reading

    def read(self, segment: Segment) -> EpisodeBatch:
        """Return the episodes of a segment.

        Raises:
            DamageError: a chunk is damaged; the text names the file and the episodes.
            DroppedError: the process that writes to the directory has deleted the segment.
        """
        try:
            return read_segment(segment, self._columns)
        except DamageError as damage:
            if segment.ancestor and is_lost(segment, self._columns):
                self.lost[segment.first] = segment
                raise DroppedError(
                    f"{segment.directory.parent}, an ancestor of {self.directory}, does not hold "
                    f"{segment.description()} any more"
                ) from None
            if self._read_only and not segment.ancestor:
                now = SegmentStore.beside_a_writer(self.directory, self.manifest)
                if not any(segment.is_same_as(other) for other in now.segments):
                    raise DroppedError(f"{self.directory} does not hold {segment.description()} any more") from None
            with name_repair(self.directory, "drops these episodes and keeps the rest"):
                raise damage

    # Rollback and deletion

    def roll_back(self, position: Position) -> None:
        """Restore a commit, and drop later ones unless the directory is read-only.

        Raises:
            PersistenceError: the commit, or a segment that was live then, does not exist; nothing was dropped.
        """
        self.refuse_unless_there(position)
        if not self._read_only:
            remove_note(self.directory, self._durable)
        self._read_log(position["commit"])
        if not self._read_only:
            self.delete_uncommitted()

    def refuse_unless_there(self, position: Position) -> int:
        """Check that a rollback to a commit is possible; return the oldest transition that was live then.

        Raises:
            PersistenceError: it is not possible.
        """
        if not position["commit"]:
            return 0
        live: int = self.log.commit_at(position, self._deleted).facts["needed"]
        return live

    def delete_uncommitted(self) -> None:
        """Delete chunks without a commit, and update the zarr metadata."""
        for column in self._columns:
            for number in column.numbers(self.directory / GROUP):
                if number >= self.next_row // column.rows:
                    column.path(self.directory / GROUP, number).unlink()
        self.manifest.write_zarr_metadata(self.directory, self.next_row, self._durable)

    def _delete_unneeded(self) -> None:
        needed = self._needed
        if needed <= self._deleted:
            return
        for segment in self.segments:
            if segment.end <= needed and not segment.ancestor:
                self._delete(segment)
        self.segments, self._deleted = [segment for segment in self.segments if segment.end > needed], needed
        if self.manifest.has_records_of_ancestors or not self.manifest.ancestors:
            self.log.drop_unneeded(self.live)

    def _delete(self, segment: Segment) -> None:
        for column in self._columns:
            for place in range(len(segment.checksums[column.leaf])):
                try:
                    column.path(segment.directory, segment.row // column.rows + place).unlink(missing_ok=True)
                except OSError:
                    # An unneeded chunk is never read, and may be overwritten later.
                    return

    def close(self) -> None:
        """Close the log."""
        self.log.files.close()


def _write(path: Path, data: bytes, durable: bool) -> None:
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(file, data)
        if durable:
            sync_data(file)
    finally:
        os.close(file)
