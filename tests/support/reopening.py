"""A directory that a process left behind at some instant, and others that open it again and go back to a checkpoint."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from storages.persistent import PersistenceError
from tests.support.disk import Event, watched
from tests.support.histories import History, Lived
from tests.support.power_cut import KILLED, FileSystem

FOLDER = Path("new") / "kept"
_GOING_ON = 6
"""Operations after a storage has gone back."""


class Bounds(NamedTuple):
    """What a storage has to hold: what it held after one of the operations ``safe`` to ``begun``."""

    safe: int
    begun: int
    whole: bool
    """Whether only ``begun`` counts."""
    known: int = 0
    """Errors of transitions may be as of a later operation, up to this one."""


@dataclass
class Left:
    """What a process left.

    Args:
        file_system: what was done to it.
        bounds: what has to be there; one of them.
        saved: states that can be gone back to, and after which operation each was saved.
        why: when the process ended, in words.
    """

    file_system: FileSystem
    bounds: list[Bounds]
    saved: list[tuple[int, Any]]
    why: str

    def put(self, root: Path) -> FileSystem:
        """Make the directory; returns the file system with which it goes on there."""
        file_system = deepcopy(self.file_system)
        file_system.restore(KILLED, root, np.random.default_rng(0))
        file_system.go_on_in(root)
        return file_system


@dataclass
class Reopened:
    """How far a process came that opened a directory again.

    Args:
        bounds: what the directory has to hold, by what it was found to hold and what was done since.
        seen: a digest of what was held once it was open; None before.
        said: errors, in words.
        closed: whether :meth:`close` said that everything is on disk.
    """

    bounds: list[Bounds]
    seen: str | None = None
    said: list[str] = field(default_factory=list)
    closed: bool = False


def left_at(history: History, root: Path, count: int, random: np.random.Generator) -> list[Left]:
    """What processes left that were killed at so many instants, or within a write, and one that closed its storage."""
    root.mkdir()
    known = [(0, Lived())]
    with watched(root) as disk:

        def after(lived: Lived) -> None:
            known.append((len(disk.events), replace(lived, saved=list(lived.saved))))

        lived = history.live(root / FOLDER, after)
    assert lived.closed
    found = []
    instants = sorted(random.choice(np.arange(6, len(disk.events)), count, replace=False).tolist())
    for number, at in enumerate([*instants, len(disk.events)]):
        _, had_come = max((one for one in known if one[0] <= at), key=lambda one: (one[0], one[1].begun))
        begun = min((one.begun for when, one in known if when > at), default=had_come.begun)
        begun = max(begun, had_come.begun)
        closed = had_come.closed and at == len(disk.events)
        found.append(
            Left(
                _done(FileSystem(root), disk.events, at, torn=number % 2 == 1),
                [Bounds(had_come.safe, begun, closed)],
                had_come.saved,
                "closed" if closed else f"killed after {at} of {len(disk.events)} calls",
            )
        )
    return found


def left_while_going_back(
    history: History, left: Left, root: Path, count: int, random: np.random.Generator
) -> list[Left]:
    """What processes left that were killed while they went back to a state and on from there."""
    before = left.put(root)
    with watched(root) as disk:
        known = [(0, list(left.bounds))]
        reopen(history, left, root, back=True, after=lambda done: known.append((len(disk.events), done.bounds)))
    found = []
    for number, at in enumerate(sorted(random.choice(len(disk.events) + 1, count, replace=False).tolist())):
        operation, _ = left.saved[0]
        why = f"{left.why}, then killed after {at} of {len(disk.events)} calls while it went back to {operation}"
        usable = [one for one in left.saved if one[0] <= operation]
        torn = number % 2 == 1
        found.append(Left(_done(deepcopy(before), disk.events, at, torn), bounds_at(known, at), usable, why))
    return found


def bounds_at(known: list[tuple[int, list[Bounds]]], at: int) -> list[Bounds]:
    """What has to be there after so many calls: what had been done then, or what was being done."""
    done = [bounds for when, bounds in known if when <= at][-1]
    # What was begun before the next thing was done may be there.
    return done + next((bounds for when, bounds in known if when > at), [])


def _done(file_system: FileSystem, events: list[Event], at: int, torn: bool) -> FileSystem:
    file_system.do(events[:at])
    if torn and at < len(events) and events[at].call == "write":
        half = events[at].data[: len(events[at].data) // 2]
        file_system.do([replace(events[at], data=half)])
    return file_system


def reopen(
    history: History,
    left: Left,
    root: Path,
    back: bool = False,
    after: Callable[[Reopened], None] = lambda done: None,
) -> Reopened:
    """Open a directory again, go back to the oldest state that is there and on from it where ``back``, and close.

    Args:
        history: says what storage it is.
        left: what the directory was left as.
        root: where it is.
        back: whether to go back.
        after: called as soon as something has been done.
    """
    done = Reopened(list(left.bounds))

    def note(bounds: list[Bounds]) -> None:
        done.bounds = bounds
        after(done)

    try:
        storage = history.opened(root / FOLDER)
    except PersistenceError as error:
        done.said.append(str(error))
        return done
    done.seen = history.seen(storage)
    after(done)
    try:
        if back:
            _go_back(history, storage, left.saved[0], done, note)
    except PersistenceError as error:
        done.said.append(str(error))
    try:
        storage.close()
    except PersistenceError as error:
        done.said.append(str(error))
    else:
        done.closed = True
        if back and not done.said:
            end = done.bounds[0].begun
            note([Bounds(end, end, True)])
        after(done)
    return done


def _go_back(
    history: History, storage: Any, saved: tuple[int, Any], done: Reopened, note: Callable[[list[Bounds]], None]
) -> None:
    operation, state = saved
    before, latest = list(done.bounds), max(one.begun for one in done.bounds)
    # From now on it may have gone back; a ring does so commit by commit.
    between = Bounds(operation, latest if history.goes_back_by_commits else operation, False, latest)
    done.bounds = before = [*before, between]
    storage.load_state_dict(state)
    history.assert_holds(storage, operation, operation, True)
    first = history.operations.index("insert", operation)
    last = min(operation + _GOING_ON, len(history.operations))
    # Until something is committed, it may still be what it was, and says so where it cannot be changed.
    note(before)
    for number in range(operation, last):
        if history.operations[number] == "checkpoint":
            continue
        done.bounds = [*before, Bounds(operation, number + 1, False, latest)]
        history.apply(storage, number)
        # Soon, too, when nothing else than that it went back has been written.
        if number == first or history.operations[number] == "flush":
            note([*before, Bounds(operation, number + 1, False, latest)])
            storage.flush()
            operation, before, latest = number + 1, [], 0
        note([*before, Bounds(operation, number + 1, False, latest)])
    storage.flush()
    note([Bounds(last, last, True)])


def holds_one_of(history: History, storage: Any, bounds: list[Bounds]) -> None:
    """It holds what one of some bounds says."""
    wrong = []
    for one in bounds:
        try:
            history.assert_holds(storage, *one)
        except AssertionError as error:
            wrong.append(error)
        else:
            return
    raise AssertionError(f"none of {bounds}: {wrong}")


def assert_left(
    history: History, root: Path, bounds: list[Bounds], seen: str | None, saved: list[tuple[int, Any]]
) -> None:
    """Open a directory without faults: it holds what it should, goes on, and goes back to what was saved."""
    storage = history.opened(root / FOLDER)
    try:
        if seen is not None:
            assert history.seen(storage) == seen, "it holds something else than when it was opened before"
        holds_one_of(history, storage, bounds)
        steps = history.steps_in(storage)
        if steps < len(history.samples):
            history.insert(storage, steps)
            storage.flush()
        for operation, state in reversed(saved[-storage.states_kept :]):
            storage.load_state_dict(state)
            history.assert_holds(storage, operation, operation, True)
    finally:
        storage.close()
    again = history.opened(root / FOLDER)
    again.close()
