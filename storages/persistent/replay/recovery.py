"""From a directory back to a ring: what was committed, up to a commit, with nothing that is damaged taken for data."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import ERRORS, ArrayKey, RowSpan, fill, spans
from storages.errors import DamageError
from storages.persistent.log.log_segments import BEGINNING, Place, Segments
from storages.persistent.log.records import Block, Found
from storages.persistent.replay.snapshot_records import OFFSETS, flaw_of_errors, flaw_of_part, part_of


@dataclass
class Recovered:
    """Where a directory stands."""

    state: dict[str, Any] | None = None
    """What stands beside the ring, as the storage gave it; None before the first commit."""
    commit: int = 0
    checksum: int = 0
    pinned: list[list[int]] = field(default_factory=list)
    """Commits that checkpoints refer to, and the oldest step that each needs."""
    segments: list[tuple[int, int]] = field(default_factory=list)
    """Of each file of steps the number, and the first step in it."""
    steps_end: Place = BEGINNING
    errors_end: Place = BEGINNING


def recover(ring: Ring, steps: Segments, errors: Segments, until: int | None = None) -> Recovered:
    """Fill an empty ring whose columns are made.

    Args:
        ring: what is filled.
        steps: the log of steps; each of its blocks is a commit.
        errors: the log of what updates said of them.
        until: the last commit to take up; all where None.

    Raises:
        DamageError: something of it is not what was written; the text names file and steps.
    """
    recovered, kept = Recovered(), Errors(ring)
    changes = _Lookahead(errors, ring.envs)
    available, change, has_errors = 0, None, False
    for found, place in steps.read():
        block = found.block
        if "begins" not in block.facts:
            raise DamageError(f"{steps.path(place.segment)} holds no steps: another file has taken its place")
        if flaw := flaw_of_part(block, ring):
            raise DamageError(was_not_written_here(steps.path(place.segment), block, flaw))
        if recovered.state is not None and block.commit != recovered.commit + 1:
            raise DamageError(
                f"{steps.path(place.segment)} begins with commit {block.commit}, but the one before it in the "
                f"directory is {recovered.commit}: a file with steps {ring.steps} to {block.first} is missing"
            )
        if recovered.state is not None and block.facts["after"] != recovered.checksum:
            raise DamageError(
                f"{steps.path(place.segment)}: commit {block.commit} was made after another commit {recovered.commit} "
                f"than that in the directory: one of the two files was replaced by another version of it"
            )
        if until is not None and block.commit > until:
            break
        if flaw := _flaw_of_order(block, ring, recovered):
            raise DamageError(was_not_written_here(steps.path(place.segment), block, flaw))
        part = part_of(block)
        if part.begins or recovered.state is None:
            available = part.first
        if place.segment not in (segment for segment, _ in recovered.segments[-1:]):
            recovered.segments.append((place.segment, block.first))
        ring.append_span(part)
        has_errors = ArrayKey(ERRORS) in block.arrays
        if has_errors:
            kept.put(part)
            change = changes.of(block.commit, block.facts["errors"])
            if change is not None:
                kept.change(change)
        recovered.commit, recovered.checksum, recovered.steps_end = block.commit, found.checksum, place
        recovered.state, recovered.pinned = block.facts["state"], block.facts["pinned"]
    if recovered.state is None:
        return recovered
    if ring.needed < available:
        raise DamageError(f"{steps.path(0).parent}: the file with steps {ring.needed} to {available} is missing")
    recovered.errors_end = changes.end
    if has_errors:
        if change is None:
            raise DamageError(f"{errors.path(0).parent}: the errors of commit {recovered.commit} are missing")
        recovered.state["priorities"]["errors"] = torch.from_numpy(kept.live(ring))
    return recovered


def was_not_written_here(path: Path, block: Block, flaw: str) -> str:
    """What is wrong with a block whose checksum is right, in words."""
    return (
        f"{path} is damaged, or was not written by this package: commit {block.commit}, with steps {block.first} to "
        f"{block.steps}, has {flaw}"
    )


def _flaw_of_order(block: Block, ring: Ring, recovered: Recovered) -> str | None:
    if recovered.state is None or block.facts["begins"] or block.first == ring.steps:
        return None
    return f"steps that do not follow step {ring.steps}"


class Errors:
    """The errors of a ring's transitions.

    Args:
        ring: whose memory is made.
    """

    def __init__(self, ring: Ring) -> None:
        self._errors = np.full((ring.rows, ring.envs), np.nan, np.float32)
        self._end = 0
        """Number after the newest transition."""

    def put(self, part: RowSpan) -> None:
        """Take up those of new steps."""
        rows, size = part.array(ERRORS), len(self._errors) - 1
        first = max(part.first, part.steps - size)
        fill(self._errors, list(spans(first, part.steps, size + 1)), rows[first - part.first :])
        self._end = part.steps * self._errors.shape[1]

    def change(self, block: Block, numbers: NDArray[np.int64] | None = None) -> None:
        """Take up what updates said.

        Args:
            block: of the log of errors.
            numbers: of the transitions that it tells about, -1 for those that are gone; its own where None.
        """
        flat = self._errors.reshape(-1)
        told = numbers_in(block) if numbers is None else numbers
        # Of transitions that were live then and lie in files that were dropped, there may be more than rows.
        here = told >= max(0, self._end - len(flat))
        flat[told[here] % len(flat)] = block.arrays[ArrayKey(ERRORS)][0][here]

    def live(self, ring: Ring) -> NDArray[np.float32]:
        """(transitions,): of all that is live, oldest first; NaN where nothing was told."""
        flat = self._errors.reshape(-1)
        live: NDArray[np.float32] = flat[np.arange(ring.start, ring.end) % len(flat)]
        return live


def numbers_in(block: Block) -> NDArray[np.int64]:
    """(changed,): the numbers of the transitions that a block of the log of errors tells about."""
    start: int = block.facts["start"]
    if ArrayKey(OFFSETS) in block.arrays:
        offsets: NDArray[np.int64] = block.arrays[ArrayKey(OFFSETS)][0].astype(np.int64)
        return start + offsets
    return np.arange(start, start + len(block.arrays[ArrayKey(ERRORS)][0]))


class _Lookahead:
    """The log of errors beside the log of steps."""

    def __init__(self, errors: Segments, num_envs: int) -> None:
        self._errors, self._num_envs = errors, num_envs
        self._blocks: Iterator[tuple[Found, Place]] = errors.read()
        self._next = next(self._blocks, None)
        self._begun = False
        self.end = BEGINNING
        """Of the last block that belongs to a commit."""

    def of(self, commit: int, checksum: int) -> Block | None:
        """The one of a commit, which knows its checksum; None where it is older than the log."""
        found = None
        while self._next is not None and self._next[0].block.commit <= commit:
            candidate, end = self._next
            if flaw := flaw_of_errors(candidate.block, self._num_envs):
                raise DamageError(was_not_written_here(self._errors.path(end.segment), candidate.block, flaw))
            if not self._begun and ArrayKey(OFFSETS) in candidate.block.arrays:
                # It tells only what has changed since one that is not there.
                break
            self._begun = True
            if (candidate.block.commit, candidate.checksum) == (commit, checksum):
                found, self.end = candidate.block, end
            self._next = next(self._blocks, None)
        if found is None and (self._begun or self._next is None or self._next[0].block.commit <= commit):
            raise DamageError(
                f"{self._errors.path(self.end.segment)}: the errors of commit {commit} are missing, which priorities "
                f"follow from"
            )
        return found
