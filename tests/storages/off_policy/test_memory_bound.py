"""``max_bytes`` bounds all memory of a storage, final observations included, however long episodes are."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import storages
from storages import Episodes, SampleError, Sequences
from storages.persistent import read_state, repair
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2
from tests.support.model import ALGORITHM, environments
from tests.support.profiles import examples

ENVS = 2
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "priorities": {"alpha": 0.6},
    "n-step": {"n_step": 3},
    "passes": {"draws": "passes"},
    "sequences": {"alpha": 0.6, "sequences": Sequences(4)},
    "episodes": {"sequences": Episodes(whole=False)},
    "whole episodes": {"sequences": Episodes()},
    "counts": {"count_draws": True},
}


class Steps:
    """Steps of two environments whose episodes have given lengths, in turn; each observation is its number."""

    def __init__(self, width: int = 8) -> None:
        self.number, self._left, self._begins, self._width = 0, [1] * ENVS, [True] * ENVS, width
        self.length = 1

    def next(self) -> dict[str, Any]:
        starts = np.array(self._begins)[:, None]
        self._left = [self.length if begins else left for begins, left in zip(self._begins, self._left, strict=True)]
        self._left = [min(left, self.length) - 1 for left in self._left]
        self._begins = [left == 0 for left in self._left]
        obs = np.full((ENVS, self._width), self.number, np.float32) + np.arange(ENVS, dtype=np.float32)[:, None] / 2
        self.number += 1
        ends = np.array(self._begins)[:, None]
        rewards = np.full((ENVS, 1), self.number, np.float32)
        # The final observation of an episode is not the first of the next.
        following = np.where(ends, -obs - 1, obs + 1).astype(np.float32)
        step = {OBS: obs, OBS2: following, DONE: starts, DONE2: ends, TRUNC2: ends & False}
        return step | {ACT: np.zeros((ENVS, 1), np.int64), REW: rewards}


def made(kind: str, max_bytes: int, **given: Any) -> Any:
    settings_of = KINDS[kind] | given
    cls = storages.PERBuffer if "alpha" in settings_of else storages.NStepReplayBuffer
    storage = cls.create_factory(size=None, max_bytes=max_bytes, **settings_of)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage


def assert_holds_the_newest(storage: Any, steps: int) -> None:
    """The newest steps are stored, each with its own final observation."""
    live = len(storage) // ENVS
    assert 0 < live <= storage.ring.size
    transitions = np.arange((storage.ring.steps - live) * ENVS, storage.ring.steps * ENVS)
    fields = storage.ring.gather(transitions)
    numbers = np.repeat(np.arange(steps - live, steps), ENVS) + np.tile(np.arange(ENVS) / 2, live)
    np.testing.assert_array_equal(fields[OBS][:, 0], numbers.astype(np.float32))
    ends = fields[DONE2][:, 0] > 0
    np.testing.assert_array_equal(fields[OBS2][:, 0], np.where(ends, -numbers - 1, numbers + 1).astype(np.float32))


def learnt(storage: Any) -> list[Any]:
    drawn = []
    for batch in storage.generate_batches(3, 8):
        shape = batch["Mask"].shape if "Mask" in batch else (8, 1)
        storage.after_gradients(batch, {ERRORS: torch.linspace(0.1, 3, int(np.prod(shape))).reshape(shape)})
        drawn.append(batch[OBS].tolist())
    return drawn


@settings(max_examples=examples(25), deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    max_bytes=st.sampled_from([9_000, 25_000, 80_000]),
    lengths=st.lists(st.sampled_from([1, 2, 3, 7, 20, 1_000]), min_size=1, max_size=4),
    on_disk=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_nbytes_is_at_most_max_bytes_and_the_newest_steps_are_stored_and_restored(
    tmp_path_factory: pytest.TempPathFactory, kind: str, max_bytes: int, lengths: list[int], on_disk: bool, seed: int
) -> None:
    given_now = {"directory": tmp_path_factory.mktemp("storage") / "kept", "commit_every": 30} if on_disk else {}
    storage, steps, generator = made(kind, max_bytes, **given_now), Steps(), np.random.default_rng(seed)
    for place, length in enumerate(lengths):
        steps.length = length
        for _ in range(int(generator.integers(50, 500))):
            storage.insert_transition(steps.next())
            assert storage.nbytes <= max_bytes
        assert_holds_the_newest(storage, steps.number)
        assert len(storage) >= min(steps.number, 20) * ENVS
        if "episodes" not in kind:
            learnt(storage)
        assert storage.nbytes <= max_bytes
        if on_disk and place % 2:
            saved, capacity = storage.state_dict(), storage.ring.size
            storage.close()
            storage = made(kind, max_bytes, **given_now)
            assert_holds_the_newest(storage, steps.number)
            storage.load_state_dict(saved)
            assert storage.ring.size == capacity
        elif place % 2:
            loaded = made(kind, max_bytes)
            loaded.load_state_dict(storage.state_dict())
            assert (loaded.ring.size, loaded.nbytes <= max_bytes) == (storage.ring.size, True)
            storage = loaded
        assert_holds_the_newest(storage, steps.number)
    storage.close()


@pytest.mark.parametrize(
    "kind", ["priorities", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("uniform", "passes", "sequences"))]
)
@pytest.mark.parametrize("way", ["reopened", "state", "killed", "rolled back", "repaired"])
def test_a_reduced_capacity_is_that_of_the_uninterrupted_storage_afterwards(
    way: str, kind: str, tmp_path: Path
) -> None:
    directory = None if way == "state" else tmp_path / "kept"
    stayed, steps, other = made(kind, 40_000), Steps(), Steps()
    kept = made(kind, 40_000, **({} if directory is None else {"directory": directory, "commit_every": 40}))
    for storage, source in ((stayed, steps), (kept, other)):
        for length, count in ((1_000, 300), (2, 300), (1, 300)):
            source.length = length
            for _ in range(count):
                storage.insert_transition(source.next())
    full = kept.ring.full_size
    assert kept.ring.size == stayed.ring.size < full
    if way == "reopened":
        kept.close()
        kept = made(kind, 40_000, directory=directory)
    elif way == "killed":
        kept.flush()
        copy = shutil.copytree(tmp_path / "kept", tmp_path / "killed")
        kept.close()
        kept = made(kind, 40_000, directory=copy)
    elif way == "state":
        state = kept.state_dict()
        kept = made(kind, 40_000)
        kept.load_state_dict(state)
    elif way == "rolled back":
        state = kept.state_dict()
        for _ in range(500):
            kept.insert_transition(other.next())
        kept.load_state_dict(state)
        other = Steps()
        other.length = 1
        other.number = steps.number
    else:
        kept.close()
        assert read_state(tmp_path / "kept")["ring"]["size"] == stayed.ring.size
        (tmp_path / "kept/closed.json").unlink()
        path = max((tmp_path / "kept").glob("*.steps"))
        path.write_bytes(path.read_bytes()[:-3] + b"abc")
        repair(tmp_path / "kept")
        kept = made(kind, 40_000, directory=directory)
        assert kept.ring.size == stayed.ring.size
        assert kept.nbytes <= 40_000
        kept.close()
        return
    assert (kept.ring.size, kept.ring.full_size) == (stayed.ring.size, full)
    assert learnt(kept) == learnt(stayed)
    for _ in range(300):
        stayed.insert_transition(steps.next())
        kept.insert_transition(other.next())
        assert kept.nbytes <= 40_000
    assert kept.ring.size == stayed.ring.size
    assert learnt(kept) == learnt(stayed)
    kept.close()


@pytest.mark.parametrize("at_once", [1, 7, 5_000])
def test_slices_are_bounded_as_single_steps_are(at_once: int) -> None:
    storage, steps = made("priorities", 30_000), Steps()
    steps.length = 2
    storage.insert_transition(steps.next())
    for _ in range(1 + 3_000 // at_once):
        several = [steps.next() for _ in range(at_once)]
        storage.insert_data_slice(
            {key: torch.from_numpy(np.stack([step[key] for step in several])) for key in several[0]}
        )
        assert storage.nbytes <= 30_000
    assert_holds_the_newest(storage, steps.number)


@pytest.mark.parametrize("padding", ["reset", "zero", "prefix"])
def test_padding_frames_of_short_episodes_are_bounded_too(padding: str) -> None:
    factory = storages.ReplayBuffer.create_factory(size=None, max_bytes=60_000)
    storage = factory("cpu", None, ALGORITHM, environments("image", ENVS))
    depth, number = 4, 0
    for episode in range(300):
        frames = [np.full((ENVS, 7, 7), (number + place) % 251, np.uint8) for place in range(depth + 3)]
        for step in range(3):
            stacks = []
            for last in (step + depth - 1, step + depth):
                stack = [frames[place] for place in range(last - depth + 1, last + 1)]
                if padding != "prefix":
                    filler = frames[depth - 1] if padding == "reset" else np.zeros_like(frames[0])
                    stack = [
                        frame if place >= depth - 1 else filler
                        for place, frame in zip(range(last - depth + 1, last + 1), stack, strict=True)
                    ]
                stacks.append(np.stack(stack, 1))
            flag = np.zeros((ENVS, 1), np.bool_)
            storage.insert_transition(
                {
                    OBS: stacks[0],
                    OBS2: stacks[1],
                    DONE: flag | (step == 0),
                    DONE2: flag | (step == 2),
                    TRUNC2: flag,
                    ACT: flag.astype(np.int64),
                    REW: np.full((ENVS, 1), episode, np.float32),
                }
            )
            number += 1
            assert storage.nbytes <= 60_000
    assert len(storage) == storage.capacity > 40


def test_too_few_bytes_for_ranks_are_refused_with_the_number_that_suffices() -> None:
    storage = made("priorities", 100_000, prioritization="rank")
    with pytest.raises(SampleError, match=r"max_bytes must be at least ([\d,]+) to hold 1 steps of 2"):
        storage.insert_transition(Steps().next())
    storage = made("priorities", 2_000_000, prioritization="rank")
    steps = Steps()
    for _ in range(9_000):
        storage.insert_transition(steps.next())
        steps.length = 3
    learnt(storage)
    assert 1_900_000 < storage.nbytes <= 2_000_000
