"""Repair of a storage's directory: drop damaged parts, and rewrite the rest where necessary."""

from dataclasses import dataclass
from pathlib import Path

from storages.errors import PersistenceError
from storages.files import refuse_links_in
from storages.persistent.episodes.episode_manifest import WAL_FOLDER, EpisodeManifest
from storages.persistent.episodes.segment_log import segments_log
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.lock import Lock
from storages.persistent.log.manifest import manifest_of
from storages.persistent.log.notes import ClosingNote, remove_note
from storages.persistent.repair.episodes import IntactEpisodes
from storages.persistent.repair.replay import IntactRows
from storages.persistent.replay.recovery import SUFFIX
from storages.persistent.replay.ring_manifest import RingManifest


@dataclass(frozen=True)
class Repair:
    """Result of a repair.

    Args:
        dropped: descriptions of what was damaged or missing, with the files and steps; empty if nothing was.
        steps: steps that the storage holds now; of a directory of episodes, live transitions in segments.
    """

    dropped: tuple[str, ...]
    steps: int

    def __str__(self) -> str:
        if not self.dropped:
            return f"nothing is damaged; {self.steps} steps are there"
        return "\n".join((*self.dropped, f"all of this was dropped; {self.steps} steps are there"))


def repair(directory: str | Path) -> Repair:
    """Drop the damaged parts of a storage's directory, keep the rest, and report what was dropped.

    No transition and no sequence spans the gap that a dropped part leaves. Where changed priorities or
    recurrent states are lost, the earlier ones are kept. Counters and the state of the random generator are those of
    the newest intact commit. Pinned commits, to which checkpoints refer, are lost if anything but the end of the newest
    log file had to be dropped.

    In a directory of episodes, damaged segments are dropped, and of the write-ahead log, a folder in it, what follows
    the first damage. Segments that it has from its ancestors are dropped where they are lost or damaged there; the
    ancestors are not changed.

    An interrupted repair can be repeated.

    Raises:
        PersistenceError: the directory is in use, or holds no storage of a known format, and nothing was changed; or it
            cannot be read or written.
    """
    folder = Path(directory).absolute()
    if folder.name == WAL_FOLDER and IntactEpisodes.are_in(folder.parent):
        # The watermarks of the segments refer to its steps, so both are repaired together.
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


def _repaired(folder: Path, left: IntactRows | IntactEpisodes) -> list[str]:
    lost = left.take()
    if left.newest is not None:
        left.log.position = {"commit": left.newest.record.commit, "checksum": left.newest.checksum}
        left.log.steps = left.newest.record.steps
    closed, flaws_of_note = _note(folder)
    missing = None if closed is None else closed.missing(folder, left.log)
    if closed is not None and lost and (left.log.position["commit"] >= closed.commit or not closed.shorter(folder)):
        # ``lost`` describes it already.
        missing = None
    as_closed = closed is not None and closed.position == left.log.position
    beside = left.adopt_sidecars(closed.errors if closed is not None and as_closed else None)
    dropped = [*lost, *([missing] if missing else []), *flaws_of_note, *beside]
    if dropped:
        left.drop_sidecars()
        remove_note(folder, durable=True)
        left.write(bool(lost), missing is not None, closed)
    return dropped


def _note(folder: Path) -> tuple[ClosingNote | None, list[str]]:
    try:
        return ClosingNote.read(folder), []
    except PersistenceError as error:
        return None, [str(error).partition(";")[0]]


def _opened(folder: Path) -> tuple[IntactRows | IntactEpisodes, list[str]]:
    if IntactEpisodes.are_in(folder):
        log = segments_log(folder, durable=True)
        of_episodes, damage = manifest_of(folder, EpisodeManifest, log)
        return IntactEpisodes(folder, of_episodes, log), damage
    log = CommitLog(folder, SUFFIX, durable=True)
    of_ring, damage = manifest_of(folder, RingManifest, log)
    return IntactRows(folder, of_ring, log), damage
