"""Persistent storages: write-ahead logs, segments on disk, recovery and repair.

Every replay storage takes ``directory=``. A *write-ahead log* then observes its ring buffer: every
``commit_every * 2 / 3`` steps it appends a *record* with the new steps, their priorities, counters and the state of the
random generator, which is one commit. The ring stays in memory, and batches are sampled from it. *Recovery* replays the
log into an empty ring: a storage made again with the same directory has the state of the last commit, and samples the
same next batch. Recurrent states that updates have replaced are those of the last commit that was asked for, by a
checkpoint, ``flush()`` or ``close()``. Log files are deleted once neither the ring nor a *pinned* commit, to which a
checkpoint refers, needs them.

:class:`storages.off_policy.persistent_episodic_buffer.PersistentEpisodicBuffer` stores whole episodes, more than fit
into memory, like a log-structured merge tree without compaction. The steps of unfinished episodes are in a *memtable*,
which has its own write-ahead log. Finished episodes wait in the *flush queue*, and are written as immutable, compressed
*segments* of a zarr group; a second log records each segment with the checksums of its chunks. A *segment cache* holds
in memory the episodes from which batches are sampled, *cold priorities* hold the errors of all other transitions, and
the *live range* says which episodes are still stored. A *rollback marker* makes the rollback of both logs atomic.

Both logs are of the same class, :class:`storages.persistent.log.commit_log.CommitLog`: each record is a commit with the
checksum of the previous one. Recovery, repair, positions, pins, the deletion of log files and the closing note
(``closed.json``) are therefore the same for both; only the content of a commit differs. One process may write to a
directory while others read it, and a directory may continue another one, its ancestor.

Guarantees:

- Commits are atomic. A process may be killed at any time, and loses at most ``commit_every`` steps. An insertion blocks
  if the disk does not keep up.
- Everything has a checksum. Damage is detected when it is read: the storage is not made, and a :class:`DamageError`
  names the file and the steps. :func:`repair` drops damaged parts, keeps the rest, and reports what it dropped.
- With ``durable=True`` this also holds after a power cut (fsync).
- A failed write (the disk is full, the directory was deleted) raises a :class:`PersistenceError` at the next insertion;
  the storage in memory stays usable, and the write is retried.
- Only one storage writes to a directory at a time (a file lock). Files hold JSON and the bytes of arrays; reading them
  cannot run code.
- A directory of another format version is refused, with an error that names the version.

:func:`read_state` reads a directory without making its storage. Data sets are read and written as episodes: see
:mod:`storages.datasets`.
"""

from storages.errors import DamageError, PersistenceError
from storages.persistent.log.commit_log import Position
from storages.persistent.repair.directory import Repair, repair
from storages.persistent.replay.recovery import read_state

__all__ = [
    "DamageError",
    "PersistenceError",
    "Position",
    "Repair",
    "read_state",
    "repair",
]
