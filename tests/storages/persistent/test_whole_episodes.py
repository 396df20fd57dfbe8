"""Batches of whole episodes from disk: their content, and how often each episode is drawn, in memory or not."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, PersistentEpisodicBuffer
from storages.datasets import episodes_of, open_dataset
from storages.transition import ACT, DONE, DONE2, ERRORS, INDICES, MASK, OBS, OBS2, REW, TRUNC2
from tests.support.episodic import EpisodesModel, buffer
from tests.support.model import ALGORITHM, Stream
from tests.support.profiles import examples
from tests.support.windows_model import assert_windows

PRIORITIES: dict[str, Any] = {"alpha": 1.0, "beta": 0.5, "default_error": 1.0}
SIZE = 100
"""More steps than any episode of a stream has."""
BUDGET = 40_000


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(["vector", "dict", "dict of frames"]),
    num_envs=st.integers(1, 3),
    sequences=st.none() | st.builds(Episodes, st.none() | st.integers(1, 6), packed=st.booleans(), whole=st.booleans()),
    n_step=st.sampled_from([1, 3]),
    given=st.sampled_from([{}, PRIORITIES]),
    seed=st.integers(0, 2**20),
)
def test_every_row_of_a_batch_equals_the_inserted_step(
    kind: str, num_envs: int, sequences: Any, n_step: int, given: dict[str, Any], seed: int
) -> None:
    if isinstance(sequences, Episodes) and sequences.packed and sequences.longest is not None:
        n_step = 1
    stream, model = Stream(num_envs, kind, True, np.random.default_rng(seed)), EpisodesModel(SIZE)
    random = np.random.default_rng(seed)

    with tempfile.TemporaryDirectory() as directory:

        def made() -> Any:
            return buffer(Path(directory), kind, num_envs, SIZE, n_step=n_step, sequences=sequences, **given)

        storage = made()
        for step in range(120):
            sample = stream.step()
            storage.insert_transition(sample)
            model.insert(sample)
            if step % 20 == 19 and model.finished:
                episodic = model.windows()
                for batch in storage.generate_batches(2, 5):
                    assert_windows(episodic, batch, sequences, n_step)
                    storage.after_gradients(
                        batch, {ERRORS: torch.from_numpy(random.exponential(size=batch[REW].shape))}
                    )
            if step == 70:
                storage.close()
                storage = made()
        storage.close()


def filled(directory: Path, lengths: list[int], memory: int | None = BUDGET, end: str = DONE2, **given: Any) -> Any:
    """A buffer whose actions number the transitions, and whose observations hold this number and the episode's."""
    factory = PersistentEpisodicBuffer.create_factory(None, directory, memory_bytes=memory, **given)
    storage = factory("cpu", None, ALGORITHM, None)
    storage.seed(0)
    number = 0
    for episode, length in enumerate(lengths):
        for step in range(length):
            flags = {key: np.array([[key == end and step == length - 1]]) for key in (DONE2, TRUNC2)}
            seen = np.array([[number, episode]], np.float32)
            storage.insert_transition(
                {
                    OBS: seen,
                    DONE: np.array([[step == 0]]),
                    ACT: np.array([[number]]),
                    REW: np.ones((1, 1), np.float32),
                    OBS2: seen + np.array([1, 0], np.float32),
                    **flags,
                }
            )
            number += 1
    return storage


LENGTHS = np.random.default_rng(0).integers(1, 25, 300).tolist()


def assert_whole(batch: Any, lengths: list[int]) -> list[int]:
    """Assert that a padded batch has whole episodes from the first step to the last; return their numbers."""
    drawn = batch[OBS][0, :, 1].long().tolist()
    begins = np.cumsum([0, *lengths])
    assert batch[MASK].sum(0)[:, 0].tolist() == [lengths[episode] for episode in drawn]
    for row, episode in enumerate(drawn):
        steps = range(begins[episode], begins[episode + 1])
        assert batch[ACT][: len(steps), row, 0].tolist() == list(steps)
        assert batch[OBS2][: len(steps), row, 0].tolist() == [step + 1 for step in steps]
        assert batch[DONE2][: len(steps), row, 0].tolist() == [step == steps[-1] for step in steps]
    return drawn


