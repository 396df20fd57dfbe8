"""Segments on disk: immutable groups of whole episodes, and the manifest log that records them.

A directory holds ``episodes.json`` (the manifest), ``episodes`` (a zarr group, an array for each leaf) and a manifest
log, each record of which names a segment: its rows of the arrays, its episodes, and the checksum of each chunk. A
segment begins with new chunks. So nothing that was recorded is ever written again, and chunks without a record are not
read, and are overwritten by the next segment.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.errors import DamageError, DroppedError, PersistenceError
from storages.persistent.episodes.episode_batch import EpisodeBatch
from storages.persistent.episodes.episode_manifest import GROUP, Ancestor, EpisodeManifest
from storages.persistent.episodes.segment import (
    ManifestPosition,
    Segment,
    flaw_of,
    read_segment,
    record_of,
    segment_of,
)
from storages.persistent.log.files import make_directory
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.log_files import EMPTY_LOG, LogFiles
from storages.persistent.log.records import StoredRecord
from storages.persistent.log.system_calls import open_file, sync_data, sync_directory

SUFFIX = "segments"
LOG_FILE_BYTES = 4 << 20
"""A file of the log that is longer is not continued."""


class SegmentStore:
    """Segments of a directory, and the log that records them.

    Args:
        directory: where.
        manifest: what it holds.
        durable: whether what was recorded survives a power cut.
        read_only: whether another process may be writing there.

    Raises:
        DamageError: something of the log is not what was written; the text names the file.
        PersistenceError: the ancestor has changed, or is gone.
    """

    def __init__(self, directory: Path, manifest: EpisodeManifest, durable: bool = False, read_only: bool = False):
        self.directory, self.manifest = directory, manifest
        self._durable, self._read_only = durable, read_only
        self._columns = manifest.columns
        self._log = LogFiles(directory, SUFFIX, durable)
        self.segments: list[Segment] = []
        """All that hold transitions that are live, or were when a checkpoint was made; the ancestor's, too."""
        self.live = 0
        """Number of the oldest live transition."""
        self.end = 0
        """Number after the newest."""
        self.record: ManifestPosition = {"record": 0, "checksum": 0}
        """The last one."""
        self.watermarks: list[int] = []
        """Of each environment, how many of its steps are in segments, or dropped."""
        self.next_row = 0
        self._pinned: list[list[int]] = []
        """Records that checkpoints refer to, and the oldest transition that was live then."""
        self._log_files: list[tuple[int, int]] = []
        """Of each file of the log the number, and the first transition in it."""
        self._deleted = 0
        """Number after the last transition whose chunks were deleted."""
        with name_damage(self.directory):
            self._read_log()

    @classmethod
    def beside_a_writer(cls, directory: Path, manifest: EpisodeManifest) -> "SegmentStore":
        """Open a directory for reading to which another process may be writing."""
        log = LogFiles(directory, SUFFIX, durable=False)
        while True:
            before = log.sizes()
            try:
                return cls(directory, manifest, read_only=True)
            except (DamageError, FileNotFoundError):
                # Files come and go while they are read.
                if log.sizes() == before:
                    raise

    # What is recorded

    def _read_log(self, until: int | None = None) -> None:
        self.record, self.watermarks, self._pinned = {"record": 0, "checksum": 0}, [], []
        self.segments, self._log_files, self.next_row = [], [], 0
        older = self._ancestor()
        self.segments, self.live, self.end = ([], 0, 0) if older is None else (older.segments, older.live, older.end)
        place = EMPTY_LOG
        for found, end in self._log.read():
            entry = found.record
            if "live" not in entry.facts:
                raise DamageError(f"{self._log.path(end.log_file)} holds no records: another file has taken its place")
            if until is not None and entry.commit > until:
                break
            if self.record["record"] and entry.commit != self.record["record"] + 1:
                raise DamageError(
                    f"{self._log.path(end.log_file)} begins with record {entry.commit}, but the one before it is "
                    f"{self.record['record']}: a file of the log is missing"
                )
            if end.log_file not in (log_file for log_file, _ in self._log_files[-1:]):
                self._log_files.append((end.log_file, entry.first))
            self._take(found, end.log_file)
            place = end
        if not self._read_only:
            self._log.cut(place)
        self._forget_unneeded()
        first = self.segments[0].first if self.segments else self.end
        if first > self.live:
            oldest = self._log.path(min(self._log.numbers(), default=0))
            raise DamageError(f"{oldest} does not go back to transition {self.live}: the log up to {first} is missing")

    def _ancestor(self) -> "SegmentStore | None":
        ancestor = self.manifest.ancestor
        if ancestor is None:
            return None
        directory = Path(ancestor.directory)
        manifest = EpisodeManifest.read(directory)
        if manifest is None:
            raise PersistenceError(f"{directory} is gone, which {self.directory} goes on from; put it back")
        older = SegmentStore.beside_a_writer(directory, manifest)
        older._read_log(ancestor.record)
        if older.record != {"record": ancestor.record, "checksum": ancestor.checksum}:
            raise PersistenceError(
                f"{directory} is not what {self.directory} goes on from: it has record {older.record['record']}, and "
                f"record {ancestor.record} of then is asked for; put back what it was"
            )
        return older

    def _take(self, found: StoredRecord, log_file: int) -> None:
        segment = segment_of(found.record, self.directory / GROUP)
        if segment is not None and (flaw := flaw_of(segment, self.manifest)):
            raise DamageError(f"{self._log.path(log_file)} tells, in record {found.record.commit}, of {flaw}")
        facts = found.record.facts
        if facts["begins"]:
            self.segments = []
        if segment is not None:
            self.segments.append(segment)
        self.end, self.live, self.next_row = found.record.steps, facts["live"], facts["next_row"]
        self.watermarks, self._pinned = facts["watermarks"], facts["pinned"]
        self.record = {"record": found.record.commit, "checksum": found.checksum}

    def _forget_unneeded(self) -> None:
        self._deleted = min([self.live, *(live for _, live in self._pinned)])
        self.segments = [segment for segment in self.segments if segment.end > self._deleted]

    # In

    def append(self, batch: EpisodeBatch, segment: Segment, live: int, watermarks: Sequence[int]) -> Segment:
        """Write a segment.

        Args:
            batch: its episodes.
            segment: what it is to be, as :meth:`planned` says.
            live: number of the oldest live transition.
            watermarks: see :attr:`watermarks`.

        Raises:
            OSError: it could not be written; nothing that was recorded changed.
        """
        checksums, nbytes = self._write_chunks(batch, segment)
        segment = replace(segment, checksums=checksums, nbytes=nbytes)
        self._record(segment, live, segment.end, segment.row + self._rows_taken(segment.rows), watermarks, self._pinned)
        return segment

    def planned(self, batch: EpisodeBatch, first: int, row: int) -> Segment:
        """Return the segment that a batch will be, without checksums."""
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
        """Where the next segment begins."""
        return segment.row + self._rows_taken(segment.rows)

    def note(self, live: int, watermarks: Sequence[int], *, pin: int) -> None:
        """Record a change without a new segment.

        Args:
            live: number of the oldest live transition.
            watermarks: see :attr:`watermarks`.
            pin: 0, or for how many checkpoints what was live is kept, from now on this one among them.

        Raises:
            OSError: it could not be written.
        """
        pinned = self._pinned
        if pin:
            pinned = [*pinned, [self.record["record"] + 1, live]][-pin:]
        self._record(None, live, max(self.end, live), self.next_row, watermarks, pinned)

    def pin(self, record: ManifestPosition, live: int, watermarks: Sequence[int]) -> None:
        """Keep what was live at a record, and no longer what those pinned before need.

        Args:
            record: to be kept.
            live: number of the oldest transition that was live then.
            watermarks: see :attr:`watermarks`.

        Raises:
            OSError: it could not be written.
        """
        pinned = [[record["record"], live]] if record["record"] else []
        self._record(None, self.live, max(self.end, self.live), self.next_row, watermarks, pinned)

    def _record(
        self,
        segment: Segment | None,
        live: int,
        end: int,
        next_row: int,
        watermarks: Sequence[int],
        pinned: list[list[int]],
    ) -> None:
        number = self.record["record"] + 1
        facts: dict[str, Any] = {
            "live": live,
            "watermarks": list(watermarks),
            "pinned": pinned,
            "next_row": next_row,
            "begins": False,
        }
        place = self._log.end
        new_file = place.log_file == 0 or place.offset > LOG_FILE_BYTES
        if new_file:
            facts["archive"] = self.manifest.facts()
        entry = record_of(number, segment, facts, end)
        checksum = self._log.append(entry, new_file)
        if new_file:
            self._log_files.append((number, entry.first))
        if segment is not None:
            self.segments = [*self.segments, segment]
        self.live, self.end, self.next_row, self.watermarks, self._pinned = (
            live,
            end,
            next_row,
            list(watermarks),
            pinned,
        )
        self.record = {"record": number, "checksum": checksum}
        self._delete_unneeded()

    def _write_chunks(
        self, batch: EpisodeBatch, segment: Segment
    ) -> tuple[dict[tuple[str, ...], NDArray[np.uint32]], int]:
        group, checksums, nbytes = self.directory / GROUP, {}, 0
        for column in self._columns:
            rows, sums = batch.columns[column.leaf], []
            if not column.layout.count:
                # Nothing to be read back but how many rows there are.
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

    def _rows_taken(self, rows: int) -> int:
        return -(-rows // self.manifest.segment_rows) * self.manifest.segment_rows

    # Out

    def read(self, segment: Segment) -> EpisodeBatch:
        """The episodes of a segment.

        Raises:
            DamageError: not all of it is what was written; the text names the file and the episodes.
            DroppedError: another process, which writes there, does not have it any more.
        """
        try:
            return read_segment(segment, self._columns)
        except DamageError as damage:
            if self._read_only and not self._is_recorded(segment):
                raise DroppedError(f"{self.directory} does not hold {segment.described()} any more") from None
            raise DamageError(
                f"{damage}. storages.persistent.repair({str(segment.directory.parent)!r}) drops these episodes and "
                f"keeps the rest"
            ) from None

    def _is_recorded(self, segment: Segment) -> bool:
        now = SegmentStore.beside_a_writer(self.directory, self.manifest)
        return any(segment.is_same_as(other) for other in now.segments)

    # What is gone

    def look_back(self, record: ManifestPosition) -> None:
        """Restore a record, without a change on disk.

        Raises:
            PersistenceError: it is not there, or what was live then is gone.
        """
        self.refuse_unless_there(record)
        self._read_log(record["record"])

    def roll_back(self, record: ManifestPosition) -> None:
        """Restore a record; later ones are dropped.

        Raises:
            PersistenceError: it is not there, or what was live then is gone; nothing was dropped.
        """
        self.refuse_unless_there(record)
        self._read_log(record["record"])
        self.tidy()

    def refuse_unless_there(self, record: ManifestPosition) -> int:
        """Return the oldest transition that was live at a record to which a rollback is possible.

        Raises:
            PersistenceError: it is not.
        """
        live = None
        for found, _ in self._log.read():
            if (found.record.commit, found.checksum) == (record["record"], record["checksum"]):
                live = found.record.facts["live"]
        if record["record"] and (live is None or live < self._deleted):
            raise PersistenceError(
                f"{self.directory} does not have the record {record['record']} that is asked for, or not what it needs "
                f"any more; nothing was changed. Name the directory as it was when the state was saved"
            )
        return live or 0

    def begin_anew(self, watermarks: Sequence[int], end: int) -> None:
        """Hold no episodes any more.

        Raises:
            OSError: it could not be recorded.
        """
        self._record(None, end, end, self.next_row, watermarks, self._pinned)

    def tidy(self) -> None:
        """Delete chunks without a record, and update the zarr metadata."""
        for column in self._columns:
            directory = column.directory(self.directory / GROUP)
            after = self.next_row // column.rows
            for path in directory.glob("c.*"):
                number = path.name.split(".")[1]
                if number.isdecimal() and int(number) >= after:
                    path.unlink()
        self.manifest.tell_zarr(self.directory, self.next_row, self._durable)

    def _delete_unneeded(self) -> None:
        needed = min([self.live, *(live for _, live in self._pinned)])
        if needed <= self._deleted:
            return
        own = self.directory / GROUP
        kept = []
        for segment in self.segments:
            if segment.end > needed:
                kept.append(segment)
            elif segment.directory == own:
                self._delete(segment)
        self.segments, self._deleted = kept, needed
        oldest = kept[0].first if kept else self.end
        while len(self._log_files) > 1 and self._log_files[1][1] <= oldest:
            self._log_files.pop(0)
        if self.manifest.ancestor is None:
            pinned = min((record for record, _ in self._pinned), default=self._log_files[0][0])
            usable = [number for number, _ in self._log_files if number <= pinned]
            self._log.drop_before(usable[-1] if usable else 0)

    def _delete(self, segment: Segment) -> None:
        for column in self._columns:
            for place in range(len(segment.checksums[column.leaf])):
                try:
                    column.path(segment.directory, segment.row // column.rows + place).unlink(missing_ok=True)
                except OSError:
                    # It will be overwritten, or stays unread.
                    return

    @property
    def newest_file(self) -> Path:
        """The last file of the log."""
        return self._log.path(self._log.end.log_file)

    def close(self) -> None:
        """Close the log."""
        self._log.close()


def _write(path: Path, data: bytes, durable: bool) -> None:
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        view = memoryview(data)
        while len(view):
            view = view[os.write(file, view) :]
        if durable:
            sync_data(file)
    finally:
        os.close(file)


def manifest_to_read(directory: Path) -> EpisodeManifest:
    """The manifest of a directory to which another process writes.

    Raises:
        PersistenceError: there is none.
    """
    manifest = EpisodeManifest.read(directory)
    if manifest is None:
        raise PersistenceError(f"{directory} holds no episodes yet, and read_only=True writes none")
    return manifest


def manifest_to_write(directory: Path, ancestor: Path | None, durable: bool) -> EpisodeManifest | None:
    """Return the manifest of a directory; None if the first transition determines it.

    Args:
        directory: which must be there.
        ancestor: the directory that it goes on from, as that is now, or was when this one was made.
        durable: whether a new manifest is to survive a power cut.

    Raises:
        PersistenceError: the directory goes on from another, or the ancestor holds nothing.
        OSError: a new manifest cannot be written.
    """
    manifest = EpisodeManifest.read(directory)
    if ancestor is None:
        return manifest
    if manifest is not None:
        if manifest.ancestor is None or manifest.ancestor.directory != str(ancestor):
            there = manifest.ancestor and manifest.ancestor.directory
            raise PersistenceError(
                f"{directory} goes on from {there or 'no ancestor'}, not from {ancestor}; name that one, or a new "
                f"directory"
            )
        return manifest
    older = EpisodeManifest.read(ancestor)
    if older is None:
        raise PersistenceError(f"{ancestor} holds no episodes to go on from")
    record = SegmentStore(ancestor, older, read_only=True).record
    inherited = Ancestor(str(ancestor), record["record"], record["checksum"])
    manifest = EpisodeManifest.made(older.layout, older.stacked, older.segment_rows, inherited)
    manifest.write(directory, durable)
    return manifest
