"""The archive: whole episodes on disk, written in volumes and read volume by volume.

A directory holds ``episodes.json`` (what is kept there), ``episodes`` (a zarr group, an array for each leaf) and a log,
of which each block records a volume: which rows of the arrays it has, which episodes these are, and the checksum of
each chunk. A volume begins with new chunks. So nothing that was recorded is ever written again, and what was not
recorded does not count, is never read, and is overwritten by what comes next.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from storages.core.part import Name
from storages.persistent.archive_manifest import GROUP, ArchiveManifest
from storages.persistent.blocks import Block, Found
from storages.persistent.chunks import Chunks
from storages.persistent.directories import make_directory
from storages.persistent.errors import DamageError, PersistenceError
from storages.persistent.facts import damage_told
from storages.persistent.recording import Recording
from storages.persistent.segments import BEGINNING, Segments, sync_directory

SUFFIX = "volumes"
SEGMENT_BYTES = 4 << 20
"""A file of the log that is longer is not continued."""
_LENGTHS, _LEADING, _PADDING, _CHECKSUMS = "lengths", "leading", "paddings", "checksums"


class Record(TypedDict):
    """A state of the archive, as plain data: the number of its last record, and the checksum that tells it apart."""

    record: int
    checksum: int


@dataclass(frozen=True)
class Volume:
    """Whole episodes that were written in one go.

    Args:
        first: number of the first transition, counted from the first that the archive ever held.
        row: the first row in the arrays.
        nbytes: on disk.
        lengths: (episodes,) int32, steps of each.
        leading: (episodes,) int32, rows of each before its first.
        paddings: (episodes,) int32, by leaf: how first stacks of frames are filled up.
        checksums: (chunks,) uint32, by leaf.
        facts: of episodes, by their place among these; of those that have any.
        directory: where the zarr group is.
    """

    first: int
    row: int
    nbytes: int
    lengths: NDArray[np.int32]
    leading: NDArray[np.int32]
    paddings: dict[tuple[str, ...], NDArray[np.int32]]
    checksums: dict[tuple[str, ...], NDArray[np.uint32]]
    facts: Mapping[str, Mapping[str, Any]]
    directory: Path

    @property
    def steps(self) -> int:
        """Transitions."""
        return int(self.lengths.sum())

    @property
    def end(self) -> int:
        """Number after the last transition."""
        return self.first + self.steps

    @property
    def rows(self) -> int:
        """Rows of the arrays that it has."""
        return int(self.lengths.sum() + self.leading.sum()) + len(self.lengths)

    def described(self) -> str:
        """In words."""
        return f"{len(self.lengths)} episodes, transitions {self.first} to {self.end}"


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

    # What is recorded

    def _read_log(self, until: int | None = None) -> None:
        self.record, self.marks, self._pinned = {"record": 0, "checksum": 0}, [], []
        self.volumes, self._segments, self.next_row = [], [], 0
        older = self._ancestor()
        self.volumes, self.live, self.end = ([], 0, 0) if older is None else (older.volumes, older.live, older.end)
        place = BEGINNING
        for found, end in self._log.read():
            block = found.block
            if until is not None and block.commit > until:
                break
            if self.record["record"] and block.commit != self.record["record"] + 1:
                raise DamageError(
                    f"{self._log.path(end.segment)} begins with record {block.commit}, but the one before it is "
                    f"{self.record['record']}: a file of the log is missing"
                )
            if end.segment not in (segment for segment, _ in self._segments[-1:]):
                self._segments.append((end.segment, block.first))
            self._take(found)
            place = end
        if not self._read_only:
            self._log.cut(place)
        self._forget_what_nobody_needs()
        first = self.volumes[0].first if self.volumes else self.end
        if first > self.live:
            raise DamageError(f"{self._log.path(0).parent}: the log of transitions {self.live} to {first} is missing")

    def _ancestor(self) -> "Archive | None":
        ancestor = self.manifest.ancestor
        if ancestor is None:
            return None
        directory = Path(ancestor.directory)
        manifest = ArchiveManifest.read(directory)
        if manifest is None:
            raise PersistenceError(f"{directory} is gone, which {self.directory} goes on from; put it back")
        older = Archive(directory, manifest, read_only=True)
        older._read_log(ancestor.record)
        if older.record != {"record": ancestor.record, "checksum": ancestor.checksum}:
            raise PersistenceError(
                f"{directory} is not what {self.directory} goes on from: it has record {older.record['record']}, and "
                f"record {ancestor.record} of then is asked for; put back what it was"
            )
        return older

    def _take(self, found: Found) -> None:
        volume = volume_of(found.block, self.directory / GROUP)
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

    def refresh(self) -> None:
        """Take up what another process has recorded since."""
        with damage_told(self.directory):
            self._read_log()

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
        """
        try:
            return read_volume(volume, self._columns)
        except DamageError as damage:
            raise DamageError(
                f"{damage}. storages.persistent.repair({str(volume.directory.parent)!r}) drops these episodes and "
                f"keeps the rest"
            ) from None

    # What is gone

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

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()


