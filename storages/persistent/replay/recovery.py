"""Recovery: replay the log of a directory into a ring, up to a commit; also read-only, from another process."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey, RowSpan, fill, spans
from storages.core.ring.state import state_of
from storages.errors import DamageError, PersistenceError
from storages.files import read_beside_a_writer, refuse_links_in
from storages.persistent.log.commit_log import CommitLog, Position
from storages.persistent.log.json_file import name_damage
from storages.persistent.log.notes import refuse_missing
from storages.persistent.log.records import Record
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.replay.snapshot_records import (
    CHANGES,
    NEWER_STATES,
    OFFSETS,
    flaw_of_part,
    part_of,
    replaced_in,
)

SUFFIX = "steps"
"""File name suffix of the write-ahead log."""


def recover(ring: Ring, log: CommitLog, until: int | None = None) -> dict[str, Any] | None:
    """Replay a log into an empty ring whose columns are allocated.

    Args:
        ring: the ring to fill.
        log: the log; its position is then that of the last replayed commit.
        until: number of the last commit to replay; None for all.

    Returns:
        The state of the storage besides the ring; None if there is no commit.

    Raises:
        DamageError: the log is damaged; the text names the file and the steps.
    """
    rows = ErrorRows(ring)
    state: dict[str, Any] | None = None
    available, has_errors, size = 0, False, None
    for record in log.replay(lambda record: flaw_of_part(record, ring), until):
        part = part_of(record)
        if part.begins or state is None:
            available = part.first
        ring.append_span(part)
        replaced = replaced_in(record)
        if len(replaced):
            # As for errors, those of transitions in log files that were deleted since are left out.
            here = replaced >= max(available, part.steps - ring.rows + 1) * ring.envs
            ring.replace_states(replaced[here], record.arrays[NEWER_STATES][0][here])
        has_errors = ArrayKey(ERRORS) in record.arrays
        if has_errors:
            rows.put(part)
            rows.change(record, changed_in(record))
        state, size = record.facts["state"], record.facts.get("size")
    if state is None:
        return None
    live = rows.live(ring) if has_errors else None
    if size is not None and size < ring.size:
        gone = max(0, ring.live_transitions - size * ring.envs)
        ring.shrink(size)
        live = None if live is None else live[gone:]
    if ring.needed < available:
        raise DamageError(f"{log.files.path(0).parent}: the file with steps {ring.needed} to {available} is missing")
    if live is not None:
        state["priorities"]["errors"] = torch.from_numpy(live)
    return state


class ErrorRows:
    """Priority errors of a ring's transitions, replayed along with the ring.

    Args:
        ring: the ring, whose columns are allocated.
    """

    def __init__(self, ring: Ring) -> None:
        self._errors = np.full((ring.rows, ring.envs), np.nan, np.float32)
        self._end = 0
        """Number after the newest transition."""

    def put(self, part: RowSpan) -> None:
        """Store the errors of new steps."""
        rows, size = part.array(ERRORS), len(self._errors) - 1
        first = max(part.first, part.steps - size)
        fill(self._errors, list(spans(first, part.steps, size + 1)), rows[first - part.first :])
        self._end = part.steps * self._errors.shape[1]

    def change(self, record: Record, numbers: NDArray[np.int64]) -> None:
        """Apply the changed errors of a commit; ``numbers`` are of its transitions, -1 for dropped ones."""
        flat = self._errors.reshape(-1)
        # The commit may hold more errors than there are rows: of transitions in log files that were deleted since.
        here = numbers >= max(0, self._end - len(flat))
        flat[numbers[here] % len(flat)] = record.arrays[ArrayKey(CHANGES)][0][here]

    def live(self, ring: Ring) -> NDArray[np.float32]:
        """Return the errors of all live transitions (transitions,), oldest first; NaN where none is known."""
        flat = self._errors.reshape(-1)
        live: NDArray[np.float32] = flat[np.arange(ring.start, ring.end) % len(flat)]
        return live


def changed_in(record: Record) -> NDArray[np.int64]:
    """Return the numbers (changed,) of the transitions whose errors a commit changes."""
    start: int = record.facts["start"]
    if ArrayKey(OFFSETS) in record.arrays:
        offsets: NDArray[np.int64] = record.arrays[ArrayKey(OFFSETS)][0].astype(np.int64)
        return start + offsets
    return np.arange(start, start + len(record.arrays[ArrayKey(CHANGES)][0]))


def read_state(directory: str | Path, position: Position | None = None) -> dict[str, Any]:
    """Return the state of the storage in a directory, as the ``state_dict`` of a storage without a directory.

    The directory is not changed, and another process may be writing to it.

    Args:
        directory: directory of the storage.
        position: the commit to read; the last one if None.

    Raises:
        PersistenceError: the directory holds no storage, or not this commit.
        DamageError: the directory is damaged; the text names the file and the steps.
    """
    ring, state, here = read_ring(directory, position)
    if state is None or position not in (None, here):
        raise PersistenceError(
            f"{Path(directory).absolute()} does not have commit {(position or here)['commit']}, or not any more"
        )
    return {"ring": state_of(ring)} | state


def read_ring(directory: str | Path, position: Position | None = None) -> tuple[Ring, dict[str, Any] | None, Position]:
    """Return the ring of a directory, the other state and the position; see :func:`read_state`."""
    folder = Path(directory).absolute()
    return read_beside_a_writer(folder, lambda: _read_ring(folder, position))


def _read_ring(folder: Path, position: Position | None) -> tuple[Ring, dict[str, Any] | None, Position]:
    manifest = RingManifest.read(folder)
    if manifest is None:
        raise PersistenceError(f"{folder} holds no storage")
    refuse_links_in(folder)
    with name_damage(folder):
        log = CommitLog(folder, SUFFIX, durable=False, as_of_now=True)
        ring = manifest.ring(folder.name, log.files.nbytes)
        state = recover(ring, log, None if position is None else position["commit"])
        if position is None:
            refuse_missing(folder, log)
    return ring, state, log.position
