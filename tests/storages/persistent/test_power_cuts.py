"""Simulated power cuts at any instant: acknowledged data of a durable storage remains, without reported damage."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storages.persistent import PersistenceError
from tests.storages.persistent.test_faults_of_each_call import HISTORIES
from tests.support.disk import Event, watched
from tests.support.histories import EpisodicHistory, History, Lived, small_files
from tests.support.power_cut import MODELS, FileSystem
from tests.support.profiles import by_profile


def recorded(history: History, directory: Path) -> tuple[list[Event], list[tuple[int, Lived]]]:
    """The events of a run on disk, and its progress after certain numbers of events."""
    known = [(0, Lived())]
    with watched(directory) as disk:

        def after(lived: Lived) -> None:
            known.append((len(disk.events), replace(lived, saved=list(lived.saved), messages=[])))

        lived = history.live(directory / "new" / "kept", after)
    assert lived.closed
    return disk.events, known


def progress_at(known: list[tuple[int, Lived]], cut: int) -> Lived:
    """The progress of a run after ``cut`` events; the action in progress may or may not have been completed."""
    _, lived = max((one for one in known if one[0] <= cut), key=lambda one: (one[0], one[1].begun))
    following = min((one.begun for at, one in known if at > cut), default=lived.begun)
    return replace(lived, begun=max(lived.begun, following))


def cut_everywhere(name: str, saves: bool, cuts: int | None, directory: Path) -> None:
    random, tried, wrong = np.random.default_rng(0), 0, []
    with small_files():
        history = HISTORIES[name](saves, True)
        if isinstance(history, EpisodicHistory):
            history.learned(directory / "learned")
        (directory / "run").mkdir()
        events, known = recorded(history, directory / "run")
        for model in MODELS:
            some = range(len(events) + 1) if cuts is None else random.integers(len(events) + 1, size=cuts).tolist()
            for cut in some:
                file_system = FileSystem(directory / "run")
                file_system.do(events[:cut])
                left, tried = directory / f"left {tried}", tried + 1
                file_system.restore(model, left, random)
                try:
                    history.assert_left(left / "new" / "kept", progress_at(known, cut))
                except (AssertionError, PersistenceError) as error:
                    wrong.append((model, cut, events[cut - 1].call, events[cut - 1].path.name, error))
    print(f"{name}, saves={saves}: {tried} cuts among {len(events)} events, {len(wrong)} of them wrong")  # noqa: T201
    assert not wrong, f"{name}: {len(wrong)} of {tried}: {[str(one)[-600:] for one in wrong[:4]]}"


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("name", ["ring of stacks with priorities", "episodes with priorities", "whole episodes"])
def test_acknowledged_data_survives_a_power_cut(name: str, tmp_path: Path) -> None:
    cut_everywhere(name, True, 8, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("saves", [False, True], ids=["", "with checkpoints"])
@pytest.mark.parametrize("name", HISTORIES)
def test_acknowledged_data_survives_many_power_cuts(name: str, saves: bool, tmp_path: Path) -> None:
    every = None if name.startswith("ring") else 40
    cut_everywhere(name, saves, by_profile(quick=12, full=every, nightly=None), tmp_path)
