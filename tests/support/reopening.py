"""Directories left by a process at some instant, and processes that reopen them and go back to a checkpoint."""

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
"""Number of operations after a rollback."""


class Bounds(NamedTuple):
    """Required content of a storage: that after one of the operations ``safe`` to ``begun``."""

    safe: int
    begun: int
    whole: bool
    """Whether only the content after ``begun`` is correct."""
    known: int = 0
    """Errors of transitions may be those of a later operation, up to this one."""


@dataclass
class Left:
    """A directory that a process left.

    Args:
        file_system: the file system with the changes of the process.
        bounds: bounds of the content, of which one has to hold.
        saved: loadable states, each with the number of operations before it.
        why: a description of how the process ended.
    """

    file_system: FileSystem
    bounds: list[Bounds]
    saved: list[tuple[int, Any]]
    why: str

    def put(self, root: Path) -> FileSystem:
        """Write the directory; return the file system for further changes there."""
        file_system = deepcopy(self.file_system)
        file_system.restore(KILLED, root, np.random.default_rng(0))
        file_system.go_on_in(root)
        return file_system


@dataclass
class Reopened:
    """The progress of a process that reopened a directory.

    Args:
        bounds: bounds of the content, by the content found at the opening and the operations since.
        seen: a digest of the content after the opening; None before.
        messages: messages of errors.
        closed: whether closing acknowledged that all data is on disk.
    """

    bounds: list[Bounds]
    seen: str | None = None
    messages: list[str] = field(default_factory=list)
    closed: bool = False


def left_at(history: History, root: Path, count: int, random: np.random.Generator) -> list[Left]:
    """Directories left by processes that were killed at some instants, or within a write, and by one that closed."""
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
        _, progress = max((one for one in known if one[0] <= at), key=lambda one: (one[0], one[1].begun))
        begun = min((one.begun for when, one in known if when > at), default=progress.begun)
        begun = max(begun, progress.begun)
        closed = progress.closed and at == len(disk.events)
        found.append(
            Left(
                _done(FileSystem(root), disk.events, at, torn=number % 2 == 1),
                [Bounds(progress.safe, begun, closed)],
                progress.saved,
                "closed" if closed else f"killed after {at} of {len(disk.events)} calls",
            )
        )
    return found


def left_while_going_back(
    history: History, left: Left, root: Path, count: int, random: np.random.Generator
) -> list[Left]:
    """Directories left by processes that were killed during a rollback and the operations after it."""
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
    """Bounds after a number of calls: those of the completed operations, or of the one in progress."""
    done = [bounds for when, bounds in known if when <= at][-1]
    # The content may include the operation in progress.
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
    """Reopen a directory, go back to the oldest state and continue from it if ``back``, and close.

    Args:
        history: the history of the storage.
        left: the state in which the directory was left.
        root: where the directory is.
        back: whether to go back.
        after: called after each operation.
    """
    done = Reopened(list(left.bounds))

    def note(bounds: list[Bounds]) -> None:
        done.bounds = bounds
        after(done)

    try:
        storage = history.opened(root / FOLDER)
    except PersistenceError as error:
        done.messages.append(str(error))
        return done
    done.seen = history.seen(storage)
    after(done)
    try:
        if back:
            _go_back(history, storage, left.saved[0], done, note)
    except PersistenceError as error:
        done.messages.append(str(error))
    try:
        storage.close()
    except PersistenceError as error:
        done.messages.append(str(error))
    else:
        done.closed = True
        if back and not done.messages:
            end = done.bounds[0].begun
            note([Bounds(end, end, True)])
        after(done)
    return done


def _go_back(
    history: History, storage: Any, saved: tuple[int, Any], done: Reopened, note: Callable[[list[Bounds]], None]
) -> None:
    operation, state = saved
    before, latest = list(done.bounds), max(one.begun for one in done.bounds)
    # From now on, the rollback may have happened; a ring goes back commit by commit.
    between = Bounds(operation, latest if history.goes_back_by_commits else operation, False, latest)
    done.bounds = before = [*before, between]
    storage.load_state_dict(state)
    history.assert_holds(storage, operation, operation, True)
    first = history.operations.index("insert", operation)
    last = min(operation + _GOING_ON, len(history.operations))
    # Until the next commit, the directory may still have the earlier content.
    note(before)
    for number in range(operation, last):
        if history.operations[number] == "checkpoint":
            continue
        done.bounds = [*before, Bounds(operation, number + 1, False, latest)]
        history.apply(storage, number)
        # Also flush soon, when only the rollback has been written.
        if number == first or history.operations[number] == "flush":
            note([*before, Bounds(operation, number + 1, False, latest)])
            storage.flush()
            operation, before, latest = number + 1, [], 0
        note([*before, Bounds(operation, number + 1, False, latest)])
    storage.flush()
    note([Bounds(last, last, True)])


def holds_one_of(history: History, storage: Any, bounds: list[Bounds]) -> None:
    """Assert that the content satisfies one of some bounds."""
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
    """Open a directory without faults: the content is correct, an insertion works, and saved states can be loaded."""
    storage = history.opened(root / FOLDER)
    try:
        if seen is not None:
            assert history.seen(storage) == seen, "the content differs from that at the earlier opening"
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