@pytest.mark.long
def test_over_several_passes_episodes_of_all_lengths_are_drawn_equally_often(tmp_path: Path) -> None:
    storage = filled(tmp_path, LENGTHS, sequences=Episodes())
    assert len(storage) > 4 * storage.ring.live_steps
    counts = np.zeros(len(LENGTHS))
    # Each pass draws every episode 8 times on average. The first is not counted: the newest data is still in memory.
    for repetition in range(9):
        for batch in storage.generate_batches(8 * len(LENGTHS) // 20, 20):
            drawn = assert_whole(batch, LENGTHS)
            if repetition:
                counts += np.bincount(drawn, minlength=len(LENGTHS))
    expected = counts.mean()
    assert expected == pytest.approx(64)
    assert counts.min() > 25
    assert counts.max() < 120
    short = np.array(LENGTHS) < 8
    assert counts[short].mean() == pytest.approx(counts[~short].mean(), rel=0.05)
    storage.close()


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sequences", [Episodes(), Episodes(whole=False), Episodes(longest=4)])
def test_memory_stays_within_the_budget(sequences: Episodes, packed: bool, tmp_path: Path) -> None:
    sequences = Episodes(sequences.longest, packed, sequences.whole)
    for number, lengths in enumerate((LENGTHS, [1] * 800, [30] * 50)):
        storage = filled(tmp_path / str(number), lengths, sequences=sequences, **PRIORITIES)
        assert storage.ring.live_steps < len(storage)
        for batch in storage.generate_batches(40, 16):
            storage.after_gradients(batch, {ERRORS: torch.ones_like(batch[REW])})
            assert storage.nbytes - 4 * len(storage) <= BUDGET
        storage.close()


@pytest.mark.long
def test_the_error_of_an_episode_is_restored_when_it_returns_to_memory(tmp_path: Path) -> None:
    storage = filled(tmp_path, [5] * 600, sequences=Episodes(eta=1.0), **PRIORITIES)
    error_of = lambda episode: 0.1 + episode % 7  # noqa: E731
    for batch in storage.generate_batches(2000, 16):
        storage.after_gradients(batch, {ERRORS: error_of(batch[OBS][..., 1:])})
    storage.flush()
    draws = torch.cat([batch[OBS][0, :, 1] for batch in storage.generate_batches(4000, 16)]).numpy().astype(int)
    storage.close()
    # Episodes with large errors are drawn more often, although their errors were set several passes before.
    shares = np.bincount(draws % 7, minlength=7) / len(draws)
    expected = error_of(np.arange(7))
    np.testing.assert_allclose(shares, expected / expected.sum(), atol=0.03)


@pytest.mark.long
def test_an_error_of_an_episode_that_left_memory_changes_no_other_priority(tmp_path: Path) -> None:
    storage = filled(tmp_path, LENGTHS, sequences=Episodes(), **PRIORITIES)
    old = next(iter(storage.generate_batches(1, 32)))
    list(storage.generate_batches(500, 32))
    assert int(old[INDICES].max()) < storage.ring.start
    before = storage.priorities.errors_of(storage.ring.start, storage.ring.end)
    storage.after_gradients(old, {ERRORS: torch.full_like(old[REW], 50.0)})
    assert np.array_equal(storage.priorities.errors_of(storage.ring.start, storage.ring.end), before)
    storage.close()


def test_an_episode_without_an_end_is_not_drawn_as_a_whole_episode(tmp_path: Path) -> None:
    factory = PersistentEpisodicBuffer.create_factory(100, tmp_path, sequences=Episodes())
    filled(tmp_path, [4, 3], None, end="neither").close()
    filled(tmp_path, [6, 5], None).close()
    storage = factory("cpu", None, ALGORITHM, None)
    draws = torch.cat([batch[MASK].sum(0) for batch in storage.generate_batches(20, 16)])
    assert set(draws.flatten().tolist()) == {6.0, 5.0}
    storage.close()


@pytest.mark.long
def test_pieces_of_a_long_episode_are_drawn_only_if_whole_is_false(tmp_path: Path) -> None:
    for whole in (True, False):
        storage = filled(tmp_path / str(whole), [110] + [10] * 200, sequences=Episodes(whole=whole))
        lengths = {int(length) for batch in storage.generate_batches(300, 8) for length in batch[MASK].sum(0)}
        pieces = [len(episode) for episode in storage.episodes()]
        assert len(pieces) > 201
        assert lengths == ({10} if whole else set(pieces))
        storage.close()


@pytest.mark.long
def test_a_data_set_has_all_episodes_although_few_are_in_memory(tmp_path: Path) -> None:
    storage = filled(tmp_path, [110, *LENGTHS])
    assert len(storage) > 4 * storage.ring.live_steps
    assert [len(episode) for episode in episodes_of(storage, whole=True)] == LENGTHS
    assert sum(len(episode) for episode in episodes_of(storage)) == 110 + sum(LENGTHS)
    storage.close()


def test_pieces_larger_than_the_memory_limit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"at least \d+ for pieces of 400 steps .*, got 40000") as refused:
        filled(tmp_path / "refused", [500], sequences=Episodes(longest=400))
    needed = int(str(refused.value).split("at least ")[1].split()[0])
    storage = filled(tmp_path / "kept", [500], needed, sequences=Episodes(longest=400))
    assert next(storage.generate_batches(1, 4))[MASK].sum(0).unique().tolist() == [400.0]
    storage.close()


