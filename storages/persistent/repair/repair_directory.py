"""Repair of a directory: what is damaged is dropped, and the rest is written anew where it has to be."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.episode_manifest import WAL_FOLDER, EpisodeManifest
from storages.persistent.episodes.segment_store import segments_log
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.files import refuse_links_in
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.lock import Lock
from storages.persistent.log.manifest import Manifest
from storages.persistent.log.notes import ClosingNote, remove_note
from storages.persistent.repair.repair_episodes import EpisodesLeft
from storages.persistent.repair.repair_replay import RowsLeft
from storages.persistent.replay.recovery import SUFFIX
from storages.persistent.replay.ring_manifest import RingManifest

_AnyManifest = TypeVar("_AnyManifest", bound=Manifest)


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

    Of a directory of whole episodes, those segments of episodes are dropped that are damaged. Its write-ahead log, a
    directory in it, is repaired with it.

    One that is interrupted can be done again, and does the rest.

    Raises:
        PersistenceError: the directory is in use, or holds no storage of a format that is known, and nothing was
            changed; or it cannot be read or written.
    """
    folder = Path(directory).absolute()
    if folder.name == WAL_FOLDER and EpisodesLeft.are_in(folder.parent):
        # Its steps are counted by the segments, too.
        folder = folder.parent
    if not folder.is_dir():
        raise PersistenceError(f"{folder} is no directory")
    try:
        refuse_links_in(folder)
        with name_damage(folder):
            left, dropped = _opened(folder)
            lock = Lock(folder)
            try:
                dropped += _repaired(folder, left)
                if dropped:
                    left.manifest.write(folder, durable=True)
            finally:
                lock.release()
            return Repair(tuple(dropped), left.steps)
    except OSError as error:
        raise PersistenceError(
            f"{folder} cannot be read or written: {error}; not all that is damaged was dropped, repair it again"
        ) from error


def _repaired(folder: Path, left: RowsLeft | EpisodesLeft) -> list[str]:
    lost = left.take()
    if left.newest is not None:
        left.log.position = {"commit": left.newest.record.commit, "checksum": left.newest.checksum}
        left.log.steps = left.newest.record.steps
    closed, flaws_of_note = _note(folder)
    missing = None if closed is None else closed.missing(folder, left.log)
    if closed is not None and lost and (left.log.position["commit"] >= closed.commit or not closed.shorter(folder)):
        # It is described already.
        missing = None
    as_closed = closed is not None and closed.position == left.log.position
    beside = left.take_beside(closed.errors if closed is not None and as_closed else None)
    dropped = [*lost, *([missing] if missing else []), *flaws_of_note, *beside]
    if dropped:
        left.drop_beside()
        remove_note(folder, durable=True)
        left.write(bool(lost), missing is not None, 0 if closed is None else closed.commit)
    return dropped


def _note(folder: Path) -> tuple[ClosingNote | None, list[str]]:
    try:
        return ClosingNote.read(folder), []
    except PersistenceError as error:
        return None, [str(error).partition(";")[0]]


def _opened(folder: Path) -> tuple[RowsLeft | EpisodesLeft, list[str]]:
    if EpisodesLeft.are_in(folder):
        log = segments_log(folder, durable=True)
        of_episodes, damage = _manifest(folder, EpisodeManifest, log)
        return EpisodesLeft(folder, of_episodes, log), damage
    log = CommitLog(folder, SUFFIX, durable=True)
    of_ring, damage = _manifest(folder, RingManifest, log)
    return RowsLeft(folder, of_ring, log), damage


def _manifest(folder: Path, kind: type[_AnyManifest], log: CommitLog) -> tuple[_AnyManifest, list[str]]:
    try:
        manifest = kind.read(folder)
        if manifest is not None:
            return manifest, []
        error = PersistenceError(f"{folder} holds no storage")
    except PersistenceError as refused:
        error = refused
    # Every file of the log says it again.
    for one in log.files.walk():
        if not isinstance(one, str) and "manifest" in one[0].record.facts:
            return kind.from_facts(one[0].record.facts["manifest"]), [str(error).partition(";")[0]]
    if isinstance(error, DamageError):
        raise PersistenceError(f"{error}, but no file of the log is whole to make it of; nothing was changed") from None
    raise error
