"""Damaged files: an error names each one, their content is not used as data, and the remaining data is correct."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import PERBuffer, PersistentEpisodicBuffer, Sequences
from storages.persistent import PersistenceError, repair
from storages.transition import ACT, DISCOUNT, DONE, DONE2, ERRORS, INDICES, MASK, OBS, OBS2, REW, TRUNC2
from tests.support.damage import damages
from tests.support.histories import small_files
from tests.support.model import ALGORITHM, GAMMA, contents, map_leaves
from tests.support.profiles import by_profile

NUM_ENVS, DEPTH = 2, 3
_OF_AN_ENVIRONMENT = 10_000
LENGTHS = (7, 3, 11, 5, 1, 8)
"""Lengths of episodes, in turn."""
ENVIRONMENTS = SimpleNamespace(num_envs=NUM_ENVS, stacked_frames=DEPTH)


class Numbered:
    """A stream of such steps; if ``stacked``, observations are stacks of the last frames."""

    def __init__(self, stacked: bool) -> None:
        self.stacked = stacked
        self._at = [(env + 1) * _OF_AN_ENVIRONMENT for env in range(NUM_ENVS)]
        self._begun = list(self._at)
        self._episodes = list(range(NUM_ENVS))
        self.begins: dict[int, int] = {}
        """The first number of the episode of each number."""
        self.ends: dict[int, str] = {}
        """The flag of the end, for the last number of each episode."""

    def step(self) -> dict[str, Any]:
        seen = [(at, begun) for at, begun in zip(self._at, self._begun, strict=True)]
        flags = {DONE: [at == begun for at, begun in seen], DONE2: [], TRUNC2: []}
        for env, (at, begun) in enumerate(seen):
            self.begins[at] = self.begins[at + 1] = begun
            ended = at + 1 - begun == LENGTHS[self._episodes[env] % len(LENGTHS)]
            flag = DONE2 if self._episodes[env] % 2 else TRUNC2
            flags[DONE2].append(ended and flag == DONE2)
            flags[TRUNC2].append(ended and flag == TRUNC2)
            self._at[env] += 2 if ended else 1
            if ended:
                self.ends[at] = flag
                self._episodes[env] += 1
                self._begun[env] = self._at[env]
        numbers = np.array([at for at, _ in seen])
        return {
            OBS: self.observation(numbers),
            ACT: numbers[:, None] % 7,
            REW: numbers[:, None].astype(np.float32),
            OBS2: self.observation(numbers + 1),
            **{key: np.array(flag)[:, None] for key, flag in flags.items()},
        }

    def observation(self, numbers: Any) -> Any:
        """(N, 1) or (N, depth, 1): the observation at each number."""
        numbers = np.asarray(numbers, np.int64)
        if not self.stacked:
            return numbers[:, None].astype(np.float32)
        begun = np.array([self.begins[number] for number in numbers.tolist()])
        older = numbers[:, None] - np.arange(DEPTH - 1, -1, -1)
        return np.maximum(older, begun[:, None])[..., None].astype(np.float32)

    # Checks

    def assert_true(self, rows: dict[str, Any]) -> None:
        """Assert that each of the rows (N, ...) is an inserted transition."""
        numbers = rows[REW][:, 0].astype(np.int64)
        assert set(numbers.tolist()) <= self.begins.keys()
        assert np.array_equal(rows[OBS], self.observation(numbers))
        assert np.array_equal(rows[OBS2], self.observation(numbers + 1))
        assert np.array_equal(rows[ACT][:, 0], numbers % 7)
        stored = set(numbers.tolist())
        for number, first in zip(numbers.tolist(), rows[DONE][:, 0].astype(bool).tolist(), strict=True):
            # The first row after missing steps is marked as a start, too.
            assert first == (self.begins[number] == number) or (first and number - 1 not in stored)
        for flag in (DONE2, TRUNC2):
            ended = [self.ends.get(one) == flag for one in numbers.tolist()]
            assert rows[flag][:, 0].astype(bool).tolist() == ended

    def assert_windows_true(self, batch: Any, n_step: int) -> None:
        """Assert that each row of a batch sums up the rewards of consecutive steps."""
        rows = {key: value.numpy() for key, value in batch.items() if isinstance(value, torch.Tensor)}
        newest, following = (_newest(rows[key])[:, 0].astype(np.int64) for key in (OBS, OBS2))
        assert np.array_equal(rows[OBS], self.observation(newest))
        assert np.array_equal(rows[OBS2], self.observation(following))
        steps = following - newest
        assert ((steps >= 1) & (steps <= n_step)).all()
        for row, (first, count) in enumerate(zip(newest.tolist(), steps.tolist(), strict=True)):
            assert self.begins[first] == self.begins[first + count]
            reward = sum(GAMMA**later * (first + later) for later in range(count))
            assert np.isclose(rows[REW][row, 0], reward, rtol=1e-5)
            terminated = self.ends.get(first + count - 1) == DONE2
            assert np.isclose(rows[DISCOUNT][row, 0], 0 if terminated else GAMMA**count)

    def assert_sequences_true(self, batch: Any) -> None:
        """Assert that each sequence (T, B, ...) has consecutive steps of one episode."""
        seen, real = _newest(batch[OBS].numpy())[..., 0].astype(np.int64), batch[MASK].numpy()[..., 0] == 1
        assert ((seen[1:] == seen[:-1] + 1) | ~real[1:]).all()
        for sequence in range(seen.shape[1]):
            numbers = seen[real[:, sequence], sequence].tolist()
            assert len({self.begins[number] for number in numbers}) == 1


def _newest(observation: Any) -> Any:
    return observation[..., -1, :] if observation.shape[-2:] == (DEPTH, 1) else observation


def environments(stacked: bool) -> Any:
    return ENVIRONMENTS if stacked else SimpleNamespace(num_envs=NUM_ENVS)


__all__ = ["ALGORITHM", "Numbered", "environments"]


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
