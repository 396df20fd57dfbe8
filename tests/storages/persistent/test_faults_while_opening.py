"""Calls that fail while a directory is reopened: the next opening finds all acknowledged data."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from storages.persistent import PersistenceError
from tests.storages.persistent.test_faults_of_each_call import HISTORIES, KINDS
from tests.support.disk import FAILURES, WRITES, Fault, watched
from tests.support.histories import EpisodicHistory, History, small_files
from tests.support.profiles import FULL, is_nightly
from tests.support.reopening import Left, assert_left, left_at, left_while_going_back, reopen


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
