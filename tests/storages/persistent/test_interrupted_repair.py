"""Repairs interrupted by a failed call or a power cut: a further repair gives the result of a single one."""

import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from storages.persistent import PersistenceError, repair
from tests.storages.persistent.test_damage_of_each_file import KINDS, Numbered, assert_true, filled, held
from tests.storages.persistent.test_faults_while_opening import faults
from tests.support.damage import damages
from tests.support.disk import watched
from tests.support.histories import small_files
from tests.support.power_cut import MODELS, FileSystem
from tests.support.profiles import by_profile

_APART = 7
"""Distance of the chosen damages, so that each is of another file and of another kind."""


class Damaged(NamedTuple):
    """A damaged directory.

    Args:
        directory: the damaged directory.
        why: a description of the damage.
        calls: the calls of a repair.
        repaired: the content after a repair.
    """

    directory: Path
    why: str
    calls: list[str]
    repaired: Any


def damaged(kind: str, count: int, directory: Path) -> Iterator[Damaged]:
    """Directories that are refused until they are repaired."""
    there = directory / "there"
    for number, damage in enumerate(
        damages(there, directory / "intact", directory / "older", count * _APART, np.random.default_rng(0))
    ):
        if number % _APART:
            continue
        kept, tried = directory / f"damaged {number}", directory / "tried"
        shutil.rmtree(tried, ignore_errors=True)
        shutil.copytree(there, kept)
        shutil.copytree(there, tried)
        try:
            held(kind, tried)
        except PersistenceError:
            shutil.rmtree(tried)
            shutil.copytree(there, tried)
            with watched(tried) as disk:
                assert repair(tried).dropped
            why = f"{damage.way} {[str(file) for file in damage.files]}"
            yield Damaged(kept, why, disk.calls, held(kind, tried))


def assert_repaired(kind: str, there: Path, one: Damaged, stream: Numbered, done: bool) -> None:
    """If the repair is ``done``, its result is complete; otherwise no data is wrong, and another one completes it."""
    if not done:
        copied = there.with_name(f"{there.name} copied")
        shutil.copytree(there, copied)
        try:
            held(kind, copied)
        except PersistenceError:
            pass
        else:
            assert_true(kind, copied, stream)
        repair(there)
    assert held(kind, there) == one.repaired
    assert repair(there).dropped == ()


def interrupt_each(kind: str, count: int, most: int | None, directory: Path) -> None:
    tried, reported, wrong = 0, 0, []
    with small_files():
        stream = filled(kind, directory)
        for number, one in enumerate(damaged(kind, count, directory)):
            for fault in _some(faults(one.calls, "one"), most, number):
                there, tried = directory / f"fault {tried}", tried + 1
                shutil.copytree(one.directory, there)
                done = True
                try:
                    try:
                        with watched(there, fault):
                            repair(there)
                    except PersistenceError:
                        done, reported = False, reported + 1
                    assert_repaired(kind, there, one, stream, done)
                except (AssertionError, PersistenceError, OSError) as error:
                    wrong.append(f"{one.why}, {one.calls[fault.first]} {fault}: {type(error).__name__} {error}"[:600])
    print(f"{kind}: {tried} faults, {reported} reported, {len(wrong)} wrong")  # noqa: T201
    assert not wrong, f"{kind}: {len(wrong)} of {tried}:\n" + "\n".join(wrong[:20])


def cut_each(kind: str, count: int, most: int | None, directory: Path) -> None:
    tried, wrong, random = 0, [], np.random.default_rng(0)
    with small_files():
        stream = filled(kind, directory)
        for number, one in enumerate(damaged(kind, count, directory)):
            there = directory / f"repaired {number}"
            shutil.copytree(one.directory, there)
            before = FileSystem.of(there)
            with watched(there) as disk:
                repair(there)
            for model in MODELS:
                for at in _some(list(range(len(disk.events) + 1)), most, number):
                    file_system = deepcopy(before)
                    file_system.do(disk.events[:at])
                    cut, tried = directory / f"cut {tried}", tried + 1
                    file_system.restore(model, cut, random)
                    try:
                        assert_repaired(kind, cut, one, stream, at == len(disk.events))
                    except (AssertionError, PersistenceError, OSError) as error:
                        call = disk.events[at - 1]
                        wrong.append(
                            f"{one.why}, {model}, {at} of {len(disk.events)}, {call.call} {call.path.name}: "
                            f"{type(error).__name__} {error}"[:600]
                        )
    print(f"{kind}: {tried} cuts, {len(wrong)} wrong")  # noqa: T201
    assert not wrong, f"{kind}: {len(wrong)} of {tried}:\n" + "\n".join(wrong[:20])


def _some(found: list[Any], most: int | None, number: int) -> list[Any]:
    """About ``most`` of the elements, others for each ``number``, and always the last."""
    step = 1 if most is None else max(1, len(found) // most)
    return [*found[number % step :: step], *found[-1:]]


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("kind", ["ring of stacks with priorities", "episodes of stacks with priorities"])
def test_a_failed_repair_is_completed_by_another(kind: str, tmp_path: Path) -> None:
    interrupt_each(kind, 3, 2, tmp_path)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("kind", ["ring of stacks with priorities", "episodes of stacks with priorities"])
def test_a_repair_survives_a_power_cut(kind: str, tmp_path: Path) -> None:
    cut_each(kind, 2, 1, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_that_fails_at_any_call_is_completed_by_another(kind: str, tmp_path: Path) -> None:
    interrupt_each(kind, by_profile(6, 20, 20), by_profile(quick=4, full=6, nightly=None), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_survives_a_power_cut_at_any_instant(kind: str, tmp_path: Path) -> None:
    cut_each(kind, by_profile(6, 20, 20), by_profile(quick=2, full=2, nightly=None), tmp_path)
