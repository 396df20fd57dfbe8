"""Calls that fail while a directory is reopened: the next opening finds all acknowledged data."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from storages.persistent import PersistenceError
from tests.storages.persistent.test_faults_of_each_call import HISTORIES, KINDS
from tests.support.disk import FAILURES, WRITES, Event, Fault, watched
from tests.support.histories import EpisodicHistory, History, Lived, small_files
from tests.support.power_cut import KILLED, FileSystem
from tests.support.profiles import FULL, is_nightly

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


def faults(calls: list[str], way: str) -> list[Fault]:
    """One kind of fault per call in turn, or all kinds; each for one call or three in a row."""
    found = []
    for number, call in enumerate(calls):
        kinds = [kind for kind in KINDS if kind in FAILURES or call in WRITES]
        chosen = kinds if way == "all" else [kinds[number % len(kinds)]]
        found += [Fault(kind, number, 1 if number % 2 else 3) for kind in chosen]
    return found


def states_left(history: History, directory: Path, count: int) -> list[Left]:
    """Directories of processes that were killed while writing or closing, and of some killed during a rollback."""
    random = np.random.default_rng(0)
    found = left_at(history, directory / "first", count, random)
    back = [left for left in found if left.saved]
    for number, left in enumerate(back[-2:]):
        found += left_while_going_back(history, left, directory / f"back {number}", count, random)
    return found


def reopened(history: History, left: Left, back: bool, fault: Fault | None, root: Path) -> tuple[list[str], bool]:
    """Let a fault occur while a directory is opened; return the calls, and whether the fault was reported."""
    left.put(root)
    with watched(root, fault) as disk:
        done = reopen(history, left, root, back)
    assert fault is not None or (done.closed and not done.messages), done.messages
    saved = left.saved[:1] if back else left.saved
    assert_left(history, root, done.bounds, None if back else done.seen, [] if back and not done.closed else saved)
    return disk.calls, bool(done.messages)


def sweep(name: str, durable: bool, count: int, way: str, directory: Path, most: int | None = None) -> None:
    """Try faults, at most ``most`` of them, on directories left at ``count`` instants."""
    found, wrong = Counter[str](), []
    with small_files():
        history = HISTORIES[name](True, durable)
        if isinstance(history, EpisodicHistory):
            history.learned(directory / "learned")
        openings = [
            (left, back)
            for left in states_left(history, directory, count)
            for back in ((False, True) if left.saved else (False,))
        ]
        if most is not None and most < 4 * len(openings):
            openings = openings[:: max(1, 4 * len(openings) // most)]
        cases = []
        for number, (left, back) in enumerate(openings):
            calls, _ = reopened(history, left, back, None, directory / f"whole {number}")
            cases += [(left, back, fault, calls[fault.first]) for fault in faults(calls, way)]
        for number, (left, back, fault, call) in enumerate(cases[:: 1 if most is None else max(1, len(cases) // most)]):
            try:
                _, noticed = reopened(history, left, back, fault, directory / str(number))
                found["reported" if noticed else "not reported"] += 1
            except (AssertionError, PersistenceError, OSError) as error:
                wrong.append(f"{left.why}, back={back}, {call} {fault}: {type(error).__name__} {error}"[:600])
    print(f"{name}, durable={durable}: {dict(found)}, {len(wrong)} wrong")  # noqa: T201
    assert not wrong, f"{name}: {len(wrong)}:\n" + "\n".join(wrong[:20])


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", ["ring of stacks with priorities", "whole episodes"])
def test_a_directory_survives_a_failed_call_while_it_is_opened(name: str, tmp_path: Path) -> None:
    sweep(name, True, 2, "one", tmp_path, 8)


@FULL
@pytest.mark.long
@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_directory_survives_many_failed_calls_while_it_is_opened(name: str, durable: bool, tmp_path: Path) -> None:
    count, way, most = (8, "all", None) if is_nightly() else (4, "one", 80)
    sweep(name, durable, count, way, tmp_path, most)
