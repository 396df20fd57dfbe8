"""Dropping what is damaged in a directory of whole episodes, and keeping the rest."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.archive import SUFFIX, Archive
from storages.persistent.episodes.archive_manifest import GROUP, NAME, ArchiveManifest
from storages.persistent.episodes.closed_directory import Closed, closed_of
from storages.persistent.episodes.cold_priorities import NAME as ERRORS_NAME
from storages.persistent.episodes.cold_priorities import KnownErrors
from storages.persistent.episodes.rollback_marker import NAME as NOTE_NAME
from storages.persistent.episodes.rollback_marker import read_note, remove_note
from storages.persistent.episodes.volume import Record, Volume, block_of, flaw_of, read_volume, volume_of
from storages.persistent.log.closing_note import refuse_missing
from storages.persistent.log.json_file import damage_told
from storages.persistent.log.lock import Lock
from storages.persistent.log.log_segments import Segments
from storages.persistent.log.records import Block, Flaw, Found
from storages.persistent.log.system_calls import sync_directory
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.recovery import recover
from storages.persistent.replay.write_ahead_log import ERRORS_SUFFIX, STEPS_SUFFIX

_RUNNING = "running"
_REPAIRED = "repaired"
_DROPPED = "running.dropped"


def is_archive(folder: Path) -> bool:
    """Whether a directory holds whole episodes."""
    return (folder / NAME).exists() or any(folder.glob(f"*.{SUFFIX}"))


def repair_archive(folder: Path) -> tuple[list[str], int]:
    """Drop what is damaged; returns what was, in words, and how many transitions there are on disk now.

    Raises:
        PersistenceError: the directory is in use, or nothing says any more what it held; nothing was changed.
    """
    lock = Lock(folder)
    try:
        with damage_told(folder):
            return _repaired(folder)
    finally:
        lock.release()


def _repaired(folder: Path) -> tuple[list[str], int]:
    if (folder / _DROPPED).exists():
        # Of a repair that was interrupted.
        shutil.rmtree(folder / _DROPPED)
    log = Segments(folder, SUFFIX, durable=True)
    manifest, dropped = _manifest(folder, log)
    blocks, flaws, last = _blocks(log)
    flaws += [] if flaws else _missing_at_the_beginning(folder, manifest, log, blocks)
    dropped += flaws
    volumes, lost = _whole_volumes(folder, manifest, blocks)
    flaws_of_zarr = manifest.flaws_of_zarr(folder) if blocks else []
    journal, closed = _journal(folder / _RUNNING)
    behind = _missing_at_the_end(folder, last, closed)
    as_closed = closed is not None and last == closed["archive"]
    errors = _flaws_of_errors(folder, closed["errors"] if closed is not None and as_closed else None)
    dropped += lost + flaws_of_zarr + journal + behind + errors + _unfinished_going_back(folder)
    if dropped:
        manifest.write(folder, durable=True)
        if errors:
            # First, as after another record they are not those that the directory was closed with.
            (folder / ERRORS_NAME).unlink(missing_ok=True)
            sync_directory(folder)
        if flaws or lost or journal or behind or errors:
            # After another record, what it was closed with does not count any more.
            number = closed["archive"]["record"] if closed is not None else 0
            _write_log(folder, manifest, log, blocks, volumes, number, with_journal=not journal)
        if journal:
            # In one instant, as some of its files may look like the whole of it.
            (folder / _RUNNING).rename(folder / _DROPPED)
            sync_directory(folder)
            shutil.rmtree(folder / _DROPPED)
        remove_note(folder, durable=True)
        archive = Archive(folder, manifest, durable=True)
        archive.tidy()
        archive.close()
    live = blocks[-1].facts["live"] if blocks else 0
    return dropped, sum(volume.steps for volume in volumes if volume.end > live)


def _unfinished_going_back(folder: Path) -> list[str]:
    """A note that is damaged; of a whole one the next to open the directory does the rest, where it still can."""
    try:
        read_note(folder)
    except DamageError:
        return [f"{folder / NOTE_NAME} is damaged: where the directory was going back to"]
    return []


def _manifest(folder: Path, log: Segments) -> tuple[ArchiveManifest, list[str]]:
    try:
        manifest = ArchiveManifest.read(folder)
        said = f"{folder / NAME} is gone"
    except DamageError:
        manifest, said = None, f"{folder / NAME} is damaged"
    if manifest is not None:
        return manifest, []
    # Every file of the log says it again.
    for _, found in log.everything():
        if isinstance(found, Found) and "archive" in found.block.facts:
            return ArchiveManifest.from_facts(found.block.facts["archive"]), [said]
    raise PersistenceError(f"{said}, and there is no record that says what it held; nothing was changed")


def _blocks(log: Segments) -> tuple[list[Block], list[str], Record]:
    """The records of a log, what is damaged in it, in words, and where it ends."""
    last: Record = {"record": 0, "checksum": 0}
    blocks: list[Block] = []
    flaws: list[str] = []
    for segment, found in log.everything():
        if isinstance(found, Flaw):
            flaws.append(log.told(segment, found, blocks[-1].steps if blocks else 0).replace("steps", "transitions"))
            continue
        block = found.block
        if "live" not in block.facts:
            flaws.append(f"{log.path(segment)} holds no records: another file has taken its place")
            continue
        if blocks and block.commit != blocks[-1].commit + 1 and not flaws:
            flaws.append(f"{log.path(segment)} does not follow: a file with records before it is gone")
        if block.facts["begins"]:
            blocks = []
        blocks.append(block)
        last = {"record": block.commit, "checksum": found.checksum}
    return blocks, flaws, last


def _whole_volumes(folder: Path, manifest: ArchiveManifest, blocks: Sequence[Block]) -> tuple[list[Volume], list[str]]:
    live = blocks[-1].facts["live"] if blocks else 0
    volumes, lost = [], []
    for block in blocks:
        volume = volume_of(block, folder / GROUP)
        if volume is None or volume.end <= live:
            continue
        if flaw := flaw_of(volume, manifest):
            lost.append(f"{folder}: record {block.commit} tells of {flaw}")
            continue
        try:
            read_volume(volume, manifest.columns)
            volumes.append(volume)
        except DamageError as damage:
            lost.append(str(damage).partition(". storages.persistent.repair")[0])
    return volumes, lost


def _journal(folder: Path) -> tuple[list[str], Closed | None]:
    """What is wrong with the journal, in words, and what its last commit says that the directory was closed with."""
    closed = None
    if not folder.exists():
        return [], closed
    try:
        manifest = Manifest.read(folder)
        before, checksum, steps = 0, 0, 0
        for found, _ in Segments(folder, STEPS_SUFFIX, durable=True).read():
            if "state" not in found.block.facts:
                raise DamageError(f"{folder} holds another file in place of one with steps")
            if before and found.block.commit != before + 1:
                raise DamageError(f"{folder}: a file of steps is missing")
            before, closed = found.block.commit, closed_of(found.block.facts["state"])
            checksum, steps = found.checksum, found.block.steps
        refuse_missing(folder, before, checksum, steps)
        if before and manifest is not None:
            _refuse_crafted(folder, manifest)
    except PersistenceError as damage:
        said = f"{str(damage).partition(';')[0]}: episodes that ran, and those that were in no volume yet, are gone"
        return [said], closed
    return [], closed


def _refuse_crafted(folder: Path, manifest: Manifest) -> None:
    steps, errors = (Segments(folder, suffix, durable=True) for suffix in (STEPS_SUFFIX, ERRORS_SUFFIX))
    recover(manifest.ring(folder.name, steps.nbytes), steps, errors)


def _missing_at_the_beginning(
    folder: Path, manifest: ArchiveManifest, log: Segments, blocks: Sequence[Block]
) -> list[str]:
    if not blocks or manifest.ancestor is not None:
        return []
    live: int = blocks[-1].facts["live"]
    first = next((block.first for block in blocks if volume_of(block, folder) is not None), blocks[-1].steps)
    if first <= live:
        return []
    oldest = log.path(min(log.numbers()))
    return [f"{oldest} does not go back to transition {live}: the log up to {first} is gone"]


def _missing_at_the_end(folder: Path, last: Record, closed: Closed | None) -> list[str]:
    if closed is None or last["record"] > closed["archive"]["record"] or last == closed["archive"]:
        return []
    return [f"{folder / closed['file']}: records up to {closed['archive']['record']} are gone"]


def _flaws_of_errors(folder: Path, checksum: int | None) -> list[str]:
    try:
        KnownErrors.read(folder, checksum)
    except DamageError as damage:
        return [str(damage).partition(". storages.persistent.repair")[0]]
    return []


def _write_log(
    folder: Path,
    manifest: ArchiveManifest,
    log: Segments,
    blocks: Sequence[Block],
    volumes: Sequence[Volume],
    number: int,
    with_journal: bool,
) -> None:
    """Replace the log atomically by one of the records that are left, the first after record ``number``."""
    number = max([number, *(block.commit for block in blocks), *log.numbers()]) + 1
    end = blocks[-1].steps if blocks else 0
    live = max(blocks[-1].facts["live"] if blocks else 0, volumes[0].first if volumes else end)
    facts = {
        "live": live,
        "marks": blocks[-1].facts["marks"] if blocks and with_journal else [],
        "pinned": [],
        "next_row": _row_after_all(folder, manifest, blocks),
    }
    repaired = Segments(folder, _REPAIRED, durable=True)
    repaired.delete_before(number + 1)
    recorded: Sequence[Volume | None] = volumes or [None]
    for place, volume in enumerate(recorded):
        begins = {"archive": manifest.facts()} if place == 0 else {}
        block = block_of(number + place, volume, {**facts, "begins": place == 0, **begins}, end)
        repaired.append(replace(block, steps=end if place == len(recorded) - 1 else block.steps), anew=place == 0)
    repaired.close()
    repaired.path(number).replace(log.path(number))
    log.delete_before(number)


def _row_after_all(folder: Path, manifest: ArchiveManifest, blocks: Sequence[Block]) -> int:
    """A row that no chunk reaches, whether it is recorded or not."""
    row = max((int(block.facts["next_row"]) for block in blocks), default=0)
    for column in manifest.columns:
        for path in column.directory(folder / GROUP).glob("c.*"):
            number = path.name.split(".")[1]
            row = max(row, (int(number) + 1) * column.rows if number.isdecimal() else 0)
    return -(-row // manifest.volume_rows) * manifest.volume_rows
