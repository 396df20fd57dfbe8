"""The intact beginning of the write-ahead log of a directory of episodes."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from storages.core.ring.ring import Ring
from storages.errors import DamageError, PersistenceError
from storages.persistent.log.commit_log import CommitLog
from storages.persistent.log.notes import remove_note
from storages.persistent.repair.manifest import manifest_of
from storages.persistent.replay.recovery import SUFFIX, recover
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import flaw_of_part, flaw_of_state


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
        log = CommitLog(folder, SUFFIX, durable=True)
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

    def drop_the_rest(self) -> None:
        """Truncate the log after the commits; an interrupted call can be repeated."""
        remove_note(self.folder, durable=True)
        self.log.cut()
        self.log.files.close()
        self.manifest.write(self.folder, durable=True)


def _last_usable(folder: Path, ring: Ring) -> int:
    """Return the number of the last commit before the first damage whose state can be restored; 0 without one."""
    number = 0
    for one in CommitLog(folder, SUFFIX, durable=True).walk(lambda record: flaw_of_part(record, ring)):
        if isinstance(one, str):
            break
        record = one[0].record
        if flaw_of_state(record.facts["state"]) is None:
            number = record.commit
    return number
