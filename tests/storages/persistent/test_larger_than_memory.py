"""Data larger than memory is drawn evenly, within the memory budget and reproducibly."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, PersistentEpisodicBuffer, Sequences
from storages.transition import ACT, DONE, DONE2, MASK, OBS, OBS2, REW, TRUNC2
from tests.storages.persistent import limited_memory
from tests.support.episodic import Twins, updated
from tests.support.model import ALGORITHM, through_a_file

BUDGET = 30_000
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": "largest"}


def filled(directory: Path, episodes: int = 300, length: int = 10, memory: int = BUDGET, **given: Any) -> Any:
    """A buffer whose actions number the transitions."""
    factory = PersistentEpisodicBuffer.create_factory(None, directory, memory_bytes=memory, **given)
    storage = factory("cpu", None, ALGORITHM, None)
    storage.seed(0)
    for number in range(episodes * length):
        last = number % length == length - 1
        storage.insert_transition(
            {
                OBS: np.full((1, 3), number, np.float32),
                DONE: np.array([[number % length == 0]]),
                ACT: np.array([[number]]),
                REW: np.ones((1, 1), np.float32),
                OBS2: np.full((1, 3), number + 1, np.float32),
                DONE2: np.array([[last]]),
                TRUNC2: np.array([[False]]),
            }
        )
    return storage


@pytest.mark.long
def test_over_several_passes_all_transitions_are_drawn_equally_often(tmp_path: Path) -> None:
    storage = filled(tmp_path)
    in_memory, stored = storage.ring.live_steps, len(storage)
    assert stored == 3000
    assert stored > 4 * in_memory
    counts = np.zeros(stored)
    # Each pass draws every transition 8 times on average. The first is not counted: the newest data is still in memory.
    draws = 8 * stored
    for repetition in range(9):
        for batch in storage.generate_batches(draws // 100, 100):
            assert np.array_equal(batch[OBS][:, 0], batch[ACT][:, 0])
            assert np.array_equal(batch[OBS2][:, 0], batch[ACT][:, 0] + 1)
            if repetition:
                counts += np.bincount(batch[ACT][:, 0], minlength=stored)
    expected = counts.mean()
    assert expected == pytest.approx(64)
    by_tenths = counts.reshape(10, -1).mean(axis=1)
    assert np.all(np.abs(by_tenths / expected - 1) < 0.06), by_tenths
    # In no order of the passes is a transition left out or preferred.
    assert counts.min() > 25
    assert counts.max() < 120
    assert counts.std() < 2.0 * np.sqrt(expected)
    storage.close()


@pytest.mark.quick_share(0.2, long=0.6)
@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="plain", marks=pytest.mark.long),
        pytest.param(PRIORITIES, id="priority"),
        pytest.param({"sequences": Sequences(4, burn_in=2), **PRIORITIES}, id="memory"),
        pytest.param({"sequences": Episodes(), **PRIORITIES}, id="episodes", marks=pytest.mark.long),
        pytest.param({"sequences": Episodes(longest=2, packed=True, whole=False)}, id="pieces"),
        pytest.param({"sequences": Episodes(max_steps=2, packed=True)}, id="random pieces", marks=pytest.mark.long),
    ],
)
def test_loading_a_state_restores_the_data_in_memory(given: dict[str, Any], tmp_path: Path) -> None:
    twins = Twins(tmp_path, "frames", size=None, memory_bytes=20_000, commit_every=50, **given)
    for _ in range(3):
        twins.insert(150)
        twins.update()
        assert twins.one.ring.live_steps < len(twins.one)
        twins.two.state_dict()
        state = through_a_file(twins.one.state_dict())
        for seed in range(5):
            updated(twins.one, seed)
        twins.one.close()
        twins.one = twins.opened()
        twins.one.load_state_dict(state)
        for _ in range(10):
            twins.update()
    twins.reopen()
    for _ in range(10):
        twins.update()
    twins.close()


def test_errors_are_restored_when_transitions_return_to_memory(tmp_path: Path) -> None:
    storage = filled(tmp_path, episodes=200, **{**PRIORITIES, "default_error": 1.0})
    seen: dict[int, float] = {}
    for batch in storage.generate_batches(600, 32):
        numbers = batch[ACT][:, 0].numpy()
        errors = (numbers % 7).astype(np.float32) / 7 + 0.1
        storage.after_gradients(batch, {"Errors": torch.from_numpy(errors[:, None])})
        seen |= dict(zip(numbers.tolist(), errors.tolist(), strict=True))
    storage.flush()
    storage.close()
    again = PersistentEpisodicBuffer.create_factory(None, tmp_path, memory_bytes=BUDGET, **PRIORITIES)(
        "cpu", None, ALGORITHM, None
    )
    for one in (storage, again):
        data = one.get_all_buffer_data()[ACT][:, 0, 0].tolist()
        errors = one.priorities.errors_of(one.ring.start, one.ring.end).tolist()
        met = [(number, error) for number, error in zip(data, errors, strict=True) if number in seen]
        assert len(met) > 100
        assert all(error == pytest.approx(seen[number]) for number, error in met)
    again.close()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("length", [1, 3])
def test_short_episodes_do_not_exceed_the_budget(length: int, tmp_path: Path) -> None:
    storage = filled(tmp_path, episodes=1000, length=length)
    list(storage.generate_batches(100, 32))
    assert storage.nbytes <= BUDGET
    storage.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts, and limits, all private memory of a process")
@pytest.mark.long
def test_a_process_limited_to_a_quarter_of_the_data_in_memory_draws_all_of_it(tmp_path: Path) -> None:
    budget, slack = 32 << 20, 32 << 20
    episodes = 4 * budget // (limited_memory.LENGTH * limited_memory.BYTES_OF_A_STEP) + 1
    limited_memory.fill(tmp_path / "kept", episodes, budget)
    finished = subprocess.run(
        [sys.executable, limited_memory.__file__, str(tmp_path / "kept"), str(budget), str(slack)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(finished.stdout)
    for kind in limited_memory.KINDS:
        drawn = figures[kind]
        assert drawn["stored"] == episodes * limited_memory.LENGTH > 4 * drawn["in memory"]
        assert drawn["episodes met"] == episodes
        assert drawn["storage's bytes"] <= budget
        assert drawn["private bytes"] <= budget
    assert figures["with more"] == "refused", "the memory limit has no effect"


def test_sequences_do_not_reach_into_other_episodes(tmp_path: Path) -> None:
    storage = filled(tmp_path, sequences=Sequences(6))
    for batch in storage.generate_batches(200, 16):
        numbers, real = batch[ACT][..., 0].numpy(), batch[MASK][..., 0].numpy() > 0
        steps = np.diff(numbers, axis=0)
        assert np.all(np.where(real[1:], steps == 1, steps == 0))
        assert np.all(numbers // 10 == numbers[:1] // 10)
    storage.close()


def test_the_error_for_too_little_memory_names_the_required_bytes(tmp_path: Path) -> None:
    storage = PersistentEpisodicBuffer.create_factory(None, tmp_path, memory_bytes=100)("cpu", None, ALGORITHM, None)
    with pytest.raises(ValueError, match=r"PersistentEpisodicBuffer: memory_bytes must be at least \d+"):
        storage.insert_transition(
            {
                OBS: np.zeros((1, 30)),
                DONE: np.ones((1, 1)),
                ACT: np.zeros((1, 1)),
                REW: np.zeros((1, 1)),
                OBS2: np.zeros((1, 30)),
                DONE2: np.zeros((1, 1)),
            }
        )


def test_less_memory_than_stored_episodes_need_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 20, 100, memory=10_000_000).close()
    with pytest.raises(ValueError, match=r"memory_bytes must be at least \d+ for the longest episodes in"):
        PersistentEpisodicBuffer.create_factory(None, tmp_path, memory_bytes=BUDGET)("cpu", None, ALGORITHM, None)


def test_bytes_on_disk_are_limited_by_deleting_the_oldest_episodes(tmp_path: Path) -> None:
    storage = filled(tmp_path, size_bytes=20_000)
    storage.flush()
    chunks = sum(path.stat().st_size for path in tmp_path.rglob("c.*"))
    assert 10_000 < chunks < 30_000
    assert len(storage) < 2500
    first = next(iter(storage.episodes()))
    assert first.fields[ACT][0, 0] == 3000 - len(storage)
    storage.close()
