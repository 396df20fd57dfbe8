"""Dropping what is damaged in a directory, and keeping the rest."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.part import ERRORS, Name, Part
from storages.persistent.blocks import Block, Flaw, Found
from storages.persistent.errors import DamageError, PersistenceError
from storages.persistent.journal import ERRORS_SUFFIX, STEPS_SUFFIX
from storages.persistent.lock import Lock
from storages.persistent.manifest import Manifest
from storages.persistent.recovery import Errors, numbers_in, part_of
from storages.persistent.repair_archive import is_archive, repair_archive
from storages.persistent.segments import Segments
from storages.transition import DONE2, TRUNC2


@dataclass(frozen=True)
class Repair:
    """What a repair did.

    Args:
        dropped: what was damaged or missing, in words, with the files and steps; empty where nothing was.
        steps: how many steps the storage holds now; of whole episodes, how many are in volumes.
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
    that is whole. Commits that checkpoints refer to are gone if anything had to be dropped.

    Of a directory of whole episodes, those volumes of episodes are dropped that are damaged.

    Raises:
        PersistenceError: the directory is in use, or holds no storage of a format that is known; nothing was changed.
    """
    folder = Path(directory).absolute()
    if not folder.is_dir():
        raise PersistenceError(f"{folder} is no directory")
    if is_archive(folder):
        lost, transitions = repair_archive(folder)
        return Repair(tuple(lost), transitions)
    logs = Segments(folder, STEPS_SUFFIX, durable=True), Segments(folder, ERRORS_SUFFIX, durable=True)
    manifest, dropped = _manifest(folder, logs[0])
    lock = Lock(folder)
    try:
        rest = _Rest(manifest)
        dropped += rest.take(*logs)
        if rest.dropped_anything:
            rest.write(*logs)
        if dropped:
            manifest.write(folder, durable=True)
    finally:
        for log in logs:
            log.close()
        lock.release()
    return Repair(tuple(dropped), rest.ring.live_steps)


def _manifest(folder: Path, steps: Segments) -> tuple[Manifest, list[str]]:
    try:
        manifest = Manifest.read(folder)
        if manifest is None:
            raise PersistenceError(f"{folder} holds no storage")
        return manifest, []
    except PersistenceError as error:
        # Every file of steps says it again.
        for _, found in steps.everything():
            if isinstance(found, Found) and "storage" in found.block.facts:
                return Manifest.from_facts(found.block.facts["storage"]), [str(error).partition(";")[0]]
        if isinstance(error, DamageError):
            raise PersistenceError(f"{error}, but there is no file of steps that is whole to make it of") from None
        raise


class _Run:
    """Steps that followed one another without a gap, and the numbers that they have now."""

    def __init__(self, first: int, now: int) -> None:
        self.first, self.end, self.now = first, first, now


class _Rest:
    """What is left, in a ring in which nothing is missing: steps after a gap follow those before it."""

    def __init__(self, manifest: Manifest) -> None:
        self.ring = manifest.ring("repair")
        self.dropped_anything = False
        """Whether anything of the logs is not what it was."""
        self._manifest = manifest
        self._errors = Errors(manifest.size, manifest.num_envs)
        self._runs: list[_Run] = []
        self._newest: Block | None = None
        self._oldest_there = 0
        """The first step that the logs hold of what is live."""
        self._last_number = 0
        """Of the commits and files that there are, damaged ones too."""

    def take(self, steps: Segments, errors: Segments) -> list[str]:
        """Take up all blocks that are whole; returns what is not, in words."""
        dropped, changes = _changes(errors)
        intact, told = not dropped, [change.commit for change in changes]
        missing: list[int] = []
        gap, end, expected = False, 0, 0
        for segment, found in steps.everything():
            if isinstance(found, Flaw):
                dropped.append(steps.told(segment, found, end))
                gap = True
                continue
            block = found.block
            if expected and block.commit != expected and not gap:
                dropped.append(
                    f"{steps.path(segment)} does not follow: a file with steps {end} to {block.first} is gone"
                )
                gap = True
            gap = not self._put(part_of(block), apart=gap)
            end, expected = block.steps, block.commit + 1
            while changes and changes[0].commit <= block.commit:
                self._errors.change(changes[0], self._now(numbers_in(changes[0])))
                changes.pop(0)
            if Name(ERRORS) in block.arrays and block.commit not in told and block.commit > min(told, default=0):
                missing.append(block.commit)
            self._newest = block
        newest = self._newest
        if not dropped and newest is not None and (needed := newest.facts["needed"]) < self._oldest_there:
            dropped.append(f"{steps.path(0).parent}: the file with steps {needed} to {self._oldest_there} is gone")
        if missing and intact:
            dropped.append(f"{errors.path(0).parent}: errors of commits {missing[0]} to {missing[-1]} are gone")
        self._last_number = max([expected - 1, *told, *steps.numbers(), *errors.numbers()])
        self.dropped_anything = bool(dropped)
        return dropped

    def _put(self, part: Part, apart: bool) -> bool:
        """Take up some rows; whether what follows them in the log may follow them here."""
        if part.begins or not self._runs:
            self._oldest_there = part.first
        if part.begins:
            self._runs = [_Run(part.first, self.ring.steps)]
        elif apart or not self._runs:
            return self._put_apart(part)
        run = self._runs[-1]
        run.end = part.steps
        first = run.now + part.first - run.first
        part = part.numbered(first, first if part.begins else self.ring.first)
        self.ring.put(part)
        self._put_errors(part)
        return True

    def _put_apart(self, part: Part) -> bool:
        """Insert what is whole without the rows before it, which are lost."""
        alone, whole = self._manifest.ring("repair"), part.first + part.reaching_back
        if whole == part.steps:
            return False
        alone.put(part)
        broken = alone.broken()[-len(part) :]
        self.ring.break_off()
        self._runs.append(_Run(whole, self.ring.steps))
        for step in range(whole, part.steps):
            sample = alone.gather(np.arange(step * alone.envs, (step + 1) * alone.envs))
            self.ring.insert(sample)
            ended = (sample[DONE2] + sample[TRUNC2])[:, 0] > 0
            if (broken[step - part.first] & ~ended).any():
                # Whatever the next step begins with.
                self.ring.break_off()
        self._runs[-1].end = part.steps
        if Name(ERRORS) in part.arrays:
            errors = part.array(ERRORS)[part.reaching_back :]
            first = self._runs[-1].now
            self._put_errors(replace(part, first=first, steps=self.ring.steps, arrays={Name(ERRORS): (errors,)}))
        return True

    def _put_errors(self, part: Part) -> None:
        if Name(ERRORS) in part.arrays:
            self._errors.put(part)

    def _now(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers that transitions have now, -1 for those that are gone."""
        steps, envs = np.divmod(numbers, self.ring.envs)
        now = np.full_like(numbers, -1)
        for run in self._runs:
            here = (run.first <= steps) & (steps < run.end)
            now[here] = (steps[here] - run.first + run.now) * self.ring.envs + envs[here]
        now[now < self.ring.start] = -1
        return now

    def write(self, steps: Segments, errors: Segments) -> None:
        """Write what is left as one commit, and drop everything else."""
        number = self._last_number + 1
        if self._newest is not None:
            ring = self.ring
            part = replace(ring.part(ring.needed), begins=True)
            facts: dict[str, Any] = {
                "state": self._newest.facts["state"],
                "pinned": [],
                "begins": True,
                "since": part.since,
                "needed": ring.needed,
                "storage": self._manifest.facts(),
                "after": 0,
                "errors": None,
            }
            if Name(ERRORS) in self._newest.arrays:
                live = self._errors.live(ring)
                live[np.isnan(live)] = facts["state"]["priorities"]["largest_error"]
                of_rows = np.zeros((len(part), ring.envs), np.float32)
                of_rows[len(part) - ring.live_steps :] = live.reshape(-1, ring.envs)
                part = replace(part, arrays=part.arrays | {Name(ERRORS): (of_rows,)})
                block = Block(number, part.first, part.steps, {"start": ring.start}, {Name(ERRORS): (live,)})
                facts["errors"] = errors.append(block, anew=True)
            steps.append(Block(number, part.first, part.steps, facts, part.arrays), anew=True)
        steps.drop_before(number)
        errors.drop_before(number)


def _changes(errors: Segments) -> tuple[list[str], list[Block]]:
    """What is damaged in the log of errors, in words, and the rest."""
    dropped, changes, end = [], [], 0
    for segment, found in errors.everything():
        if isinstance(found, Flaw):
            dropped.append(errors.told(segment, found, end).replace("where steps", "where errors of steps"))
        else:
            changes.append(found.block)
            end = found.block.steps
    return dropped, changes
