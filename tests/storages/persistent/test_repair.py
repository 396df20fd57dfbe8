"""Repairs: damaged data is dropped and named, other data is unchanged, and steps are not joined across a gap."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages.persistent import DamageError, PersistenceError, Position, read_state, repair
from storages.persistent.log import records as blocks
from storages.persistent.replay import write_ahead_log
from storages.transition import ACT, DONE, DONE2, ERRORS, INDICES, MASK, OBS, OBS2, REW, TRUNC2
from tests.support.directories import WAYS, Pair, made, small_segments
from tests.support.model import ALGORITHM, KINDS, Stream, assert_row_equal, contents, environments, map_leaves

STEPS, SIZE, COMMIT = 60, 40, 5


def filled(way: str, directory: Path, kind: str, num_envs: int = 2) -> list[Any]:
    """Fill a directory and return the inserted samples; each reward is the number of its step."""
    stream = Stream(num_envs, kind, False, np.random.default_rng(0))
    storage = made(way, directory, environments(kind, num_envs), size=SIZE, commit_every=1000)
    storage.seed(0)
    samples = []
    with small_segments():
        for step in range(STEPS):
            sample = map_leaves(stream.step(), np.array) | {REW: np.full((num_envs, 1), step, np.float32)}
            storage.insert_transition(sample)
            samples.append(sample)
            if step % COMMIT == COMMIT - 1:
                if way != "plain":
                    for batch in storage.generate_batches(1, 8):
                        # Errors that identify their transitions.
                        shape = batch[MASK].shape if MASK in batch else batch[INDICES].shape
                        storage.after_gradients(batch, {ERRORS: (100.0 + batch[INDICES].double()).expand(shape)})
                storage.flush()
    storage.close()
    return samples


def damage(path: Path, block: int, place: int) -> blocks.Record:
    """Change a byte of a record; return the original record."""
    found = [one for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    begin = found[block - 1].end if block else 0
    data = bytearray(path.read_bytes())
    data[begin + place if place >= 0 else found[block].end + place] ^= 4
    path.write_bytes(data)
    return found[block].record


def rows_of(storage: Any) -> Any:
    return map_leaves(storage.get_all_buffer_data(), torch.Tensor.numpy)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("way", "kind", "place"),
    [
        (way, kind, (20, -50)[(row + number) % 2])
        for number, kind in enumerate(KINDS)
        for row, way in enumerate(("plain", "priority"))
    ],
)
def test_a_repaired_storage_keeps_all_but_the_damaged_steps(way: str, kind: str, place: int, tmp_path: Path) -> None:
    samples = filled(way, tmp_path, kind)
    envs = environments(kind, 2)
    with_blocks = [(path, n) for path in sorted(tmp_path.glob("*.steps")) for n, _ in enumerate(blocks.read(path))]
    path, number = with_blocks[len(with_blocks) // 2]
    (oldest, *_) = (
        found.record.first for found in blocks.read(with_blocks[0][0]) if isinstance(found, blocks.StoredRecord)
    )
    lost = damage(path, number, place)
    with pytest.raises(DamageError, match=rf"{path.name} is damaged.*repair\('{tmp_path}'\)"):
        made(way, tmp_path, envs, size=SIZE)
    done = repair(tmp_path)
    assert len(done.dropped) == 1
    assert path.name in done.dropped[0]
    assert f"steps {lost.first} to" in done.dropped[0]
    assert "was dropped" in str(done)
    storage = made(way, tmp_path, envs, size=SIZE)
    assert done.steps == storage.ring.live_steps
    numbers = rows_of(storage)[REW][:, 0, 0].astype(int).tolist()
    depth = 3 if "frames" in kind else 1
    # Stacks may refer to frames that were lost, or that had been overwritten before.
    whole = [step for step in range(STEPS) if not lost.first <= step < lost.steps]
    reaching_back = {first + step for first in (lost.steps, oldest) for step in range(depth - 1)}
    assert set(whole[-SIZE:]) - set(numbers) <= reaching_back
    assert set(numbers) <= set(whole)
    assert numbers == sorted(set(numbers))
    rows = storage.get_all_buffer_data()
    for row, step in enumerate(numbers):
        for env in range(2):
            assert_row_equal(map_leaves(rows, lambda leaf, row=row: leaf[row]), env, samples[step], env)
    gap = numbers.index(max(step for step in numbers if step < lost.first))
    assert storage.ring.broken()[gap].all()
    assert not repair_of_closed(storage, tmp_path).dropped


def repair_of_closed(storage: Any, directory: Path) -> Any:
    storage.close()
    return repair(directory)


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_a_repaired_storage_accepts_insertions_and_can_be_reopened(way: str, tmp_path: Path) -> None:
    filled(way, tmp_path, "dict")
    paths = sorted(tmp_path.glob("*.steps"))
    damage(paths[1], 0, 100)
    damage(paths[-1], 0, -40)
    assert len(repair(tmp_path).dropped) == 2
    pair = Pair(way, tmp_path / "other", "dict")
    storage = made(way, tmp_path, size=SIZE, commit_every=3)
    for _ in range(50):
        sample = {key: value for key, value in pair._stream.step().items() if "Hidden" not in key}
        storage.insert_transition(sample)
        assert len(list(storage.generate_batches(2, 8))) == 2
    before = rows_of(storage)
    storage.close()
    again = made(way, tmp_path, size=SIZE)
    for key in (REW, DONE2, TRUNC2):
        assert np.array_equal(rows_of(again)[key], before[key])
    again.close()
    pair.close()


def test_the_remaining_errors_stay_with_their_transitions(tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    storage = made("priority", tmp_path, size=SIZE)
    before = dict(zip(rows_of(storage)[REW].ravel().tolist(), _errors(storage), strict=True))
    storage.close()
    assert len({error for error in before.values() if error >= 100}) > 10
    path = sorted(tmp_path.glob("*.steps"))[-2]
    damage(path, 0, 20)
    repair(tmp_path)
    storage = made("priority", tmp_path, size=SIZE)
    after = list(zip(rows_of(storage)[REW].ravel().tolist(), _errors(storage), strict=True))
    # Two environments share a reward; ``before`` has the error of the second one.
    for (reward, _), (other, error) in zip(after[::2], after[1::2], strict=True):
        assert reward == other
        if reward in before:
            assert error == before[reward]
    storage.close()


def _errors(storage: Any) -> list[float]:
    errors: list[float] = storage.priorities.state_dict()["errors"].tolist()
    return errors


def test_a_repair_keeps_the_earlier_errors_where_changed_ones_are_lost(tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    path = max(tmp_path.glob("*.steps"))
    *_, before, lost, _ = (one for one in blocks.read(path) if isinstance(one, blocks.StoredRecord))
    position: Position = {"commit": before.record.commit, "checksum": before.checksum}
    earlier = read_state(tmp_path, position)["priorities"]["errors"].tolist()
    damage(path, len(list(blocks.read(path))) - 2, 70)
    with pytest.raises(DamageError, match=rf"{path.name} is damaged"):
        made("priority", tmp_path, size=SIZE)
    (dropped,) = repair(tmp_path).dropped
    assert f"where steps {lost.record.first} to {lost.record.steps}" in dropped
    storage = made("priority", tmp_path, size=SIZE)
    assert _errors(storage) == earlier[-len(storage) :]
    assert len(list(storage.generate_batches(3, 8))) == 3
    storage.close()


@pytest.mark.parametrize("seed", range(12))
def test_after_random_damage_and_a_repair_all_remaining_data_is_as_inserted(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    way, envs = ["priority", "recency", "sequences"][seed % 3], environments(kind, 2)
    samples = filled(way, tmp_path, kind)
    for path in sorted(tmp_path.glob("*.steps")):
        for _ in range(random.integers(0, 3)):
            data = bytearray(path.read_bytes())
            begin = int(random.integers(len(data)))
            data[begin : begin + 5] = bytes(5)
            # Some files are truncated, some deleted.
            path.write_bytes(data[:begin] if random.random() < 0.2 else data)
        if random.random() < 0.1:
            path.unlink()
    steps = repair(tmp_path).steps
    assert not repair(tmp_path).dropped
    storage = made(way, tmp_path, envs, size=SIZE)
    assert storage.ring.live_steps == steps
    rows = storage.get_all_buffer_data()
    numbers = rows[REW][:, 0, 0].int().tolist() if steps else []
    assert numbers == sorted(set(numbers))
    for row, step in enumerate(numbers):
        for env in range(2):
            assert_row_equal(map_leaves(rows, lambda leaf, row=row: leaf[row]), env, samples[step], env)
        if row and step != numbers[row - 1] + 1:
            assert storage.ring.broken()[row - 1].all()
    if steps:
        assert len(list(storage.generate_batches(2, 8))) == 2
    storage.close()


def test_a_newest_file_without_an_intact_record_is_dropped(tmp_path: Path) -> None:
    samples = filled("priority", tmp_path, "vector")
    path = max(tmp_path.glob("*.steps"))
    (first, *_) = (found.record.first for found in blocks.read(path) if isinstance(found, blocks.StoredRecord))
    path.write_bytes(b"x" * path.stat().st_size)
    assert path.name in repair(tmp_path).dropped[0]
    assert not path.exists()
    storage = made("priority", tmp_path, size=SIZE)
    assert rows_of(storage)[REW][-1, 0, 0] == first - 1
    assert_row_equal(map_leaves(storage.get_all_buffer_data(), lambda leaf: leaf[-1]), 0, samples[first - 1], 0)
    storage.close()


def test_no_window_of_several_steps_reaches_across_a_gap(tmp_path: Path) -> None:
    flag, obs = np.zeros((1, 1), bool), np.zeros((1, 3), np.float32)
    # The observations before and after the gap are equal, so that only the repair can tell the steps apart.
    unending = {OBS: obs, OBS2: obs, DONE: flag, DONE2: flag, TRUNC2: flag, ACT: np.zeros((1, 1), np.int64)}
    storage = made("n steps", tmp_path, size=SIZE, commit_every=1000)
    for step in range(15):
        storage.insert_transition(unending | {REW: np.full((1, 1), step, np.float32)})
        if step % 5 == 4:
            storage.flush()
    storage.close()
    (path,) = tmp_path.glob("*.steps")
    lost = damage(path, 2, 30)
    assert (lost.first, lost.steps) == (5, 10)
    repair(tmp_path)
    storage = made("n steps", tmp_path, size=SIZE)
    (batch,) = storage.generate_batches(1, 500)
    drawn = (batch[INDICES] - storage.ring.oldest).numpy()
    windows = [run[first : first + 3] for run in (range(5), range(10, 15)) for first in range(5)]
    returns = [sum(ALGORITHM.gamma**place * step for place, step in enumerate(window)) for window in windows]
    assert np.allclose(batch[REW], np.array(returns)[drawn])
    assert set(drawn.ravel().tolist()) == set(range(10))
    storage.close()


@pytest.mark.parametrize("kind", ["vector", "dict of frames"])
def test_a_repair_of_an_intact_storage_changes_no_files(kind: str, tmp_path: Path) -> None:
    filled("priority", tmp_path, kind)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert min(before) > "000000000001", "the oldest files were dropped already"
    done = repair(tmp_path)
    assert (done.dropped, done.steps) == ((), SIZE)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} | {"lock": b""} == before | {"lock": b""}


def test_directories_that_cannot_be_repaired_are_refused_and_left_unchanged(tmp_path: Path) -> None:
    with pytest.raises(PersistenceError, match="is no directory"):
        repair(tmp_path / "nowhere")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(PersistenceError, match="holds something else"):
        repair(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    pair = Pair("plain", tmp_path / "kept")
    with pytest.raises(PersistenceError, match="holds no storage"):
        repair(tmp_path / "kept")
    pair.insert(3)
    pair.kept.flush()
    with pytest.raises(PersistenceError, match="in use by"):
        repair(tmp_path / "kept")
    pair.close()
    assert str(repair(tmp_path / "kept")) == "nothing is damaged; 3 steps are there"


@pytest.mark.parametrize("kind", ["frames", "dict of frames"])
@pytest.mark.parametrize("seed", range(3))
def test_no_frame_stack_crosses_a_gap_before_commits_of_a_few_steps(
    seed: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One file.
    monkeypatch.setattr(write_ahead_log, "_SMALLEST_LOG_FILE_BYTES", 1 << 20)
    random, envs = np.random.default_rng(seed), environments(kind, 2)
    stream, samples = Stream(2, kind, True, np.random.default_rng(seed)), []
    storage = made("plain", tmp_path, envs, size=SIZE, commit_every=1000)
    for step in range(30):
        sample = map_leaves(stream.step(), np.array) | {REW: np.full((2, 1), step, np.float32)}
        storage.insert_transition(sample)
        samples.append(sample)
        if step in (9, 14) or (step > 14 and random.random() < 0.6):
            storage.flush()
    storage.close()
    (path,) = tmp_path.glob("*.steps")
    lost = damage(path, 2, -50)
    assert (lost.first, lost.steps) == (10, 15)
    repair(tmp_path)
    storage = made("plain", tmp_path, envs, size=SIZE)
    rows = storage.get_all_buffer_data()
    numbers = rows[REW][:, 0, 0].int().tolist()
    assert numbers[:10] == list(range(10))
    assert set(range(17, 30)) <= set(numbers[10:]) <= set(range(15, 30))
    for row, step in enumerate(numbers):
        for env in range(2):
            assert_row_equal(map_leaves(rows, lambda leaf, row=row: leaf[row]), env, samples[step], env)
    assert storage.ring.broken()[9].all()
    storage.close()


def test_steps_before_a_reset_do_not_return_if_the_commit_after_the_reset_is_lost(tmp_path: Path) -> None:
    pair = Pair("plain", tmp_path, size=SIZE, commit_every=1000)
    pair.insert(6)
    pair.kept.flush()
    for storage in (pair.kept, pair.twin):
        storage.reset()
    pair.insert(4)
    pair.kept.flush()
    pair.insert(5)
    pair.close()
    (path,) = tmp_path.glob("*.steps")
    found = [one for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    for place in reversed([place for place, one in enumerate(found) if place and one.record.facts["begins"]]):
        damage(path, place, -50)
    assert repair(tmp_path).steps == 5
    storage = made("plain", tmp_path, size=SIZE)
    assert np.array_equal(rows_of(storage)[REW], rows_of(pair.twin)[REW][4:])
    storage.close()


@pytest.mark.parametrize("way", ["plain", "priority"])
@pytest.mark.parametrize("left", ["garbage", "a changed header", "a changed record"])
def test_commits_of_checkpoints_remain_if_only_the_end_is_damaged(left: str, way: str, tmp_path: Path) -> None:
    pair = Pair(way, tmp_path)
    pair.insert(6)
    pair.update()
    pair.kept.flush()
    position, expected = pair.kept.position, contents(pair.kept)
    pair.kept.pin(position)
    pair.insert(3)
    pair.update()
    pair.close()
    (tmp_path / "closed.json").unlink()
    path = max(tmp_path.glob("*.steps"))
    if left == "garbage":
        with path.open("ab") as file:
            file.write(np.random.default_rng(0).bytes(500))
    else:
        damage(path, len(list(blocks.read(path))) - 1, 9 if left == "a changed header" else -50)
    with pytest.raises(DamageError, match=path.name):
        made(way, tmp_path)
    done = repair(tmp_path)
    assert len(done.dropped) == 1
    assert path.name in done.dropped[0]
    assert not repair(tmp_path).dropped
    storage = made(way, tmp_path)
    assert storage.ring.live_steps == done.steps
    storage.roll_back(position)
    assert contents(storage) == expected
    storage.close()
