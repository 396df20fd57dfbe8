"""Prefetched batches equal those without prefetching, for every timing of the threads and every call in between."""

import copy
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Sequences, Storage
from storages.transition import ERRORS, INDICES, REW, WEIGHTS
from tests.support.model import ALGORITHM, KINDS, Stream, environments, equal, through_a_file
from tests.support.profiles import examples

SIZE = 16
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": 1.0}
RECENCY: dict[str, Any] = {"eta": 0.999, "cmin": 6}
WINDOWS = [
    None,
    Sequences(4),
    Sequences(4, burn_in=2, overlap=2),
    Episodes(),
    Episodes(longest=4, whole=False),
    Episodes(packed=True),
    Episodes(max_steps=4),
]


def scaled(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
    """Doubles the rewards, which shows whether the right rows were given."""
    return obs, rhs, obs2, rhs2, 2 * rew


WITHOUT_PRIORITIES: dict[str, Callable[..., Any]] = {
    "plain": lambda **kwargs: ReplayBuffer.create_factory(SIZE, **kwargs),
    "n-step": lambda **kwargs: NStepReplayBuffer.create_factory(SIZE, n_step=3, **kwargs),
    "recency": lambda **kwargs: EREBuffer.create_factory(SIZE, n_step=2, **RECENCY, **kwargs),
    "hindsight": lambda **kwargs: HERBuffer.create_factory(SIZE, scaled, n_step=2, **RECENCY, **kwargs),
    "without replacement": lambda **kwargs: EREBuffer.create_factory(
        SIZE, draws="without replacement", **RECENCY, **kwargs
    ),
    "passes": lambda **kwargs: HERBuffer.create_factory(SIZE, scaled, n_step=2, draws="passes", **kwargs),
}
BY_PRIORITY: dict[str, Callable[..., Any]] = {
    "priority": lambda **kwargs: PERBuffer.create_factory(SIZE, n_step=2, **PRIORITIES, **kwargs),
    "ranks": lambda **kwargs: PERBuffer.create_factory(
        SIZE, prioritization="rank", uniform_share=0.3, **PRIORITIES, **kwargs
    ),
    "hindsight, priority and recency": lambda **kwargs: HERBuffer.create_factory(
        SIZE, scaled, n_step=2, **PRIORITIES, **RECENCY, **kwargs
    ),
}
WAYS = WITHOUT_PRIORITIES | BY_PRIORITY


def made(way: str, envs: Any = None, seed: int = 0, **hyper_parameters: Any) -> Storage:
    storage: Storage = WAYS[way](**hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


def filled(*storages: Storage, steps: int = 20, kind: str = "vector", num_envs: int = 2) -> Stream:
    stream = Stream(num_envs, kind, False, np.random.default_rng(0))
    for _ in range(steps):
        insert(stream.step(), *storages)
    return stream


def insert(sample: Any, *storages: Storage) -> None:
    for storage in storages:
        storage.insert_transition(sample)


def learn(storage: Storage, batch: Any) -> Any:
    """An update with errors that are computed from the batch."""
    errors = batch[WEIGHTS] * (1 + batch[INDICES] % 5)
    return storage.after_gradients(batch, {ERRORS: errors})


def phase(storage: Storage, updates: int = 5, leave_after: int = 5) -> list[Any]:
    """The batches of an update phase that is left after ``leave_after`` of them."""
    taken = []
    for batch in storage.generate_batches(updates, 8):
        learn(storage, batch)
        taken.append(batch)
        if len(taken) == leave_after:
            break
    return taken


def same_state(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same_state(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same_state, one, two))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    return bool(one == two)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("batches ahead")]


@settings(max_examples=examples(40), deadline=None)
@given(
    way=st.sampled_from(sorted(WITHOUT_PRIORITIES)),
    kind=st.sampled_from(KINDS),
    num_envs=st.integers(1, 3),
    prefetch=st.integers(1, 4),
    sequences=st.sampled_from(WINDOWS),
    phases=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=4),
)
def test_prefetched_batches_equal_those_without_prefetching(
    way: str, kind: str, num_envs: int, prefetch: int, sequences: Any, phases: list[tuple[int, int, int]]
) -> None:
    envs = environments(kind, num_envs)
    without = made(way, envs, sequences=sequences)
    ahead = made(way, envs, sequences=sequences, prefetch=prefetch)
    stream = filled(without, ahead, kind=kind, num_envs=num_envs)
    for updates, leave_after, inserted in phases:
        for one, two in zip(phase(without, updates, leave_after), phase(ahead, updates, leave_after), strict=True):
            assert equal(one, two)
        assert same_state(without.state_dict(), ahead.state_dict())
        for _ in range(inserted):
            insert(stream.step(), without, ahead)


