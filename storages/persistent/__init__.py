"""Durability: storages that survive the end of their process.

Every storage of replay takes ``directory=``. A *write-ahead log* then observes its ring: every ``commit_every * 2 / 3``
steps it appends a *record* of the new steps, their priorities, counters and the state of the random generator, and
makes that a commit. The ring stays in memory, and batches are made of it. *Recovery* replays the log into an empty
ring, so that a storage made again with the same directory is what it was at the last commit, and its next batch is the
same batch. Log files are deleted once neither the ring nor a *pinned* commit, to which a checkpoint refers, needs them.

:class:`storages.off_policy.persistent_episodic_buffer.PersistentEpisodicBuffer` keeps whole episodes, more than memory
holds, as a log-structured merge tree without compaction does. Steps of unfinished episodes are in a *memtable*, which
has another write-ahead log. Finished episodes wait in the *flush queue*, and are written as immutable, compressed
*segments* of a zarr group; a log of commits records each segment with the checksums of its chunks. A *segment cache*
holds in memory what batches are drawn from, *cold priorities* the errors of all other transitions, and the *live range*
says which episodes count. A *rollback marker* makes a rollback of both logs one operation.

Steps and segments are kept in the same kind of log, :class:`storages.persistent.log.commit_log.CommitLog`: each record
is a commit that names the one before it. So recovery, repair, positions, pins, the deletion of files and the note of a
closed directory (``closed.json``) are the same for both; what differs is only what a commit holds. Several processes
may read what one writes, and a directory may go on from another one, its ancestor.

What is promised:

- A commit is there as a whole or not at all. A process may be killed at any instant; at most ``commit_every`` steps are
  missing then. An insertion waits where the disk does not keep up.
- Everything carries a checksum. Damage is found when it is read: the storage is not made, and a :class:`DamageError`
  names the file and the steps. :func:`repair` drops what is damaged, keeps the rest, and says what it dropped.
- With ``durable=True`` this holds after a power cut, too.
- A write that fails (the disk is full, the directory was deleted) is a :class:`PersistenceError` of the next insertion;
  memory stays usable, and the write is tried again.
- One storage writes to a directory at a time. Nothing in it can run code: it is JSON and the bytes of arrays.
- A directory of another format version is refused by name.

:func:`read_state` reads a directory from outside. Data sets are read and written as episodes: see
:mod:`storages.datasets`.
"""

from storages.errors import DamageError, PersistenceError
from storages.persistent.log.commit_log import Position
from storages.persistent.repair.repair_directory import Repair, repair
from storages.persistent.replay.recovery import read_state

__all__ = [
    "DamageError",
    "PersistenceError",
    "Position",
    "Repair",
    "read_state",
    "repair",
]