@pytest.mark.long
def test_after_a_reset_only_later_episodes_are_drawn(tmp_path: Path) -> None:
    storage = filled(tmp_path, LENGTHS, sequences=Episodes(), **PRIORITIES)
    list(storage.generate_batches(100, 16))
    storage.reset()
    for number in range(30):
        last = number % 5 == 4
        storage.insert_transition(
            {
                OBS: np.array([[number, -1]], np.float32),
                DONE: np.array([[number % 5 == 0]]),
                ACT: np.array([[number]]),
                REW: np.ones((1, 1), np.float32),
                OBS2: np.array([[number + 1, -1]], np.float32),
                DONE2: np.array([[last]]),
                TRUNC2: np.array([[False]]),
            }
        )
    for batch in storage.generate_batches(20, 16):
        assert (batch[OBS][..., 1] == -1).all()
        assert batch[MASK].sum(0).unique().tolist() == [5.0]
        storage.after_gradients(batch, {ERRORS: torch.ones_like(batch[REW])})
    storage.close()


def assert_each_has_its_error(storage: Any) -> None:
    """Assert that each transition has the error 1 plus its reward, although errors are kept by number."""
    ring = storage.ring
    rewards = ring.gather(np.arange(ring.start, ring.end))[REW][:, 0]
    assert np.array_equal(storage.priorities.errors_of(ring.start, ring.end), rewards + 1)


@pytest.mark.parametrize("size", [1_000, 5])
def test_episodes_that_end_by_hand_after_others_keep_their_numbers_and_errors(size: int, tmp_path: Path) -> None:
    storage = buffer(tmp_path / "here", num_envs=3, size=size, commit_every=1_000, **PRIORITIES)
    no = np.zeros((3, 1), np.float32)
    for step in range(2):
        own = no + np.arange(3)[:, None] * 10 + step
        ends = np.array([[False], [False], [step == 1]])
        storage.insert_transition({OBS: own, OBS2: own + 1, DONE: no == step, ACT: no, REW: own, DONE2: ends})
    storage.end_episode([1])
    storage.end_episode([0])
    order = [[[20], [21]], [[10], [11]], [[0], [1]]][0 if size > 5 else 1 :]

    def in_order(episodes: Any) -> bool:
        return [episode.fields[REW].tolist() for episode in episodes] == order

    assert in_order(storage.episodes())
    for batch in storage.generate_batches(20, 16):
        storage.after_gradients(batch, {ERRORS: batch[REW] + 1})
    assert_each_has_its_error(storage)
    state = storage.state_dict()
    assert in_order(open_dataset(tmp_path / "here"))
    # As if the process was killed: without what close() would write.
    shutil.copytree(tmp_path / "here", tmp_path / "killed")
    batch = next(storage.generate_batches(1, 64))
    storage.load_state_dict(state)
    killed = buffer(tmp_path / "killed", num_envs=3, size=size, **PRIORITIES)
    for one in (storage, killed):
        assert in_order(one.episodes())
        assert_each_has_its_error(one)
    assert torch.equal(next(storage.generate_batches(1, 64))[REW], batch[REW])
    for one in (storage, killed):
        one.close()