@pytest.mark.parametrize("way", BY_PRIORITY)
@pytest.mark.parametrize("prefetch", [1, 3])
def test_priorities_of_prefetched_batches_lag_by_the_number_of_prefetched_batches(way: str, prefetch: int) -> None:
    ahead, without = made(way, prefetch=prefetch), made(way)
    filled(ahead, without)
    batches = ahead.generate_batches(6, 8)
    # The same lag without a thread: the errors of an update are given ``prefetch`` updates later.
    pending: list[Any] = []
    for number, late in enumerate(without.generate_batches(6, 8)):
        batch = next(batches)
        assert equal(batch, late)
        learn(ahead, batch)
        pending.append(late)
        if number >= prefetch:
            learn(without, pending.pop(0))
    for late in pending:
        learn(without, late)
    assert next(batches, None) is None
    assert same_state(ahead.state_dict(), without.state_dict())


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("way", WAYS)
def test_a_state_saved_between_batches_counts_only_the_batches_that_were_requested(way: str) -> None:
    ahead, undisturbed = made(way, prefetch=3), made(way, prefetch=3)
    filled(ahead, undisturbed)
    batches, expected = ahead.generate_batches(5, 8), undisturbed.generate_batches(5, 8)
    for number in range(1, 6):
        learn(undisturbed, next(expected))
        learn(ahead, next(batches))
        state = through_a_file(ahead.state_dict())
        assert state["sampled"] == 8 * number
        loaded = made(way, seed=9)
        loaded.load_state_dict(state)
        # A storage whose update phase ends here has the saved state.
        left = made(way, prefetch=3)
        filled(left)
        phase(left, leave_after=number)
        assert same_state(left.state_dict(), state)
        assert equal(*(next(iter(storage.generate_batches(1, 8))) for storage in (left, loaded)))
    assert next(batches, None) is None
    next(expected, None)
    assert same_state(ahead.state_dict(), undisturbed.state_dict())


def _insert(storage: Storage) -> None:
    storage.insert_transition(Stream(2, "vector", False, np.random.default_rng(7)).step())


CHANGES: dict[str, Callable[[Any], object]] = {
    "a step": _insert,
    "many steps": lambda storage: [_insert(storage) for _ in range(SIZE + 2)],
    "other rewards": lambda storage: storage.insert_single_tensor_slice(REW, np.ones((len(storage) // 2, 2, 1), "f")),
    "a slice": lambda storage: storage.insert_data_slice(storage.get_data_slice(0, 3)),
    "longer windows": lambda storage: storage.update_storage_parameter("n_step", 4),
    "progress": lambda storage: storage.set_progress(1, 2),
    "another seed": lambda storage: storage.seed(5),
    "another phase": phase,
    "a copy": copy.deepcopy,
    "a saved state": lambda storage: storage.load_state_dict(storage.state_dict()),
    "emptied and filled": lambda storage: (storage.reset(), filled(storage)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", ["n-step", "hindsight"])
def test_changes_between_two_batches_affect_the_next_as_without_prefetching(way: str, change: str) -> None:
    without, ahead = made(way), made(way, prefetch=3)
    filled(without, ahead)
    expected, batches = without.generate_batches(6, 8), ahead.generate_batches(6, 8)
    assert equal(next(expected), next(batches))
    CHANGES[change](without)
    CHANGES[change](ahead)
    assert all(equal(*pair) for pair in zip(expected, batches, strict=True))
    assert same_state(without.state_dict(), ahead.state_dict())


def test_an_insertion_waits_for_the_batch_that_is_being_made() -> None:
    calls, second_begun, go_on = [], threading.Event(), threading.Event()

    def slow(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
        calls.append(len(rew))
        if len(calls) == 2:
            second_begun.set()
            assert go_on.wait(60)
        return scaled(obs, rhs, obs2, rhs2, rew, initial_state, final_state)

    storage, without = (
        HERBuffer.create_factory(SIZE, function, prefetch=prefetch)("cpu", None, ALGORITHM, None)
        for function, prefetch in ((slow, 1), (scaled, 0))
    )
    for one in (storage, without):
        one.seed(0)
    stream = filled(storage, without)
    batches, expected = storage.generate_batches(3, 8), without.generate_batches(3, 8)
    assert equal(next(batches), next(expected))
    assert second_begun.wait(60)
    timer = threading.Timer(0.05, go_on.set)
    timer.start()
    # Waits for the batch that is being made, so that its rows are not overwritten.
    insert(stream.step(), storage, without)
    assert go_on.is_set()
    timer.join()
    assert all(equal(*pair) for pair in zip(batches, expected, strict=True))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_while_making_a_batch_is_raised_when_that_batch_is_requested(prefetch: int) -> None:
    calls: list[int] = []

    def third_call_fails(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, *states: Any) -> Any:
        calls.append(len(rew))
        if len(calls) == 3:
            raise RuntimeError("this goal cannot be reached")
        return obs, rhs, obs2, rhs2, rew

    storage = HERBuffer.create_factory(SIZE, third_call_fails, her_ratio=1.0, prefetch=prefetch)(
        "cpu", None, ALGORITHM, None
    )
    stream = filled(storage)
    batches = storage.generate_batches(6, 8)
    for _ in range(2):
        learn(storage, next(batches))
    with pytest.raises(RuntimeError, match="this goal cannot be reached"):
        next(batches)
    assert storage.state_dict()["sampled"] == 16
    storage.insert_transition(stream.step())
    assert len(phase(storage)) == 5


@pytest.mark.parametrize("leave_after", [1, 3, 5])
def test_no_thread_is_left_after_an_update_phase(leave_after: int) -> None:
    storage = made("plain", prefetch=2)
    filled(storage)
    batches = storage.generate_batches(5, 8)
    next(batches)
    assert len(threads()) == 1
    batches.close()
    phase(storage, leave_after=leave_after)
    assert threads() == []


def test_a_prefetched_batch_has_the_discount_of_the_time_of_its_draw() -> None:
    algorithm = SimpleNamespace(gamma=0.9)
    storage = ReplayBuffer.create_factory(SIZE, prefetch=2)("cpu", None, algorithm, None)
    filled(storage)
    batches = storage.generate_batches(4, 64)
    discounts = []
    for batch in batches:
        discounts.append(batch["Discount"].max().item())
        algorithm.gamma = 0.5
    assert discounts == pytest.approx([0.9, 0.9, 0.9, 0.5])
