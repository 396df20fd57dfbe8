"""Commits with correct checksums that were not written by this package."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.core.ring.snapshot import ArrayKey
from storages.persistent import DamageError, PersistenceError, read_state, repair
from storages.persistent.log import records as blocks
from storages.persistent.log.json_file import read_verified, write_verified
from storages.persistent.log.records import Record
from storages.transition import REW
from tests.storages.persistent.test_repair import filled, rows_of
from tests.support.directories import Pair, made
from tests.support.episodic import buffer
from tests.support.model import Stream, contents, environments

SIZE = 40
MOST_BYTES = 100 << 20


def rewritten(path: Path, change: Callable[[Record], Record]) -> None:
    """Change the last record of a file that has rows, and drop those after it, which refer to its checksum."""
    found = [one.record for one in blocks.read(path) if isinstance(one, blocks.StoredRecord)]
    copies = [replace(one, arrays={name: (pieces[0].copy(),) for name, pieces in one.arrays.items()}) for one in found]
    held = [len(next(iter(one.arrays.values()))[0]) for one in copies]
    newest = max(place for place, rows in enumerate(held) if rows)
    copies[newest:] = [change(copies[newest])]
    with path.open("wb") as file:
        for one in copies:
            blocks.write(file.fileno(), one)


def array(role: str, change: Callable[[Any], Any]) -> Callable[[Record], Record]:
    def do(block: Record) -> Record:
        arrays: Any = {n: (change(a[0]),) if n.role == role else a for n, a in block.arrays.items()}
        assert any(n.role == role for n in arrays)
        return replace(block, arrays=arrays)

    return do


def facts(**changed: Any) -> Callable[[Record], Record]:
    return lambda block: replace(block, facts=block.facts | changed)


def one_final_observation(block: Record) -> Record:
    """Flag several final observations and store only one of them."""
    block = array("has final", lambda a: a | True)(block)
    taken = next(int(a[0].sum()) for name, a in block.arrays.items() if name.role == "has final")
    assert taken > 1
    return array("final", lambda a: np.zeros((1, a.shape[1]), a.dtype))(block)


STEPS: dict[str, Callable[[Record], Record]] = {
    "one final observation for several": one_final_observation,
    "final observations of another size": array("final", lambda a: np.zeros((len(a), a.shape[1] + 1), a.dtype)),
    "a row too few": array("rows", lambda a: a[:-1]),
    "rows of one environment": array("rows", lambda a: a[:, :1]),
    "rows of another dtype": array("rows", lambda a: a.astype(np.float16)),
    "rows of objects": array("rows", lambda a: a.astype("S3")),
    "flags that are neither true nor false": array("ended", lambda a: np.full(a.shape, 7, np.uint8).view(np.bool_)),
    "ends of one environment": array("ended", lambda a: a[:1]),
    "following observations of one environment": array("following", lambda a: a[:1]),
    "final flags of too many rows": array("has final", lambda a: np.concatenate([a, a, a])),
    "more preceding frames than a stack has": array("before", lambda a: np.full_like(a, 200)),
    "preceding frames of one row": array("before", lambda a: a[:1]),
    "an unknown padding of stacks": array("padding", lambda a: np.full_like(a, -7)),
    "missing padding frames": array("padding", lambda a: np.full_like(a, 5)),
    "padding frames of another size": array("padding frames", lambda a: np.zeros((3, 5), a.dtype)),
    "a newest stack of one frame": array("newest", lambda a: a[:, :1]),
    "errors of one environment": array("errors", lambda a: a[:, :1]),
    "infinite errors": array("errors", lambda a: np.full_like(a, np.inf)),
    "changed errors of two axes": array("changed errors", lambda a: a[:, None]),
    "changed errors of another dtype": array("changed errors", lambda a: a.astype(np.int64)),
    "infinite changed errors": array("changed errors", lambda a: np.full_like(a, -np.inf)),
    "too few changed errors": array("changed errors", lambda a: a[:-1]),
    "changed errors of missing transitions": array("offsets", lambda a: a + 10**6),
    "transitions of another dtype": array("offsets", lambda a: a.astype(np.int64)),
    "an oldest transition that does not exist": facts(start=10**6),
    "an oldest transition that is a string": facts(start="one"),
    "another array": lambda block: replace(block, arrays=block.arrays | {ArrayKey("more"): (np.zeros(3),)}),
    "no array": lambda block: replace(block, arrays={}),
    "no facts": lambda block: replace(block, facts={"begins": False}),
    "a begins flag that is a number": facts(begins=1),
    "a first step after the steps of the commit": facts(since=10**9),
    "a negative first step": facts(since=-1),
    "a needed step that is a string": facts(needed="one"),
    "pins that are strings": facts(pinned=["one", "two"]),
    "no state": facts(state=None),
    "a checksum that is a string": facts(after="one"),
    "shifted step numbers": lambda block: replace(block, first=block.first + 3, steps=block.steps + 3),
    "more steps than a storage can have": lambda block: replace(block, steps=block.first + 10**15),
    "step numbers that overflow": lambda block: replace(block, first=2**64 - 9, steps=2**64 - 4),
}
OF_FRAMES = {name for name in STEPS if "frame" in name or "stack" in name}


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


def assert_named_and_dropped(path: Path, kind: str, samples: list[Any]) -> None:
    directory, envs = path.parent, environments(kind, 2)
    (directory / "closed.json").unlink(missing_ok=True)
    crafted = contents_of(directory)
    with pytest.raises(DamageError, match=path.name):
        made("priority", directory, envs, size=SIZE)
    with pytest.raises(DamageError, match=path.name):
        read_state(directory)
    assert contents_of(directory) == crafted
    assert any(path.name in one for one in repair(directory).dropped)
    storage = made("priority", directory, envs, size=SIZE)
    rewards = rows_of(storage)[REW][..., 0] if storage.ring.live_steps else np.zeros((0, 2))
    assert len(rewards) > 0
    for row in rewards:
        assert np.array_equal(row, samples[int(row[0])][REW][:, 0])
    storage.close()


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize("defect", STEPS)
def test_a_crafted_commit_is_refused_without_changes_and_dropped_by_a_repair(defect: str, tmp_path: Path) -> None:
    kind = "frames" if defect in OF_FRAMES else "vector"
    samples = filled("priority", tmp_path, kind)
    path = max(tmp_path.glob("*.steps"))
    rewritten(path, STEPS[defect])
    assert_named_and_dropped(path, kind, samples)


STATES: dict[str, Any] = {
    "an empty state": {},
    "a generator that is a number": {"generator": 7},
    "an incomplete generator": {"generator": {"bit_generator": "PCG64"}},
}


@pytest.mark.parametrize("defect", STATES)
def test_a_crafted_state_in_a_commit_is_refused_by_the_name_of_the_directory(defect: str, tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    (tmp_path / "closed.json").unlink()
    rewritten(max(tmp_path.glob("*.steps")), facts(state=STATES[defect] | {"priorities": {"largest_error": 1.0}}))
    with pytest.raises(DamageError, match=f"{tmp_path} is damaged, .* holds no valid state of a PERBuffer"):
        made("priority", tmp_path, environments("vector", 2), size=SIZE)


def changed_state(change: Callable[[dict[str, Any]], Any]) -> Callable[[Record], Record]:
    """Change the state of a commit; the change may be in place."""

    def do(block: Record) -> Record:
        state = json.loads(json.dumps(block.facts["state"]))
        change(state)
        return replace(block, facts=block.facts | {"state": state})

    return do


UNUSABLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a generator of another kind": lambda state: state["generator"].update(bit_generator="MT19937"),
    "a generator without its kind": lambda state: state["generator"].pop("bit_generator"),
    "a generator of too large numbers": lambda state: state["generator"]["state"].update(state=2**200),
    "no generator": lambda state: state.pop("generator"),
    "a count that is a text": lambda state: state.update(inserted="x"),
    "a count that is a list": lambda state: state.update(inserted=[[]]),
    "a negative count": lambda state: state.update(inserted=-1),
    "a count that is a fraction": lambda state: state.update(sampled=0.5),
    "draws that are a text": lambda state: state.update(sampled="x"),
}


@pytest.mark.parametrize("defect", UNUSABLE)
def test_an_unusable_generator_or_count_is_refused_and_a_repair_keeps_all_steps(defect: str, tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    storage = made("priority", tmp_path, environments("vector", 2), size=SIZE)
    expected = contents(storage)
    storage.close()
    (tmp_path / "closed.json").unlink()
    rewritten(max(tmp_path.glob("*.steps")), changed_state(UNUSABLE[defect]))
    with pytest.raises(
        DamageError, match=rf"{tmp_path} is damaged, .* no valid state of a PERBuffer: .*repair\(.* keeps the steps"
    ):
        made("priority", tmp_path, environments("vector", 2), size=SIZE)
    assert "unusable state" in str(repair(tmp_path))
    assert not repair(tmp_path).dropped
    storage = made("priority", tmp_path, environments("vector", 2), size=SIZE)
    assert contents(storage) == expected
    next(iter(storage.generate_batches(1, 8)))
    storage.close()


@pytest.mark.parametrize("defect", ["a generator without its kind", "a count that is a list", "draws that are a text"])
def test_a_repair_keeps_the_segments_beside_a_commit_whose_state_is_unusable(defect: str, tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path)
    for _ in range(60):
        storage.insert_transition(stream.step())
    storage.close()
    storage = buffer(tmp_path)
    stored = contents(storage)
    storage.close()
    (tmp_path / "wal" / "closed.json").unlink(missing_ok=True)
    rewritten(max((tmp_path / "wal").glob("*.steps")), changed_state(UNUSABLE[defect]))
    with pytest.raises(DamageError, match=f"{tmp_path} is damaged"):
        buffer(tmp_path)
    assert "unusable state" in str(repair(tmp_path))
    storage = buffer(tmp_path)
    assert contents(storage) == stored
    storage.close()


# Memory in proportion to the files


def change_manifest(directory: Path, **changed: Any) -> None:
    """Change fields of the manifest."""
    path = directory / "storage.json"
    write_verified(path, read_verified(path) | changed, durable=False)


def test_a_large_declared_size_allocates_little_memory(tmp_path: Path) -> None:
    pair = Pair("priority", tmp_path)
    pair.insert(5)
    pair.update()
    pair.close()
    expected = read_state(tmp_path)
    change_manifest(tmp_path, size=10**9)
    tracemalloc.start()
    try:
        state = read_state(tmp_path)
        assert not repair(tmp_path).dropped
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert state["ring"]["size"] == 10**9
    expected["ring"]["size"] = 10**9
    assert repr(state) == repr(expected)


@pytest.mark.parametrize(
    "declared",
    [
        {"size": 10**12},
        {"num_envs": 10**9},
        {"layout": [[["Observation"], "<f4", [10**9]]]},
        {"layout": [[["Done"], "|b1", [1]]]},
        {"stacked_frames": [[["Observation"], 3]]},
        {"stacked_frames": [[["Action"], "two"]]},
    ],
    ids=str,
)
def test_an_impossible_manifest_is_refused_before_memory_is_allocated(declared: dict[str, Any], tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    change_manifest(tmp_path, **declared)
    tracemalloc.start()
    try:
        for opened in (read_state, lambda folder: made("priority", folder, None, size=SIZE)):
            with pytest.raises(
                PersistenceError, match=r"storage\.json|with num_envs|\.steps is damaged|this storage has"
            ):
                opened(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_a_repair_restores_an_impossible_manifest_from_the_files_of_steps(tmp_path: Path) -> None:
    filled("priority", tmp_path, "vector")
    intact = read_state(tmp_path)
    change_manifest(tmp_path, size=10**15)
    assert any("storage.json" in one for one in repair(tmp_path).dropped)
    assert repr(read_state(tmp_path)) == repr(intact)


def test_a_repair_of_crafted_steps_keeps_whole_episodes(tmp_path: Path) -> None:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage = buffer(tmp_path)
    for _ in range(60):
        storage.insert_transition(stream.step())
    storage.flush()
    stored, whole = contents(storage), [len(episode) for episode in storage.episodes(whole=True)]
    assert len(whole) == 10
    storage.close()
    path = max((tmp_path / "wal").glob("*.steps"))
    (tmp_path / "wal" / "closed.json").unlink()
    rewritten(path, one_final_observation)
    with pytest.raises(DamageError, match=path.name):
        buffer(tmp_path)
    assert any(path.name in one for one in repair(tmp_path).dropped)
    storage = buffer(tmp_path)
    assert contents(storage) == stored
    assert [len(episode) for episode in storage.episodes(whole=True)] == whole
    storage.close()
