"""Whole episodes, padded and packed: which ones are drawn, how often, and their layout in a batch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from storages import Episodes, EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Storage
from storages.transition import (
    ACT,
    BATCH_SIZES,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    ERRORS,
    INDICES,
    LEAD_OUT,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    SORTED_INDICES,
    TRUNC2,
    UNSORTED_INDICES,
    WEIGHTS,
)
from tests.support.model import ALGORITHM, GAMMA, Model, Stream, environments, equal, through_a_file, unchanged
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, assert_windows

PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY = {"eta": 0.999, "cmin": 6}


WAYS: dict[str, Any] = {
    "uniform": lambda **kwargs: NStepReplayBuffer.create_factory(**kwargs),
    "priority": lambda **kwargs: PERBuffer.create_factory(**PRIORITIES, **kwargs),
    "recency": lambda **kwargs: EREBuffer.create_factory(**RECENCY, **kwargs),
    "ranks": lambda **kwargs: PERBuffer.create_factory(
        **PRIORITIES, prioritization="rank", uniform_share=0.3, error_max=1.0, **kwargs
    ),
    "hindsight, priority and recency": lambda **kwargs: HERBuffer.create_factory(
        her_function=unchanged, her_ratio=0.6, **PRIORITIES, **RECENCY, **kwargs
    ),
}


def made(way: str, episodes: Episodes, size: int = 40, n_step: int = 1, seed: int = 0, envs: Any = None) -> Storage:
    storage: Storage = WAYS[way](size=size, n_step=n_step, sequences=episodes)("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


@given(
    way=st.sampled_from(list(WAYS)),
    size=st.integers(2, 16),
    kind=st.sampled_from(["vector", "image", "dict", "frames", "dict of frames"]),
    recurrent=st.booleans(),
    num_envs=st.integers(1, 4),
    n_step=st.sampled_from([1, 3]),
    longest=st.none() | st.integers(1, 6),
    packed=st.booleans(),
    whole=st.booleans(),
    random_pieces=st.booleans(),
    reset_at=st.none() | st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(150), deadline=None)
def test_every_step_of_every_episode_equals_the_inserted_step(
    way: str,
    size: int,
    kind: str,
    recurrent: bool,
    num_envs: int,
    n_step: int,
    longest: int | None,
    packed: bool,
    whole: bool,
    random_pieces: bool,
    reset_at: int | None,
    seed: int,
) -> None:
    longest = None if longest is None else min(longest, size)
    episodes = Episodes(None, packed, whole, max_steps=longest) if random_pieces else Episodes(longest, packed, whole)
    if packed and longest is not None:
        n_step = 1
    envs = environments(kind, num_envs)
    storage, episodic = made(way, episodes, size, n_step, seed, envs), Episodic(Model(size), num_envs)
    random = np.random.default_rng(seed)
    stream = Stream(num_envs, kind, recurrent, random)
    for step in range(45):
        sample = stream.step()
        storage.insert_transition(sample)
        episodic.insert(sample)
        if step % 9 in (0, 4):
            for batch in storage.generate_batches(2, 5):
                assert_windows(episodic, batch, episodes, n_step)
                errors = torch.from_numpy(random.exponential(size=batch[REW].shape))
                storage.after_gradients(batch, {ERRORS: errors})
        if step % 8 == 7:
            for one in (storage, stream, episodic.model):
                one.end_episode([step % num_envs])
        if step == reset_at:
            storage.reset()
            episodic.reset(storage.ring.steps)
        if step == 30:
            state = through_a_file(storage.state_dict())
            loaded = made(way, episodes, size, n_step, seed + 1, envs)
            loaded.load_state_dict(state)
            if len(storage):
                assert equal(next(storage.generate_batches(1, 4)), next(loaded.generate_batches(1, 4)))
            storage = loaded


def insert_episodes(storage: Storage, *lengths: int, end: str = DONE2, running: int = 0) -> None:
    """Inserts episodes of the given lengths, then ``running`` steps of an unfinished episode.

    Observations and rewards are the number of the step.
    """
    step = 0
    for length, ends in [(length, True) for length in lengths] + [(running, False)]:
        for t in range(length):
            over = ends and t == length - 1
            number, following = np.full((1, 1), step, np.float32), np.full((1, 1), step + 1, np.float32)
            storage.insert_transition(
                {
                    OBS: number,
                    RHS: 10 * number,
                    DONE: np.full((1, 1), t == 0),
                    ACT: np.zeros((1, 1), np.int64),
                    REW: number,
                    OBS2: following,
                    RHS2: 10 * following,
                    DONE2: np.full((1, 1), over and end == DONE2),
                    TRUNC2: np.full((1, 1), over and end == TRUNC2),
                }
            )
            step += 1


def drawn_episodes(storage: Storage, batch_size: int = 200) -> set[tuple[float, ...]]:
    """The observations of each episode in a batch."""
    (batch,) = storage.generate_batches(1, batch_size)
    return {tuple(batch[OBS][batch[MASK][:, b, 0] == 1, b, 0].tolist()) for b in range(batch_size)}


def numbers(begin: int, end: int) -> tuple[float, ...]:
    return tuple(map(float, range(begin, end)))


@pytest.mark.parametrize("end", [DONE2, TRUNC2])
def test_only_whole_episodes_are_drawn_for_every_kind_of_end(end: str) -> None:
    storage = made("uniform", Episodes(), size=14)
    insert_episodes(storage, 6, 4, 3, end=end, running=5)
    assert drawn_episodes(storage) == {numbers(6, 10), numbers(10, 13)}


def test_partial_episodes_are_drawn_with_whole_false() -> None:
    storage = made("uniform", Episodes(whole=False), size=14)
    insert_episodes(storage, 6, 4, 3, running=5)
    assert drawn_episodes(storage) == {numbers(4, 6), numbers(6, 10), numbers(10, 13), numbers(13, 18)}


@pytest.mark.parametrize("way", WAYS)
def test_running_episodes_are_drawn_while_no_episode_is_whole(way: str) -> None:
    storage = made(way, Episodes(), size=20)
    insert_episodes(storage, running=7)
    assert drawn_episodes(storage) == {numbers(0, 7)}
    (batch,) = storage.generate_batches(1, 3)
    assert (batch[WEIGHTS] == 1).all()
    info = storage.after_gradients(batch, {ERRORS: torch.ones(7, 3, 1)})
    assert all(
        math.isfinite(value) for key, value in info.items() if key != ERRORS and key != "storage/largest_priority"
    )


def test_episodes_longer_than_longest_are_drawn_as_separate_pieces() -> None:
    storage = made("uniform", Episodes(longest=4), size=14)
    insert_episodes(storage, 10, 3, running=6)
    # Steps 5 to 18 are stored: the second piece has lost its first step.
    assert drawn_episodes(storage) == {numbers(8, 10), numbers(10, 13), numbers(13, 17)}
    (batch,) = storage.generate_batches(1, 50)
    assert batch[OBS].shape == (4, 50, 1)
    assert torch.equal(batch[RHS], 10 * batch[OBS][0])
    assert torch.equal(batch[DONE][0], (batch[OBS][0] != 8).float() * (batch[OBS][0] != 17).float())


def test_a_batch_has_as_many_steps_as_its_longest_episode() -> None:
    storage = made("uniform", Episodes(), size=40)
    insert_episodes(storage, 3, 9, 5)
    for batch in storage.generate_batches(20, 2):
        assert len(batch[OBS]) == batch[MASK].sum(0).max()
        filled_up = batch[MASK] == 0
        assert torch.equal(batch[MASK], (torch.arange(len(batch[MASK]))[:, None, None] < batch[MASK].sum(0)).float())
        assert torch.equal(
            batch[OBS][filled_up], batch[OBS].max(0, keepdim=True).values.expand_as(filled_up)[filled_up]
        )


def test_an_interrupted_episode_is_not_drawn_as_a_whole_one() -> None:
    factory = HERBuffer.create_factory(size=40, her_function=unchanged, sequences=Episodes())
    storage = factory("cpu", None, ALGORITHM, None)
    insert_episodes(storage, 4, running=3)
    storage.ring.interrupt()
    insert_episodes(storage, 2)
    assert drawn_episodes(storage) == {numbers(0, 4), numbers(0, 2)}


def test_an_episode_without_its_first_step_is_not_drawn_as_a_whole_one() -> None:
    storage, other = made("uniform", Episodes()), ReplayBuffer.create_factory(size=40)("cpu", None, ALGORITHM, None)
    insert_episodes(other, 6, 4)
    storage.insert_data_slice(other.get_data_slice(3, 10))
    assert drawn_episodes(storage) == {numbers(6, 10)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_all_episodes_are_equally_likely(whole: bool, packed: bool) -> None:
    storage = made("uniform", Episodes(packed=packed, whole=whole), size=40)
    insert_episodes(storage, 30, 1, 6, 2, 11, 5, running=3)
    draws = torch.cat([batch[INDICES] for batch in storage.generate_batches(100, 100)])[:, 0].numpy()
    begins, counts = np.unique(draws, return_counts=True)
    assert begins.tolist() == ([18, 30] if not whole else [30]) + [31, 37, 39, 50] + ([55] if not whole else [])
    expected = len(draws) / len(begins)
    assert ((counts - expected) ** 2 / expected).sum() < len(begins) + 5 * math.sqrt(2 * len(begins))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_episode_priorities_mix_the_largest_and_the_mean_error(whole: bool, packed: bool) -> None:
    storage: Any = made("priority", Episodes(packed=packed, whole=whole, eta=0.75), size=22)
    storage.update_storage_parameter("epsilon", 0.0)
    storage.update_storage_parameter("alpha", 1.0)
    insert_episodes(storage, 12, 4, 8, running=4)
    (batch,) = storage.generate_batches(1, 200)
    real = torch.ones_like(batch[REW]) if packed else batch[MASK]
    storage.after_gradients(batch, {ERRORS: -torch.where(real == 1, batch[OBS] + 1, 1e6)})
    runs = [range(12, 16), range(16, 24)] + ([] if whole else [range(6, 12), range(24, 28)])
    expected = {run[0]: 0.75 * (run[-1] + 1) + 0.25 * (np.mean(run) + 1) for run in runs}
    draws = torch.cat([b[INDICES] for b in storage.generate_batches(200, 100)])[:, 0].numpy()
    found = np.bincount(draws, minlength=28)[sorted(expected)] / len(draws)
    weights = np.array([expected[start] for start in sorted(expected)])
    np.testing.assert_allclose(found, weights / weights.sum(), atol=0.012)
    info = storage.after_gradients(batch, {ERRORS: -torch.where(real == 1, batch[OBS] + 1, 1e6)})
    assert info["storage/mean_priority"] == pytest.approx(weights.mean())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("way", ["uniform", "priority"])
def test_all_random_pieces_of_an_episode_are_equally_likely(way: str, packed: bool) -> None:
    storage = made(way, Episodes(packed=packed, max_steps=4), size=40)
    insert_episodes(storage, 6, 11, 2)
    counts = np.zeros((19, 19))
    for batch in storage.generate_batches(60, 100):
        for b, number in enumerate(batch[INDICES][:, 0].tolist()):
            of = batch[EPISODE][:, 0] == b if packed else (batch[MASK][:, b, 0] > 0, b)
            steps = batch[OBS][of][:, 0].long().tolist()
            assert steps == list(range(steps[0], steps[0] + min(4, {0: 6, 6: 11, 17: 2}[number])))
            counts[number, steps[0]] += 1
    assert counts[0].nonzero()[0].tolist() == [0, 1, 2]
    assert counts[6].nonzero()[0].tolist() == list(range(6, 14))
    assert counts[17].nonzero()[0].tolist() == [17]
    for number, pieces in ((0, 3), (6, 8), (17, 1)):
        of_episode = counts[number][counts[number] > 0]
        assert of_episode.sum() == pytest.approx(2000, rel=0.1)
        np.testing.assert_allclose(of_episode / of_episode.sum(), 1 / pieces, rtol=0.25)


def test_the_errors_of_a_piece_set_the_priority_of_its_episode() -> None:
    storage: Any = made("priority", Episodes(max_steps=3, eta=1.0), size=30)
    storage.update_storage_parameter("epsilon", 0.0)
    storage.update_storage_parameter("alpha", 1.0)
    insert_episodes(storage, 10, 8)
    (batch,) = storage.generate_batches(1, 50)
    errors = torch.where(batch[INDICES].T[..., None] == 0, 3.0, 1.0).expand_as(batch[REW])
    storage.after_gradients(batch, {ERRORS: errors})
    draws = torch.cat([b[INDICES] for b in storage.generate_batches(100, 100)])[:, 0]
    assert set(draws.tolist()) == {0, 10}
    assert (draws == 0).double().mean().item() == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("pieces", [Episodes(longest=4), Episodes(max_steps=4)], ids=repr)
def test_the_lead_out_of_pieces_reaches_to_the_bootstrapped_observations(pieces: Episodes) -> None:
    storage = made("uniform", pieces, n_step=3)
    insert_episodes(storage, 10, 12)
    (batch,) = storage.generate_batches(1, 20)
    newest = torch.where(batch[INDICES] < 10, 9, 21)
    seen = torch.cat([batch[OBS], batch[LEAD_OUT][OBS]])
    assert torch.equal(seen, torch.minimum(batch[OBS][0] + torch.arange(6)[:, None, None], newest))
    following = torch.minimum(batch[OBS] + 3, newest + 1)
    assert torch.equal(batch[OBS2], following)
    torch.testing.assert_close(batch[DISCOUNT], torch.where(following > newest, 0, GAMMA**3))


def test_whole_episodes_have_no_lead_out_and_random_pieces_of_n_steps_are_not_packed() -> None:
    storage = made("uniform", Episodes(), n_step=3)
    insert_episodes(storage, 10, 12)
    assert LEAD_OUT not in next(storage.generate_batches(1, 20))
    with pytest.raises(ValueError, match="n_step must be 1"):
        made("uniform", Episodes(max_steps=4, packed=True), n_step=3)


def test_the_rest_of_a_partly_overwritten_episode_keeps_its_priority() -> None:
    storage: Any = made("priority", Episodes(whole=False), size=10)
    storage.update_storage_parameter("epsilon", 0.0)
    storage.update_storage_parameter("alpha", 1.0)
    insert_episodes(storage, 8, running=2)
    (batch,) = storage.generate_batches(1, 100)
    errors = torch.where(batch[INDICES].T[..., None] == 0, 3.0, 1.0).expand_as(batch[REW])
    storage.after_gradients(batch, {ERRORS: errors})
    goes_on = {key: value[-1:] for key, value in storage.get_data_slice(9, 10).items()}
    storage.insert_data_slice(goes_on | {OBS: goes_on[OBS2], OBS2: goes_on[OBS2] + 1, RHS: goes_on[RHS2]})
    draws = torch.cat([b[INDICES] for b in storage.generate_batches(100, 100)])[:, 0]
    assert set(draws.tolist()) == {1, 8}
    assert (draws == 1).double().mean().item() == pytest.approx(0.75, abs=0.02)


def test_errors_of_episodes_that_are_no_longer_whole_are_ignored() -> None:
    storage: Any = made("priority", Episodes(), size=10)
    insert_episodes(storage, 4, 3, running=3)
    (batch,) = storage.generate_batches(1, 50)
    before = storage.state_dict()["priorities"]["errors"][1:].clone()
    goes_on = {key: value[-1:] for key, value in storage.get_data_slice(9, 10).items()}
    storage.insert_data_slice(goes_on | {OBS: goes_on[OBS2], OBS2: goes_on[OBS2] + 1, RHS: goes_on[RHS2]})
    storage.after_gradients(batch, {ERRORS: torch.full_like(batch[REW], 5.0)})
    after = storage.state_dict()["priorities"]["errors"][:-1]
    assert (after != before).nonzero()[:, 0].tolist() == [3]
    assert drawn_episodes(storage) == {numbers(4, 7)}


def test_a_recurrent_layer_gives_equal_outputs_for_packed_and_padded_batches() -> None:
    padded, packed = made("priority", Episodes()), made("priority", Episodes(packed=True))
    for storage in (padded, packed):
        insert_episodes(storage, 3, 9, 5, 1, 6)
    (one,), (two,) = padded.generate_batches(1, 12), packed.generate_batches(1, 12)
    for key in (INDICES, WEIGHTS, RHS):
        assert torch.equal(one[key], two[key])
    torch.manual_seed(0)
    gru = torch.nn.GRU(1, 1)
    sequence = PackedSequence(two[OBS], two[BATCH_SIZES], two[SORTED_INDICES], two[UNSORTED_INDICES])
    outputs, last = gru(sequence, two[RHS][None])
    again, lengths = pad_packed_sequence(outputs)
    expected, _ = gru(one[OBS], one[RHS][None])
    torch.testing.assert_close(again, expected * one[MASK])
    assert torch.equal(lengths, one[MASK].sum(0)[:, 0].long())
    torch.testing.assert_close(last[0], expected[lengths - 1, torch.arange(12)])
    # The weight of a row is that of its episode.
    assert torch.equal(two[WEIGHTS][two[EPISODE][:, 0]], _packed(one[WEIGHTS].expand_as(one[MASK]), two))


def test_batch_sizes_of_packed_batches_stay_on_the_cpu_as_pytorch_requires() -> None:
    factory = ReplayBuffer.create_factory(size=40, sequences=Episodes(packed=True))
    storage = factory("meta", None, ALGORITHM, None)
    insert_episodes(storage, 3, 9, 5)
    (batch,) = storage.generate_batches(1, 12)
    assert batch[BATCH_SIZES].device.type == "cpu"
    assert {batch[key].device.type for key in (OBS, SORTED_INDICES, UNSORTED_INDICES, EPISODE)} == {"meta"}


def _packed(padded: Any, batch: Any) -> Any:
    order = batch[SORTED_INDICES]
    return torch.cat([padded[t, order[:size]] for t, size in enumerate(batch[BATCH_SIZES].tolist())])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"longest": 0}, "Episodes: longest must be at least 1, got 0"),
        ({"packed": 1}, "Episodes: packed must be a bool, got 1"),
        ({"whole": None}, "Episodes: whole must be a bool, got None"),
        ({"eta": 2.0}, r"Episodes: eta must lie in \[0, 1\], got 2.0"),
        ({"max_steps": 0}, "Episodes: max_steps must be at least 1, got 0"),
        ({"longest": 4, "max_steps": 3}, "Episodes: give either longest, .* got longest=4 and max_steps=3"),
    ],
)
def test_invalid_episodes_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Episodes(**arguments)
