r"""On disk: what a storage was told stays, whatever becomes of the process.

Every storage of replay takes ``directory=``. What is inserted into it is committed there by a thread of its own, two
thirds of ``commit_every`` steps at a time, while the ring that batches are made of stays in memory. The same storage
made with the same directory again is what it was at the last commit: content, order, priorities, counters and random
generator, so that the next batch is the same batch. What is promised:

- A commit is there as a whole or not at all. A process may be killed at any instant: what was committed is there, what
  was half written is never read, and at most ``commit_every`` steps are missing. An insertion waits rather than break
  this, which it has to only where the disk does not keep up.
- Everything written carries a checksum. What is not what was written is found when it is read, and never taken for
  data: the storage is not made, and a :class:`DamageError` names the file and the steps. :func:`repair` drops what is
  damaged, keeps the rest, and says what it dropped.
- With ``durable=True`` all this holds after a power cut, too.
- What cannot be written (the disk is full, the directory was deleted) is said by a :class:`PersistenceError` of the
  next insertion; what is in memory stays usable, and what failed is tried again.
- One storage writes to a directory at a time. Nothing in it can run code: it is JSON and the bytes of arrays.

On disk, a directory takes as much room as what is live, files of 64 MiB that are not full yet, and what the last two
checkpoints refer to: ``state_dict`` is then small, and says the position that ``load_state_dict`` takes the directory
back to. :func:`read_state` looks into a directory from outside.

:class:`storages.off_policy.persistent_episodic_buffer.PersistentEpisodicBuffer` keeps whole episodes under the same
promises, as arrays of a zarr group, and need not have all of them in memory. Steps are journalled as they come;
episodes that have ended are put together to volumes, which are written to the arrays by a thread and recorded with the
checksums of all their chunks. Several processes may read what one writes, and a directory may go on from what another
one holds.

Data sets go in and out as episodes (:class:`storages.episode.Episode`): see :mod:`storages.datasets`.
"""

from storages.errors import DamageError, PersistenceError
from storages.persistent.repair.repair_replay import Repair, repair
from storages.persistent.replay.reading import read_state
from storages.persistent.replay.write_ahead_log import Position

__all__ = [
    "DamageError",
    "PersistenceError",
    "Position",
    "Repair",
    "read_state",
    "repair",
]