def read_volume(volume: Volume, columns: Sequence[Chunks]) -> Recording:
    """The episodes of a volume.

    Raises:
        DamageError: not all of it is what was written; the text names the file and the episodes.
    """
    read = {}
    for column in columns:
        target = np.empty((volume.rows, *column.layout.shape), column.layout.dtype)
        checksums = volume.checksums[column.leaf] if column.layout.count else np.zeros(0, np.uint32)
        for place, checksum in enumerate(checksums.tolist()):
            first, number = place * column.rows, volume.row // column.rows + place
            try:
                column.read(volume.directory, number, checksum, target[first : first + column.rows])
            except DamageError as damage:
                raise DamageError(f"{damage}, which holds a part of {volume.described()}") from None
        read[column.leaf] = target
    count = len(volume.lengths)
    return Recording(
        read,
        volume.lengths.astype(np.int64),
        volume.leading.astype(np.int64),
        volume.paddings,
        tuple(volume.facts.get(str(place), {}) for place in range(count)),
    )


def block_of(number: int, volume: Volume | None, facts: dict[str, Any], end: int) -> Block:
    """A record; where it tells of no volume, ``end`` is the number of the next transition."""
    if volume is None:
        return Block(number, end, end, facts, {})
    arrays = {Name(_LENGTHS): (volume.lengths,), Name(_LEADING): (volume.leading,)}
    arrays |= {Name(_PADDING, leaf): (padding,) for leaf, padding in volume.paddings.items()}
    arrays |= {Name(_CHECKSUMS, leaf): (sums,) for leaf, sums in volume.checksums.items()}  # type: ignore[misc]
    facts = facts | {"row": volume.row, "bytes": volume.nbytes, "facts": volume.facts}
    return Block(number, volume.first, volume.end, facts, arrays)  # type: ignore[arg-type]


def volume_of(block: Block, directory: Path) -> Volume | None:
    """What a record tells; None where it tells of no volume."""
    if Name(_LENGTHS) not in block.arrays:
        return None
    facts = block.facts

    def of_leaves(role: str) -> dict[tuple[str, ...], Any]:
        # Copies, so that the log's memory can go.
        return {name.leaf: pieces[0].copy() for name, pieces in block.arrays.items() if name.role == role}

    return Volume(
        block.first,
        facts["row"],
        facts["bytes"],
        block.arrays[Name(_LENGTHS)][0].copy(),
        block.arrays[Name(_LEADING)][0].copy(),
        of_leaves(_PADDING),
        of_leaves(_CHECKSUMS),
        facts["facts"],
        directory,
    )


def _write(path: Path, data: bytes, durable: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while len(view):
            view = view[os.write(file, view) :]
        if durable:
            os.fdatasync(file)
    finally:
        os.close(file)
