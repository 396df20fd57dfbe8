"""Operating system calls that fail one by one: no acknowledged data is lost, and later data is correct."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storages.persistent import PersistenceError
from tests.support.disk import FAILURES, SHORT, TORN, WRITES, Fault, watched
from tests.support.histories import AddedHistory, EpisodicHistory, History, RingHistory, small_files
from tests.support.profiles import FULL, is_nightly

KINDS = (*FAILURES, SHORT, TORN)
PRIORITIES: dict[str, Any] = {"alpha": 0.6, "epsilon": 0.01, "default_error": 0.01}
HISTORIES: dict[str, Callable[[bool, bool], History]] = {
    "ring": lambda saves, durable: RingHistory("plain", "vector", saves, durable),
    "ring of stacks with priorities": lambda saves, durable: RingHistory("priority", "frames", saves, durable),
    "episodes": lambda saves, durable: EpisodicHistory("vector", saves, durable),
    "episodes with priorities": lambda saves, durable: EpisodicHistory("vector", saves, durable, **PRIORITIES),
    "whole episodes": lambda saves, durable: AddedHistory("vector", saves, durable, **PRIORITIES),
}
_MOST = {"some": 12, "most": 60}
CALLS_IN_A_ROW = 3
"""Failed calls in a row, for a disk that fails longer than one call."""


def calls_of(history: History, directory: Path) -> list[str]:
    """The calls of a run without faults."""
    if isinstance(history, EpisodicHistory):
        history.learned(directory / "learned")
    with watched(directory) as disk:
        lived = history.live(directory / "calls" / "kept")
    assert lived.closed
    assert not lived.messages
    history.assert_left(directory / "calls" / "kept", lived)
    return disk.calls


def survived(history: History, directory: Path, fault: Fault) -> bool:
    """Let a fault occur in a run and check the remaining data; return whether the run reported the fault."""
    with watched(directory, fault) as disk:
        lived = history.live(directory / "kept")
        assert disk.failed or fault.first >= len(disk.calls) - CALLS_IN_A_ROW, "the fault did not occur"
    assert all("cannot be" in message for message in lived.messages), lived.messages
    history.assert_left(directory / "kept", lived)
    return bool(lived.messages)


def faults(calls: list[str], way: str) -> list[Fault]:
    """The faults to try: one kind for some, most or each of the calls, or all kinds for each call."""
    found = []
    for number, call in enumerate(calls):
        kinds = [kind for kind in KINDS if kind in FAILURES or call in WRITES]
        if way == "all":
            found += [Fault(kind, number, row) for kind in kinds for row in (1, CALLS_IN_A_ROW)]
        else:
            found.append(Fault(kinds[number % len(kinds)], number, 1 if number % 2 else CALLS_IN_A_ROW))
    return found[:: max(1, len(found) // _MOST[way])] if way in _MOST else found


def sweep(name: str, saves: bool, durable: bool, way: str, directory: Path) -> None:
    with small_files():
        history = HISTORIES[name](saves, durable)
        tried = faults(calls_of(history, directory), way)
        noticed = 0
        for number, fault in enumerate(tried):
            try:
                noticed += survived(history, directory / str(number), fault)
            except (AssertionError, PersistenceError) as error:
                raise AssertionError(f"{name}, saves={saves}, durable={durable}: {fault}") from error
    print(f"{name}, saves={saves}, durable={durable}: {len(tried)} faults, {noticed} of them reported")  # noqa: T201


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("saves", [False, True], ids=["", "with checkpoints"])
@pytest.mark.parametrize("name", ["ring of stacks with priorities", "episodes with priorities", "whole episodes"])
def test_acknowledged_data_survives_a_failed_call(name: str, saves: bool, tmp_path: Path) -> None:
    sweep(name, saves, False, "some", tmp_path)


@FULL
@pytest.mark.long
@pytest.mark.parametrize("durable", [False, True], ids=["", "durable"])
@pytest.mark.parametrize("saves", [False, True], ids=["", "with checkpoints"])
@pytest.mark.parametrize("name", HISTORIES)
def test_acknowledged_data_survives_many_failed_calls(name: str, saves: bool, durable: bool, tmp_path: Path) -> None:
    in_turn = "each" if name.startswith("ring") else "most"
    sweep(name, saves, durable, "all" if is_nightly() else in_turn, tmp_path)
