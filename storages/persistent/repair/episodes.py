"""Repair of a directory of episodes: of its segments, and of the write-ahead log of running episodes."""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.ancestors import intact, recorded_by_ancestors
from storages.persistent.episodes.cold_priorities import NAME as ERRORS_NAME
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_manifest import GROUP, WAL_FOLDER, EpisodeManifest
from storages.persistent.episodes.segment import Segment, flaw_of_record, read_segment, segment_of
from storages.persistent.episodes.segment_log import SUFFIX, rewrite_log
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.log.commit_log import CommitLog, is_number
from storages.persistent.log.manifest import manifest_of
from storages.persistent.log.notes import MARKER_NAME, ClosingNote, read_marker, remove_marker, remove_note
from storages.persistent.log.records import Record, StoredRecord
from storages.persistent.replay.recovery import SUFFIX as WAL_SUFFIX
from storages.persistent.replay.recovery import read_ring, recover
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import flaw_of_part, flaw_of_state
from storages.system_calls import sync_directory

_DROPPED = "wal.dropped"


class IntactEpisodes:
    """The intact commits and segments of a directory of episodes.

    Args:
        folder: the directory.
        manifest: its manifest.
        log: the log of its segments.
    """

    def __init__(self, folder: Path, manifest: EpisodeManifest, log: CommitLog) -> None:
        self._folder, self.manifest, self.log = folder, manifest, log
        self.newest: StoredRecord | None = None
        self._commits: list[Record] = []
        self._segments: list[Segment] = []
        self._following = 0
        """Number of the next transition according to the write-ahead log."""
        self._is_of_earlier_version = bool(manifest.ancestors) and not manifest.has_records_of_ancestors
        self._wal_damage: list[str] = []
        self._beginning: IntactBeginning | None = None
        """What of the damaged write-ahead log stays."""
        self._errors_damage: list[str] = []

    @staticmethod
    def are_in(folder: Path) -> bool:
        """Return whether a directory is that of a storage of episodes."""
        return (folder / EpisodeManifest.name).exists() or any(folder.glob(f"*.{SUFFIX}"))

    @property
    def _live(self) -> int:
        return self._commits[-1].facts["needed"] if self._commits else 0

    @property
    def steps(self) -> int:
        """Number of transitions in live segments."""
        return sum(segment.steps for segment in self._segments if segment.end > self._live)

    def take(self) -> list[str]:
        """Read all intact commits and segments; return descriptions of the damaged ones."""
        dropped = []
        for one in self.log.walk(lambda record: flaw_of_record(record, self.manifest)):
            if isinstance(one, str):
                dropped.append(one)
                continue
            self.newest = one[0]
            record = self.newest.record
            self._commits = [record] if record.facts["begins"] else [*self._commits, record]
        dropped += [] if dropped else self._missing_at_the_beginning()
        recorded = [segment_of(record, self._folder / GROUP) for record in self._commits]
        segments = [segment for segment in recorded if segment is not None and segment.end > self._live]
        inherited, flaws = self._inherited([segment for segment in segments if segment.ancestor], bool(dropped))
        self._segments = [*inherited, *self._intact([one for one in segments if not one.ancestor], dropped)]
        return [*dropped, *flaws]

    def _intact(self, segments: list[Segment], dropped: list[str]) -> list[Segment]:
        """Return those of the directory's own segments that are intact, and add descriptions of the others."""
        whole = []
        for segment in segments:
            try:
                read_segment(segment, self.manifest.columns)
                whole.append(segment)
            except DamageError as damage:
                dropped.append(str(damage).partition(". storages.persistent.repair")[0])
        return whole

    def _inherited(self, recorded: list[Segment], is_damaged: bool) -> tuple[list[Segment], list[str]]:
        """Return the intact segments of ancestors, and descriptions of the others.

        Args:
            recorded: those that the log records.
            is_damaged: whether the log is damaged, so that it may have recorded others.
        """
        if not self.manifest.ancestors:
            return [], []
        flaws: list[str] = []
        begins = any(record.facts["begins"] for record in self._commits)
        if is_damaged or (self._is_of_earlier_version and not begins):
            theirs, ancestors, flaws = recorded_by_ancestors(self._folder, self.manifest)
            self.manifest = replace(self.manifest, ancestors=ancestors)
            known = {segment.first for segment in recorded}
            recorded = [*recorded, *(one for one in theirs if one.first not in known and one.end > self._live)]
        whole, lost = intact(self._folder, self.manifest, recorded)
        return whole, flaws + lost

    def _missing_at_the_beginning(self) -> list[str]:
        if not self._commits or self._is_of_earlier_version:
            return []
        begin = (record.first for record in self._commits if segment_of(record, self._folder) is not None)
        first = next(begin, self._commits[-1].steps)
        if first <= self._live:
            return []
        oldest = self.log.files.path(min(self.log.files.numbers()))
        return [f"{oldest} does not go back to transition {self._live}: the log up to {first} is gone"]

    def adopt_sidecars(self, errors: int | None) -> list[str]:
        """Describe damage of the zarr metadata, the write-ahead log, the cold priorities and the rollback marker.

        Args:
            errors: checksum of the file of cold priorities in the closing note; None if unknown.
        """
        if (self._folder / _DROPPED).exists():
            # Left by an interrupted repair.
            shutil.rmtree(self._folder / _DROPPED)
        try:
            if RingManifest.read(self._folder / WAL_FOLDER) is not None:
                _, state, position = read_ring(self._folder / WAL_FOLDER)
                if state is not None and (flaw := flaw_of_state(state)):
                    raise DamageError(f"{self._folder / WAL_FOLDER}: commit {position['commit']} has {flaw}")
                following = 0 if state is None else state.get("unwritten")
                self._following = following if is_number(following) else 0
        except PersistenceError as damage:
            self._beginning = IntactBeginning.of(self._folder / WAL_FOLDER)
            since = "" if self._beginning is None else f"from step {self._beginning.steps} on, "
            said = str(damage).partition(";")[0]
            self._wal_damage = [f"{said}: {since}running episodes, and those that were in no segment yet, are lost"]
        try:
            ColdPriorities.read(self._folder, errors)
        except DamageError as damage:
            self._errors_damage = [str(damage).partition(". storages.persistent.repair")[0]]
        flaws = self.manifest.flaws_of_zarr(self._folder) if self._commits else []
        flaws += self._wal_damage + self._errors_damage
        try:
            # An intact marker stays: the rollback is finished when the directory is opened.
            read_marker(self._folder)
        except DamageError:
            flaws.append(f"{self._folder / MARKER_NAME} is damaged: the target of an unfinished rollback is lost")
        return flaws

    def drop_sidecars(self) -> None:
        """Delete damaged cold priorities."""
        if self._errors_damage:
            (self._folder / ERRORS_NAME).unlink(missing_ok=True)
            sync_directory(self._folder)

    def write(self, lost: bool, missing: bool, closed: ClosingNote | None) -> None:
        """Rewrite the log with the intact segments, and delete everything else.

        Args:
            lost: whether commits or segments are damaged.
            missing: whether commits of the closing note are missing.
            closed: the closing note, if there is an intact one.
        """
        if lost or missing or self._wal_damage:
            self._write_log(closed)
        if self._beginning is not None:
            self._beginning.truncate_log()
        elif self._wal_damage:
            # Renamed first, which is atomic: some of its files alone may look like a valid log.
            (self._folder / WAL_FOLDER).rename(self._folder / _DROPPED)
            sync_directory(self._folder)
            shutil.rmtree(self._folder / _DROPPED)
        remove_marker(self._folder, durable=True)
        archive = SegmentStore(self._folder, self.manifest, durable=True)
        archive.delete_uncommitted()
        archive.close()

    def _write_log(self, closed: ClosingNote | None) -> None:
        commits = self._commits
        # Log files may have been swapped.
        segments = sorted(self._segments, key=lambda segment: segment.first)
        last = 0 if closed is None else closed.commit
        number = max([last, *(record.commit for record in commits), *self.log.files.numbers()]) + 1
        # New transitions are numbered after all that there were, also where the commits that counted them are lost.
        ends = [self._following, *(segment.end for segment in segments), *(record.steps for record in commits[-1:])]
        end = max(*ends, 0 if closed is None else closed.steps)
        live = max(self._live, segments[0].first if segments else end)
        if self._is_of_earlier_version:
            # Without relative paths, so that the log is still read as one of an earlier version until it is replaced.
            ancestors = tuple(one._replace(relative="") for one in self.manifest.ancestors)
            replace(self.manifest, ancestors=ancestors).write(self._folder, durable=True)
        rewrite_log(self._folder, self.manifest, number, segments, live, end, self._watermarks(), self._row_after_all())
        self.manifest.write(self._folder, durable=True)

    def _watermarks(self) -> list[int]:
        """Return the newest watermarks, none of them beyond the steps of the write-ahead log."""
        known: list[int] = self._commits[-1].facts["watermarks"] if self._commits else []
        if not self._wal_damage:
            return known
        return [] if self._beginning is None else [min(each, self._beginning.steps) for each in known]

    def _row_after_all(self) -> int:
        """Return the first row after all chunks, with or without a commit."""
        row = max((int(record.facts["next_row"]) for record in self._commits), default=0)
        for column in self.manifest.columns:
            for number in column.numbers(self._folder / GROUP):
                row = max(row, (number + 1) * column.rows)
        return -(-row // self.manifest.segment_rows) * self.manifest.segment_rows


@dataclass(frozen=True)
class IntactBeginning:
    """The commits of a write-ahead log before its first damage, or up to the last whose state can be restored.

    Steps keep their numbers, to which the watermarks of segments refer. So what follows the damage is dropped, too.
    """

    folder: Path
    manifest: RingManifest
    log: CommitLog
    """The log, read up to the last of them."""

    @property
    def steps(self) -> int:
        """Number of steps up to the last of them."""
        return self.log.steps

    @staticmethod
    def of(folder: Path) -> "IntactBeginning | None":
        """Return the commits of the log in a folder before its first damage; None if there are none."""
        log = CommitLog(folder, WAL_SUFFIX, durable=True)
        try:
            manifest, _ = manifest_of(folder, RingManifest, log)
        except PersistenceError:
            return None
        ring = manifest.ring("repair", log.files.nbytes)
        # It ends with the damage, up to which the log is read then.
        with suppress(DamageError):
            recover(ring, log, _last_usable(folder, ring))
        # Steps that the last commit needs may be in a file that is missing.
        is_usable = log.position["commit"] > 0 and ring.needed >= log.oldest_row
        return IntactBeginning(folder, manifest, log) if is_usable else None

    def truncate_log(self) -> None:
        """Truncate the log after the commits; an interrupted call can be repeated."""
        remove_note(self.folder, durable=True)
        self.log.cut()
        self.log.files.close()
        self.manifest.write(self.folder, durable=True)


def _last_usable(folder: Path, ring: Ring) -> int:
    """Return the number of the last commit before the first damage whose state can be restored; 0 without one."""
    number = 0
    for one in CommitLog(folder, WAL_SUFFIX, durable=True).walk(lambda record: flaw_of_part(record, ring)):
        if isinstance(one, str):
            break
        record = one[0].record
        if flaw_of_state(record.facts["state"]) is None:
            number = record.commit
    return number
