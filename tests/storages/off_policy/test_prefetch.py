"""Batches ahead of the learner: the same ones as without, whoever is faster, whatever comes between."""

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
    """Relabels by a function that shows whether the right rows were given to it."""
    return obs, rhs, obs2, rhs2, 2 * rew


WITHOUT_PRIORITIES: dict[str, Callable[..., Any]] = {
    "plain": lambda **kwargs: ReplayBuffer.create_factory(SIZE, **kwargs),
    "n-step": lambda **kwargs: NStepReplayBuffer.create_factory(SIZE, n_step=3, **kwargs),
    "recency": lambda **kwargs: EREBuffer.create_factory(SIZE, n_step=2, **RECENCY, **kwargs),
    "hindsight": lambda **kwargs: HERBuffer.create_factory(SIZE, scaled, n_step=2, **RECENCY, **kwargs),
    "distinct": lambda **kwargs: EREBuffer.create_factory(SIZE, draws="without replacement", **RECENCY, **kwargs),
    "passes": lambda **kwargs: HERBuffer.create_factory(SIZE, scaled, n_step=2, draws="passes", **kwargs),
}
BY_PRIORITY: dict[str, Callable[..., Any]] = {
    "priority": lambda **kwargs: PERBuffer.create_factory(SIZE, n_step=2, **PRIORITIES, **kwargs),
    "ranks": lambda **kwargs: PERBuffer.create_factory(
        SIZE, prioritization="rank", uniform_share=0.3, **PRIORITIES, **kwargs
    ),
    "all": lambda **kwargs: HERBuffer.create_factory(SIZE, scaled, n_step=2, **PRIORITIES, **RECENCY, **kwargs),
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
    """An update whose errors follow from the batch."""
    errors = batch[WEIGHTS] * (1 + batch[INDICES] % 5)
    return storage.after_gradients(batch, {ERRORS: errors})


def phase(storage: Storage, updates: int = 5, leave_after: int = 5) -> list[Any]:
    """The batches of an update phase that is left early."""
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
def test_a_run_with_batches_ahead_is_the_run_without(
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
def test_by_priority_a_batch_is_drawn_before_the_errors_of_the_last_updates_are_known(way: str, prefetch: int) -> None:
    ahead, without = made(way, prefetch=prefetch), made(way)
    filled(ahead, without)
    batches = ahead.generate_batches(6, 8)
    # Without a thread, the same lag: what an update says is told that many updates later.
    untold: list[Any] = []
    for number, late in enumerate(without.generate_batches(6, 8)):
        batch = next(batches)
        assert equal(batch, late)
        learn(ahead, batch)
        untold.append(late)
        if number >= prefetch:
            learn(without, untold.pop(0))
    for late in untold:
        learn(without, late)
    assert next(batches, None) is None
    assert same_state(ahead.state_dict(), without.state_dict())


@pytest.mark.parametrize("way", WAYS)
def test_two_runs_with_batches_ahead_are_the_same_run(way: str) -> None:
    one, two = made(way, prefetch=2), made(way, prefetch=2)
    stream = filled(one, two)
    for leave_after in (5, 2, 3):
        for batches in zip(phase(one, leave_after=leave_after), phase(two, leave_after=leave_after), strict=True):
            assert equal(*batches)
        assert same_state(one.state_dict(), two.state_dict())
        insert(stream.step(), one, two)


@pytest.mark.parametrize("way", WAYS)
def test_saving_between_two_batches_says_what_was_asked_for_and_changes_nothing(way: str) -> None:
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
        # One that was left here instead is what was saved.
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
def test_what_comes_between_two_batches_reaches_the_next_as_without(way: str, change: str) -> None:
    without, ahead = made(way), made(way, prefetch=3)
    filled(without, ahead)
    expected, batches = without.generate_batches(6, 8), ahead.generate_batches(6, 8)
    assert equal(next(expected), next(batches))
    CHANGES[change](without)
    CHANGES[change](ahead)
    assert all(equal(*pair) for pair in zip(expected, batches, strict=True))
    assert same_state(without.state_dict(), ahead.state_dict())


def test_a_batch_that_was_begun_is_not_changed_by_what_is_stored_meanwhile() -> None:
    calls, second_begun, go_on = [], threading.Event(), threading.Event()

    def slow(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, initial_state: Any, final_state: Any) -> Any:
        calls.append(len(rew))
        if len(calls) == 2:
            second_begun.set()
            assert go_on.wait(60)
        return obs, rhs, obs2, rhs2, rew

    storage = HERBuffer.create_factory(SIZE, slow, her_ratio=1.0, prefetch=1)("cpu", None, ALGORITHM, None)
    stream = filled(storage)
    batches = storage.generate_batches(3, 8)
    next(batches)
    assert second_begun.wait(60)
    held = threading.Timer(0.05, go_on.set)
    held.start()
    # Waits for the batch that is being made, and does not store under its hands.
    storage.insert_transition(stream.step())
    assert go_on.is_set()
    held.join()
    batches.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_what_goes_wrong_in_making_a_batch_is_raised_where_it_is_asked_for(prefetch: int) -> None:
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
def test_no_thread_is_left_when_an_update_phase_is_over(leave_after: int) -> None:
    storage = made("plain", prefetch=2)
    filled(storage)
    batches = storage.generate_batches(5, 8)
    next(batches)
    assert len(threads()) == 1
    batches.close()
    phase(storage, leave_after=leave_after)
    assert threads() == []


def test_a_single_update_needs_no_thread() -> None:
    storage = made("plain", prefetch=2)
    filled(storage)
    batches = storage.generate_batches(1, 8)
    next(batches)
    assert threads() == []


def test_a_discount_is_that_of_when_a_batch_was_drawn() -> None:
    algorithm = SimpleNamespace(gamma=0.9)
    storage = ReplayBuffer.create_factory(SIZE, prefetch=2)("cpu", None, algorithm, None)
    filled(storage)
    batches = storage.generate_batches(4, 64)
    discounts = []
    for batch in batches:
        discounts.append(batch["Discount"].max().item())
        algorithm.gamma = 0.5
    assert discounts == pytest.approx([0.9, 0.9, 0.9, 0.5])


def test_a_number_of_batches_is_asked_for() -> None:
    with pytest.raises(ValueError, match="ReplayBuffer: prefetch must be at least 0, got -1"):
        ReplayBuffer.create_factory(SIZE, prefetch=-1)
