"""Damaged files: an error names each one, their content is not used as data, and the remaining data is correct."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import PERBuffer, PersistentEpisodicBuffer, Sequences
from storages.persistent import PersistenceError, repair
from storages.transition import ERRORS, INDICES
from tests.support.damage import damages
from tests.support.histories import small_files
from tests.support.model import ALGORITHM, contents, map_leaves
from tests.support.numbered import Numbered, environments
from tests.support.profiles import by_profile

STEPS, SIZE = 60, 40
PRIORITIES = {"alpha": 0.6, "epsilon": 0.01}


def ring(directory: Path, stacked: bool, **given: Any) -> Any:
    factory = PERBuffer.create_factory(size=SIZE, directory=directory, commit_every=7, **given)
    return factory("cpu", None, ALGORITHM, environments(stacked))


def episodes(directory: Path, stacked: bool, **given: Any) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(2 * SIZE, directory, commit_every=7, **given)
    return factory("cpu", None, ALGORITHM, environments(stacked))


KINDS: dict[str, tuple[Callable[..., Any], bool, dict[str, Any]]] = {
    "ring": (ring, False, {}),
    "ring of stacks with priorities": (ring, True, PRIORITIES),
    "episodes": (episodes, False, {}),
    "episodes of stacks with priorities": (episodes, True, PRIORITIES),
}


def filled(kind: str, directory: Path) -> Numbered:
    """Fill two directories: ``intact``, and ``older``, its copy from before it was opened for the last time."""
    made, stacked, given = KINDS[kind]
    stream = Numbered(stacked)
    for opened in range(3):
        if opened == 2:
            shutil.copytree(directory / "intact", directory / "older")
        storage = made(directory / "intact", stacked, **given)
        storage.seed(opened)
        for step in range(STEPS // 3):
            storage.insert_transition(stream.step())
            if step % 8 == 7:
                for batch in storage.generate_batches(2, 8):
                    storage.after_gradients(batch, {ERRORS: 1.0 + batch[INDICES].double() % 5})
                storage.flush()
        storage.close()
    return stream


def held(kind: str, directory: Path) -> Any:
    """Open a directory; return all fields and errors."""
    made, stacked, given = KINDS[kind]
    storage = made(directory, stacked, **given)
    try:
        errors = storage.priorities
        return contents(storage), None if errors is None else errors.state_dict()["errors"].tolist()
    finally:
        storage.close()


def assert_true(kind: str, directory: Path, stream: Numbered) -> int:
    """Assert that all stored data was inserted; return the number of stored transitions."""
    made, stacked, given = KINDS[kind]
    storage = made(directory, stacked, n_step=3, **given)
    storage.seed(0)
    rows = map_leaves(storage.get_all_buffer_data(), lambda leaf: leaf.numpy().reshape(-1, *leaf.shape[2:]))
    stored = len(storage)
    if stored:
        stream.assert_true(rows)
        for batch in storage.generate_batches(2, 48):
            stream.assert_windows_true(batch, 3)
    storage.close()
    storage = made(directory, stacked, sequences=Sequences(4), **given)
    storage.seed(0)
    if len(storage):
        for batch in storage.generate_batches(1, 32):
            stream.assert_sequences_true(batch)
    storage.close()
    return stored


def damage_each(kind: str, count: int, directory: Path) -> None:
    found, wrong = Counter[str](), []
    with small_files():
        stream = filled(kind, directory)
        intact = held_in_copy(kind, directory)
        there = directory / "there"
        for damage in damages(there, directory / "intact", directory / "older", count, np.random.default_rng(0)):
            try:
                found[outcome_of(kind, there, damage.files, intact, stream)] += 1
            except (AssertionError, PersistenceError, ValueError, KeyError, OSError, IndexError, TypeError) as error:
                wrong.append(
                    f"{damage.way} {[str(file) for file in damage.files]}: {type(error).__name__} {error}"[:500]
                )
    print(f"{kind}: {count} damages, {dict(found)}, {len(wrong)} wrong")  # noqa: T201
    assert not wrong, f"{kind}: {len(wrong)} of {count}:\n" + "\n".join(wrong[:20])


def held_in_copy(kind: str, directory: Path) -> Any:
    shutil.copytree(directory / "intact", directory / "there")
    return held(kind, directory / "there")


def outcome_of(kind: str, there: Path, files: tuple[Path, ...], intact: Any, stream: Numbered) -> str:
    """Open a damaged directory, and repair it if it is refused; return the outcome."""
    try:
        opened = held(kind, there)
    except PersistenceError as error:
        message = str(error)
    else:
        assert opened == intact, "a damaged directory was opened with other content"
        return "no effect"
    # The error may name the files beside a missing one.
    assert any(file.name in message or f"{(there / file).parent}/0" in message for file in files), message
    done = repair(there)
    assert done.dropped
    assert_true(kind, there, stream)
    assert repair(there).dropped == ()
    return "named and repaired"


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("kind", ["ring of stacks with priorities", "episodes of stacks with priorities"])
def test_damaged_files_are_named_and_the_remaining_data_is_correct(kind: str, tmp_path: Path) -> None:
    damage_each(kind, 20, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_named_and_the_remaining_data_is_correct(kind: str, tmp_path: Path) -> None:
    damage_each(kind, by_profile(quick=40, full=125, nightly=500), tmp_path)
