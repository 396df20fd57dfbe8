"""Power cuts while a directory is reopened or rolled back: all acknowledged data remains."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.persistent import PersistenceError
from tests.storages.persistent.test_faults_of_each_call import HISTORIES
from tests.storages.persistent.test_faults_while_opening import (
    Bounds,
    Left,
    assert_left,
    bounds_at,
    reopen,
    states_left,
)
from tests.support.disk import watched
from tests.support.histories import EpisodicHistory, History, small_files
from tests.support.power_cut import MODELS
from tests.support.profiles import FULL, is_nightly


def cut_while_opening(
    history: History, left: Left, back: bool, cuts: int | None, directory: Path, random: np.random.Generator
) -> tuple[int, list[str]]:
    """Cut the power at some or all instants in each model; return the number of cuts and the failures."""
    before = left.put(directory / "there")
    known: list[tuple[int, list[Bounds]]] = [(0, list(left.bounds))]
    opened: list[tuple[int, str]] = []
    with watched(directory / "there") as disk:

        def after(done: Any) -> None:
            known.append((len(disk.events), list(done.bounds)))
            if not back and done.seen is not None:
                opened.append((len(disk.events), done.seen))

        assert reopen(history, left, directory / "there", back, after).closed
    tried, wrong = 0, []
    for model in MODELS:
        count = len(disk.events) + 1
        instants = range(count) if cuts is None else random.integers(count, size=cuts).tolist()
        for at in instants:
            file_system = deepcopy(before)
            file_system.do(disk.events[:at])
            cut, tried = directory / f"cut {tried}", tried + 1
            file_system.restore(model, cut, random)
            seen = next((digest for when, digest in opened if when <= at), None)
            try:
                assert_left(history, cut, bounds_at(known, at), seen, [] if back else left.saved)
            except (AssertionError, PersistenceError, OSError) as error:
                call = disk.events[at - 1]
                wrong.append(
                    f"{left.why}, back={back}, {model}, {at} of {count}, {call.call} {call.path.name}: {error}"
                )
    return tried, wrong


def cut_everywhere(name: str, count: int, openings: int | None, cuts: int | None, directory: Path) -> None:
    random, tried, wrong = np.random.default_rng(0), 0, []
    with small_files():
        history = HISTORIES[name](True, True)
        if isinstance(history, EpisodicHistory):
            history.learned(directory / "learned")
        found = [
            (left, back)
            for left in states_left(history, directory, count)
            for back in ((False, True) if left.saved else (False,))
        ]
        for number, (left, back) in enumerate(found[:: max(1, len(found) // (openings or len(found)))]):
            folder = directory / f"opening {number}"
            folder.mkdir()
            more, failures = cut_while_opening(history, left, back, cuts, folder, random)
            tried, wrong = tried + more, wrong + failures
    print(f"{name}: {tried} cuts, {len(wrong)} of them wrong")  # noqa: T201
    assert not wrong, f"{name}: {len(wrong)} of {tried}:\n" + "\n".join(one[:600] for one in wrong[:20])


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("name", ["ring of stacks with priorities", "episodes with priorities", "whole episodes"])
def test_acknowledged_data_survives_a_power_cut_while_it_is_opened(name: str, tmp_path: Path) -> None:
    cut_everywhere(name, 1, 2, 1, tmp_path)


@FULL
@pytest.mark.long
@pytest.mark.parametrize("name", HISTORIES)
def test_acknowledged_data_survives_many_power_cuts_while_it_is_opened(name: str, tmp_path: Path) -> None:
    count, openings, cuts = (8, None, None) if is_nightly() else (4, None, 2)
    cut_everywhere(name, count, openings, cuts, tmp_path)
