"""Repair of a directory of episodes."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.cold_priorities import NAME as ERRORS_NAME
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_manifest import GROUP, NAME, EpisodeManifest
from storages.persistent.episodes.markers import NAME as NOTE_NAME
from storages.persistent.episodes.markers import ClosedState, closed_state_of, read_marker, remove_marker
from storages.persistent.episodes.segment import (
    ManifestPosition,
    Segment,
    flaw_of,
    read_segment,
    record_of,
    segment_of,
)
from storages.persistent.episodes.segment_store import SUFFIX, SegmentStore
from storages.persistent.log.closing_note import refuse_missing
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.lock import Lock
from storages.persistent.log.log_files import LogFiles
from storages.persistent.log.records import CorruptRange, Record, StoredRecord
from storages.persistent.log.system_calls import sync_directory
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.recovery import recover
from storages.persistent.replay.write_ahead_log import ERRORS_SUFFIX, STEPS_SUFFIX

_WAL = "wal"
_REPAIRED = "repaired"
_DROPPED = "wal.dropped"


def holds_episodes(folder: Path) -> bool:
    """Whether a directory holds whole episodes."""
    return (folder / NAME).exists() or any(folder.glob(f"*.{SUFFIX}"))


def repair_episodes(folder: Path) -> tuple[list[str], int]:
    """Drop what is damaged; return its description, and how many transitions are on disk now.

    Raises:
        PersistenceError: the directory is in use, or nothing says any more what it held; nothing was changed.
    """
    lock = Lock(folder)
    try:
        with name_damage(folder):
            return _repaired(folder)
    finally:
        lock.release()


def _repaired(folder: Path) -> tuple[list[str], int]:
    if (folder / _DROPPED).exists():
        # Of a repair that was interrupted.
        shutil.rmtree(folder / _DROPPED)
    log = LogFiles(folder, SUFFIX, durable=True)
    manifest, dropped = _manifest(folder, log)
    entries, flaws, last = _entries(log)
    flaws += [] if flaws else _missing_at_the_beginning(folder, manifest, log, entries)
    dropped += flaws
    segments, lost = _whole_segments(folder, manifest, entries)
    flaws_of_zarr = manifest.flaws_of_zarr(folder) if entries else []
    wal_damage, closed = _wal(folder / _WAL)
    behind = _missing_at_the_end(folder, last, closed)
    as_closed = closed is not None and last == closed["archive"]
    errors = _flaws_of_errors(folder, closed["errors"] if closed is not None and as_closed else None)
    dropped += lost + flaws_of_zarr + wal_damage + behind + errors + _unfinished_going_back(folder)
    if dropped:
        manifest.write(folder, durable=True)
        if errors:
            # First, as after another record they are not those that the directory was closed with.
            (folder / ERRORS_NAME).unlink(missing_ok=True)
            sync_directory(folder)
        if flaws or lost or wal_damage or behind or errors:
            # After another record, what it was closed with does not count any more.
            number = closed["archive"]["record"] if closed is not None else 0
            _write_log(folder, manifest, log, entries, segments, number, with_wal=not wal_damage)
        if wal_damage:
            # In one instant, as some of its files may look like the whole of it.
            (folder / _WAL).rename(folder / _DROPPED)
            sync_directory(folder)
            shutil.rmtree(folder / _DROPPED)
        remove_marker(folder, durable=True)
        archive = SegmentStore(folder, manifest, durable=True)
        archive.tidy()
        archive.close()
    live = entries[-1].facts["live"] if entries else 0
    return dropped, sum(segment.steps for segment in segments if segment.end > live)


def _unfinished_going_back(folder: Path) -> list[str]:
    """A note that is damaged; of a whole one the next to open the directory does the rest, where it still can."""
    try:
        read_marker(folder)
    except DamageError:
        return [f"{folder / NOTE_NAME} is damaged: where the directory was going back to"]
    return []


def _manifest(folder: Path, log: LogFiles) -> tuple[EpisodeManifest, list[str]]:
    try:
        manifest = EpisodeManifest.read(folder)
        said = f"{folder / NAME} is gone"
    except DamageError:
        manifest, said = None, f"{folder / NAME} is damaged"
    if manifest is not None:
        return manifest, []
    # Every file of the log says it again.
    for _, found in log.everything():
        if isinstance(found, StoredRecord) and "archive" in found.record.facts:
            return EpisodeManifest.from_facts(found.record.facts["archive"]), [said]
    raise PersistenceError(f"{said}, and there is no record that says what it held; nothing was changed")


def _entries(log: LogFiles) -> tuple[list[Record], list[str], ManifestPosition]:
    """Return the records of a log, descriptions of its damage, and its end."""
    last: ManifestPosition = {"record": 0, "checksum": 0}
    entries: list[Record] = []
    flaws: list[str] = []
    for log_file, found in log.everything():
        if isinstance(found, CorruptRange):
            flaws.append(
                log.describe(log_file, found, entries[-1].steps if entries else 0).replace("steps", "transitions")
            )
            continue
        entry = found.record
        if "live" not in entry.facts:
            flaws.append(f"{log.path(log_file)} holds no records: another file has taken its place")
            continue
        if entries and entry.commit != entries[-1].commit + 1 and not flaws:
            flaws.append(f"{log.path(log_file)} does not follow: a file with records before it is gone")
        if entry.facts["begins"]:
            entries = []
        entries.append(entry)
        last = {"record": entry.commit, "checksum": found.checksum}
    return entries, flaws, last


def _whole_segments(
    folder: Path, manifest: EpisodeManifest, entries: Sequence[Record]
) -> tuple[list[Segment], list[str]]:
    live = entries[-1].facts["live"] if entries else 0
    segments, lost = [], []
    for entry in entries:
        segment = segment_of(entry, folder / GROUP)
        if segment is None or segment.end <= live:
            continue
        if flaw := flaw_of(segment, manifest):
            lost.append(f"{folder}: record {entry.commit} tells of {flaw}")
            continue
        try:
            read_segment(segment, manifest.columns)
            segments.append(segment)
        except DamageError as damage:
            lost.append(str(damage).partition(". storages.persistent.repair")[0])
    return segments, lost


def _wal(folder: Path) -> tuple[list[str], ClosedState | None]:
    """Describe damage of the write-ahead log; return the closing state of its last commit, too."""
    closed = None
    if not folder.exists():
        return [], closed
    try:
        manifest = Manifest.read(folder)
        before, checksum, steps = 0, 0, 0
        for found, _ in LogFiles(folder, STEPS_SUFFIX, durable=True).read():
            if "state" not in found.record.facts:
                raise DamageError(f"{folder} holds another file in place of one with steps")
            if before and found.record.commit != before + 1:
                raise DamageError(f"{folder}: a file of steps is missing")
            before, closed = found.record.commit, closed_state_of(found.record.facts["state"])
            checksum, steps = found.checksum, found.record.steps
        refuse_missing(folder, before, checksum, steps)
        if before and manifest is not None:
            _refuse_crafted(folder, manifest)
    except PersistenceError as damage:
        said = f"{str(damage).partition(';')[0]}: episodes that ran, and those that were in no segment yet, are gone"
        return [said], closed
    return [], closed


def _refuse_crafted(folder: Path, manifest: Manifest) -> None:
    steps, errors = (LogFiles(folder, suffix, durable=True) for suffix in (STEPS_SUFFIX, ERRORS_SUFFIX))
    recover(manifest.ring(folder.name, steps.nbytes), steps, errors)


def _missing_at_the_beginning(
    folder: Path, manifest: EpisodeManifest, log: LogFiles, entries: Sequence[Record]
) -> list[str]:
    if not entries or manifest.ancestor is not None:
        return []
    live: int = entries[-1].facts["live"]
    first = next((entry.first for entry in entries if segment_of(entry, folder) is not None), entries[-1].steps)
    if first <= live:
        return []
    oldest = log.path(min(log.numbers()))
    return [f"{oldest} does not go back to transition {live}: the log up to {first} is gone"]


def _missing_at_the_end(folder: Path, last: ManifestPosition, closed: ClosedState | None) -> list[str]:
    if closed is None or last["record"] > closed["archive"]["record"] or last == closed["archive"]:
        return []
    return [f"{folder / closed['file']}: records up to {closed['archive']['record']} are gone"]


def _flaws_of_errors(folder: Path, checksum: int | None) -> list[str]:
    try:
        ColdPriorities.read(folder, checksum)
    except DamageError as damage:
        return [str(damage).partition(". storages.persistent.repair")[0]]
    return []


def _write_log(
    folder: Path,
    manifest: EpisodeManifest,
    log: LogFiles,
    entries: Sequence[Record],
    segments: Sequence[Segment],
    number: int,
    with_wal: bool,
) -> None:
    """Replace the log atomically by one of the records that are left, the first after record ``number``."""
    number = max([number, *(entry.commit for entry in entries), *log.numbers()]) + 1
    end = entries[-1].steps if entries else 0
    live = max(entries[-1].facts["live"] if entries else 0, segments[0].first if segments else end)
    facts = {
        "live": live,
        "watermarks": entries[-1].facts["watermarks"] if entries and with_wal else [],
        "pinned": [],
        "next_row": _row_after_all(folder, manifest, entries),
    }
    repaired = LogFiles(folder, _REPAIRED, durable=True)
    repaired.delete_before(number + 1)
    recorded: Sequence[Segment | None] = segments or [None]
    for place, segment in enumerate(recorded):
        begins = {"archive": manifest.facts()} if place == 0 else {}
        entry = record_of(number + place, segment, {**facts, "begins": place == 0, **begins}, end)
        repaired.append(replace(entry, steps=end if place == len(recorded) - 1 else entry.steps), new_file=place == 0)
    repaired.close()
    repaired.path(number).replace(log.path(number))
    log.delete_before(number)


def _row_after_all(folder: Path, manifest: EpisodeManifest, entries: Sequence[Record]) -> int:
    """A row that no chunk reaches, whether it is recorded or not."""
    row = max((int(entry.facts["next_row"]) for entry in entries), default=0)
    for column in manifest.columns:
        for path in column.directory(folder / GROUP).glob("c.*"):
            number = path.name.split(".")[1]
            row = max(row, (int(number) + 1) * column.rows if number.isdecimal() else 0)
    return -(-row // manifest.segment_rows) * manifest.segment_rows
