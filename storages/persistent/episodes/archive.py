"""The archive: whole episodes on disk, written in volumes and read volume by volume.

A directory holds ``episodes.json`` (what is kept there), ``episodes`` (a zarr group, an array for each leaf) and a log,
of which each block records a volume: which rows of the arrays it has, which episodes these are, and the checksum of
each chunk. A volume begins with new chunks. So nothing that was recorded is ever written again, and what was not
recorded does not count, is never read, and is overwritten by what comes next.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.errors import DamageError, DroppedError, PersistenceError
from storages.persistent.episodes.archive_manifest import GROUP, ArchiveManifest
from storages.persistent.episodes.episode_batch import Recording
from storages.persistent.episodes.volume import Record, Volume, block_of, flaw_of, read_volume, volume_of
from storages.persistent.log.files import make_directory
from storages.persistent.log.json_file import damage_told
from storages.persistent.log.log_segments import BEGINNING, Segments
from storages.persistent.log.records import Found
from storages.persistent.log.system_calls import open_file, sync_data, sync_directory

SUFFIX = "volumes"
SEGMENT_BYTES = 4 << 20
"""A file of the log that is longer is not continued."""


class Archive:
    """What is recorded in a directory, and a way to record more.

    Args:
        directory: where.
        manifest: what it holds.
        durable: whether what was recorded survives a power cut.
        read_only: whether another process may be writing there.

    Raises:
        DamageError: something of the log is not what was written; the text names the file.
        PersistenceError: the ancestor has changed, or is gone.
    """

    def __init__(self, directory: Path, manifest: ArchiveManifest, durable: bool = False, read_only: bool = False):
        self.directory, self.manifest = directory, manifest
        self._durable, self._read_only = durable, read_only
        self._columns = manifest.columns
        self._log = Segments(directory, SUFFIX, durable)
        self.volumes: list[Volume] = []
        """All that hold transitions that are live, or were when a checkpoint was made; the ancestor's, too."""
        self.live = 0
        """Number of the oldest live transition."""
        self.end = 0
        """Number after the newest."""
        self.record: Record = {"record": 0, "checksum": 0}
        """The last one."""
        self.marks: list[int] = []
        """Of each environment, how many of its steps are recorded, or gone, for what is kept beside the archive."""
        self.next_row = 0
        self._pinned: list[list[int]] = []
        """Records that checkpoints refer to, and the oldest transition that was live then."""
        self._segments: list[tuple[int, int]] = []
        """Of each file of the log the number, and the first transition in it."""
        self._deleted = 0
        """Number after the last transition whose chunks were deleted."""
        with damage_told(self.directory):
            self._read_log()

    @classmethod
    def beside_a_writer(cls, directory: Path, manifest: ArchiveManifest) -> "Archive":
        """To read from what another process may be writing; as the constructor."""
        log = Segments(directory, SUFFIX, durable=False)
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
        self.record, self.marks, self._pinned = {"record": 0, "checksum": 0}, [], []
        self.volumes, self._segments, self.next_row = [], [], 0
        older = self._ancestor()
        self.volumes, self.live, self.end = ([], 0, 0) if older is None else (older.volumes, older.live, older.end)
        place = BEGINNING
        for found, end in self._log.read():
            block = found.block
            if "live" not in block.facts:
                raise DamageError(f"{self._log.path(end.segment)} holds no records: another file has taken its place")
            if until is not None and block.commit > until:
                break
            if self.record["record"] and block.commit != self.record["record"] + 1:
                raise DamageError(
                    f"{self._log.path(end.segment)} begins with record {block.commit}, but the one before it is "
                    f"{self.record['record']}: a file of the log is missing"
                )
            if end.segment not in (segment for segment, _ in self._segments[-1:]):
                self._segments.append((end.segment, block.first))
            self._take(found, end.segment)
            place = end
        if not self._read_only:
            self._log.cut(place)
        self._forget_what_nobody_needs()
        first = self.volumes[0].first if self.volumes else self.end
        if first > self.live:
            oldest = self._log.path(min(self._log.numbers(), default=0))
            raise DamageError(f"{oldest} does not go back to transition {self.live}: the log up to {first} is missing")

    def _ancestor(self) -> "Archive | None":
        ancestor = self.manifest.ancestor
        if ancestor is None:
            return None
        directory = Path(ancestor.directory)
        manifest = ArchiveManifest.read(directory)
        if manifest is None:
            raise PersistenceError(f"{directory} is gone, which {self.directory} goes on from; put it back")
        older = Archive.beside_a_writer(directory, manifest)
        older._read_log(ancestor.record)
        if older.record != {"record": ancestor.record, "checksum": ancestor.checksum}:
            raise PersistenceError(
                f"{directory} is not what {self.directory} goes on from: it has record {older.record['record']}, and "
                f"record {ancestor.record} of then is asked for; put back what it was"
            )
        return older

    def _take(self, found: Found, segment: int) -> None:
        volume = volume_of(found.block, self.directory / GROUP)
        if volume is not None and (flaw := flaw_of(volume, self.manifest)):
            raise DamageError(f"{self._log.path(segment)} tells, in record {found.block.commit}, of {flaw}")
        facts = found.block.facts
        if facts["begins"]:
            self.volumes = []
        if volume is not None:
            self.volumes.append(volume)
        self.end, self.live, self.next_row = found.block.steps, facts["live"], facts["next_row"]
        self.marks, self._pinned = facts["marks"], facts["pinned"]
        self.record = {"record": found.block.commit, "checksum": found.checksum}

    def _forget_what_nobody_needs(self) -> None:
        self._deleted = min([self.live, *(live for _, live in self._pinned)])
        self.volumes = [volume for volume in self.volumes if volume.end > self._deleted]

    # In

    def append(self, recording: Recording, volume: Volume, live: int, marks: Sequence[int]) -> Volume:
        """Write a volume.

        Args:
            recording: its episodes.
            volume: what it is to be, as :meth:`planned` says.
            live: number of the oldest live transition.
            marks: see :attr:`marks`.

        Raises:
            OSError: it could not be written; nothing that was recorded changed.
        """
        checksums, nbytes = self._write_chunks(recording, volume)
        volume = replace(volume, checksums=checksums, nbytes=nbytes)
        self._record(volume, live, volume.end, volume.row + self._rows_taken(volume.rows), marks, self._pinned)
        return volume

    def planned(self, recording: Recording, first: int, row: int) -> Volume:
        """The volume that a recording would be, but for what follows from writing it."""
        return Volume(
            first,
            row,
            0,
            recording.lengths.astype(np.int32),
            recording.leading.astype(np.int32),
            recording.paddings,
            {},
            {str(place): facts for place, facts in enumerate(recording.facts) if facts},
            self.directory / GROUP,
        )

    def row_after(self, volume: Volume) -> int:
        """Where the next volume begins."""
        return volume.row + self._rows_taken(volume.rows)

    def note(self, live: int, marks: Sequence[int], *, pin: int) -> None:
        """Record what has changed without a new volume.

        Args:
            live: number of the oldest live transition.
            marks: see :attr:`marks`.
            pin: 0, or for how many checkpoints what was live is kept, from now on this one among them.

        Raises:
            OSError: it could not be written.
        """
        pinned = self._pinned
        if pin:
            pinned = [*pinned, [self.record["record"] + 1, live]][-pin:]
        self._record(None, live, max(self.end, live), self.next_row, marks, pinned)

    def _record(
        self,
        volume: Volume | None,
        live: int,
        end: int,
        next_row: int,
        marks: Sequence[int],
        pinned: list[list[int]],
    ) -> None:
        number = self.record["record"] + 1
        facts: dict[str, Any] = {
            "live": live,
            "marks": list(marks),
            "pinned": pinned,
            "next_row": next_row,
            "begins": False,
        }
        place = self._log.end
        anew = place.segment == 0 or place.offset > SEGMENT_BYTES
        if anew:
            facts["archive"] = self.manifest.facts()
        block = block_of(number, volume, facts, end)
        checksum = self._log.append(block, anew)
        if anew:
            self._segments.append((number, block.first))
        if volume is not None:
            self.volumes = [*self.volumes, volume]
        self.live, self.end, self.next_row, self.marks, self._pinned = live, end, next_row, list(marks), pinned
        self.record = {"record": number, "checksum": checksum}
        self._delete_what_nobody_needs()

    def _write_chunks(
        self, recording: Recording, volume: Volume
    ) -> tuple[dict[tuple[str, ...], NDArray[np.uint32]], int]:
        group, checksums, nbytes = self.directory / GROUP, {}, 0
        for column in self._columns:
            rows, sums = recording.columns[column.leaf], []
            if not column.layout.count:
                # Nothing to be read back but how many rows there are.
                rows = rows[:0]
            make_directory(column.directory(group), self._durable)
            for first in range(0, len(rows), column.rows):
                data, checksum = column.encode(rows[first : first + column.rows])
                _write(column.path(group, (volume.row + first) // column.rows), data, self._durable)
                sums.append(checksum)
                nbytes += len(data)
            if self._durable:
                sync_directory(column.directory(group))
            checksums[column.leaf] = np.array(sums, np.uint32)
        return checksums, nbytes

    def _rows_taken(self, rows: int) -> int:
        return -(-rows // self.manifest.volume_rows) * self.manifest.volume_rows

    # Out

    def read(self, volume: Volume) -> Recording:
        """The episodes of a volume.

        Raises:
            DamageError: not all of it is what was written; the text names the file and the episodes.
            DroppedError: another process, which writes there, does not have it any more.
        """
        try:
            return read_volume(volume, self._columns)
        except DamageError as damage:
            if self._read_only and not self._is_recorded(volume):
                raise DroppedError(f"{self.directory} does not hold {volume.described()} any more") from None
            raise DamageError(
                f"{damage}. storages.persistent.repair({str(volume.directory.parent)!r}) drops these episodes and "
                f"keeps the rest"
            ) from None

    def _is_recorded(self, volume: Volume) -> bool:
        now = Archive.beside_a_writer(self.directory, self.manifest)
        return any(volume.is_same_as(other) for other in now.volumes)

    # What is gone

    def look_back(self, record: Record) -> None:
        """Be as of a record, and change nothing on disk.

        Raises:
            PersistenceError: it is not there, or what was live then is gone.
        """
        self.refuse_unless_there(record)
        self._read_log(record["record"])

    def roll_back(self, record: Record) -> None:
        """Be as of a record; what was recorded later is dropped.

        Raises:
            PersistenceError: it is not there, or what was live then is gone; nothing was dropped.
        """
        self.refuse_unless_there(record)
        self._read_log(record["record"])
        self.tidy()

    def refuse_unless_there(self, record: Record) -> None:
        """See that it is possible to roll back to a record.

        Raises:
            PersistenceError: it is not.
        """
        live = None
        for found, _ in self._log.read():
            if (found.block.commit, found.checksum) == (record["record"], record["checksum"]):
                live = found.block.facts["live"]
        if record["record"] and (live is None or live < self._deleted):
            raise PersistenceError(
                f"{self.directory} does not have the record {record['record']} that is asked for, or not what it needs "
                f"any more; nothing was changed. Name the directory as it was when the state was saved"
            )

    def begin_anew(self, marks: Sequence[int], end: int) -> None:
        """Hold no episodes any more.

        Raises:
            OSError: it could not be recorded.
        """
        self._record(None, end, end, self.next_row, marks, self._pinned)

    def tidy(self) -> None:
        """Delete chunks that no record tells about, and tell zarr what is there."""
        for column in self._columns:
            directory = column.directory(self.directory / GROUP)
            after = self.next_row // column.rows
            for path in directory.glob("c.*"):
                number = path.name.split(".")[1]
                if number.isdecimal() and int(number) >= after:
                    path.unlink()
        self.manifest.tell_zarr(self.directory, self.next_row, self._durable)

    def _delete_what_nobody_needs(self) -> None:
        needed = min([self.live, *(live for _, live in self._pinned)])
        if needed <= self._deleted:
            return
        own = self.directory / GROUP
        kept = []
        for volume in self.volumes:
            if volume.end > needed:
                kept.append(volume)
            elif volume.directory == own:
                self._delete(volume)
        self.volumes, self._deleted = kept, needed
        oldest = kept[0].first if kept else self.end
        while len(self._segments) > 1 and self._segments[1][1] <= oldest:
            self._segments.pop(0)
        if self.manifest.ancestor is None:
            pinned = min((record for record, _ in self._pinned), default=self._segments[0][0])
            usable = [number for number, _ in self._segments if number <= pinned]
            self._log.drop_before(usable[-1] if usable else 0)

    def _delete(self, volume: Volume) -> None:
        for column in self._columns:
            for place in range(len(volume.checksums[column.leaf])):
                try:
                    column.path(volume.directory, volume.row // column.rows + place).unlink(missing_ok=True)
                except OSError:
                    # It will be overwritten, or stays where nobody reads it.
                    return

    @property
    def newest_file(self) -> Path:
        """The last file of the log."""
        return self._log.path(self._log.end.segment)

    def close(self) -> None:
        """Let go of the log."""
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
