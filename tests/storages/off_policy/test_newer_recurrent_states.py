"""The recurrent states of an update replace those stored with the steps of its sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, HERBuffer, MixedStorage, PERBuffer, ReplayBuffer, Sequences
from storages.transition import BATCH_SIZES, BURN_IN, DONE, EPISODE, ERRORS, INDICES, MASK, RHS
from tests.support.model import ALGORITHM, Stream, unchanged

ENVS, SIZE, STEPS, ROWS = 2, 30, 20, 12
KINDS: dict[str, Any] = {
    "within episodes": Sequences(6),
    "across episodes": Sequences(6, across_episodes=True),
    "burn-in": Sequences(4, burn_in=2, across_episodes=True),
    "episodes": Episodes(whole=False),
    "packed": Episodes(whole=False, packed=True),
}


def filled(kind: Any, make: Any = ReplayBuffer, **settings: Any) -> tuple[Any, Stream]:
    storage = make.create_factory(size=SIZE, sequences=kind, **settings)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(ENVS, "vector", True, np.random.default_rng(3))
    for _ in range(STEPS):
        storage.insert_transition(stream.step())
    return storage, stream


def states_of(storage: Any) -> torch.Tensor:
    """The stored states, (steps, E, hidden)."""
    states: torch.Tensor = storage.get_all_buffer_data()[RHS]
    return states.clone()


def new_states(storage: Any, batch: dict[str, Any]) -> torch.Tensor:
    """States that no step has: 100 for the first step of the batch, 101 for the second one, and so on."""
    steps = batch[DONE].shape[:-1]
    numbers = 100 + torch.arange(int(np.prod(steps)), dtype=torch.float32).view(*steps, 1)
    return numbers.expand(*steps, states_of(storage).shape[-1])


def continuing(batch: dict[str, Any]) -> list[tuple[tuple[int, ...], int]]:
    """Positions in a batch of the steps that continue the one before, and the numbers of their transitions."""
    found: list[tuple[tuple[int, ...], int]] = []
    if BATCH_SIZES in batch:
        seen = dict.fromkeys(range(ROWS), 0)
        for position, episode in enumerate(batch[EPISODE][:, 0].tolist()):
            if seen[episode] and not batch[DONE][position, 0]:
                found.append(((position,), int(batch[INDICES][episode, 0]) + seen[episode] * ENVS))
            seen[episode] += 1
        return found
    for row in range(ROWS):
        for step in range(1, len(batch[MASK])):
            if batch[MASK][step, row, 0] and not batch[DONE][step, row, 0]:
                found.append(((step, row), int(batch[INDICES][row, 0]) + step * ENVS))
    return found


@pytest.mark.parametrize("make", [ReplayBuffer, PERBuffer])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_states_of_an_update_are_stored_where_a_step_continues_another(kind: Any, make: Any) -> None:
    storage, _ = filled(kind, make)
    before = states_of(storage)
    batch = next(iter(storage.generate_batches(1, ROWS)))
    states = new_states(storage, batch)
    storage.after_gradients(batch, {RHS: states, ERRORS: torch.ones_like(batch[DONE])})
    expected = {number: states[position] for position, number in continuing(batch)}
    assert len(expected) > 2
    after = states_of(storage)
    for number in range(STEPS * ENVS):
        place = divmod(number, ENVS)
        at_hand = [states[position] for position, other in continuing(batch) if other == number]
        if at_hand:
            assert any(torch.equal(after[place], state) for state in at_hand)
        else:
            assert torch.equal(after[place], before[place])


def test_later_sequences_begin_with_the_states_of_the_update_before() -> None:
    storage, _ = filled(KINDS["across episodes"])
    batch = next(iter(storage.generate_batches(1, ROWS)))
    storage.after_gradients(batch, {RHS: new_states(storage, batch)})
    stored = states_of(storage)
    begun_newer = 0
    for later in storage.generate_batches(20, ROWS):
        for row, number in enumerate(later[INDICES][:, 0].tolist()):
            assert torch.equal(later[RHS][row], stored[divmod(number, ENVS)])
            begun_newer += bool((later[RHS][row] >= 100).all())
    assert begun_newer


def test_batches_made_ahead_hold_the_states_of_the_update_before() -> None:
    found = []
    for prefetch in (0, 2):
        storage, _ = filled(KINDS["across episodes"], prefetch=prefetch)
        seen = []
        for batch in storage.generate_batches(8, ROWS):
            seen.append(batch[RHS])
            storage.after_gradients(batch, {RHS: new_states(storage, batch) * (1 + len(seen))})
        found.append(torch.stack(seen))
    assert torch.equal(*found)


def test_states_of_steps_dropped_since_the_draw_are_left_out() -> None:
    storage, stream = filled(KINDS["across episodes"])
    batch = next(iter(storage.generate_batches(1, ROWS)))
    for _ in range(SIZE - 2):
        storage.insert_transition(stream.step())
    before = states_of(storage)
    storage.after_gradients(batch, {RHS: new_states(storage, batch)})
    kept = {number - 18 * ENVS for _, number in continuing(batch)}
    changed = (states_of(storage) != before).any(-1).flatten().nonzero()[:, 0].tolist()
    assert set(changed) == {number for number in kept if number >= 0}


def test_a_state_saved_after_an_update_holds_its_recurrent_states() -> None:
    storage, _ = filled(KINDS["within episodes"])
    batch = next(iter(storage.generate_batches(1, ROWS)))
    storage.after_gradients(batch, {RHS: new_states(storage, batch)})
    copy, _ = filled(KINDS["within episodes"])
    copy.load_state_dict(storage.state_dict())
    assert torch.equal(states_of(copy), states_of(storage))


@pytest.mark.parametrize("why", ["directory", "on the device", "hindsight"])
def test_a_storage_that_cannot_replace_states_keeps_those_of_acting(why: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "directory": {"directory": tmp_path},
        "on the device": {"keep_on_device": True},
        "hindsight": {"make": HERBuffer, "her_function": unchanged, "her_ratio": 0.5},
    }[why]
    storage, _ = filled(KINDS["within episodes"], **settings)
    before = states_of(storage)
    batch = next(iter(storage.generate_batches(1, ROWS)))
    storage.after_gradients(batch, {RHS: new_states(storage, batch)})
    assert torch.equal(states_of(storage), before)
    storage.close()


def test_states_of_another_shape_are_refused_and_nothing_is_replaced() -> None:
    storage, _ = filled(KINDS["burn-in"])
    before = states_of(storage)
    batch = next(iter(storage.generate_batches(1, ROWS)))
    assert BURN_IN in batch
    with pytest.raises(ValueError, match=r"must have shape \(4, 12, .*\), one state for each step of the batch"):
        storage.after_gradients(batch, {RHS: new_states(storage, batch)[1:]})
    assert torch.equal(states_of(storage), before)


def test_states_of_single_transitions_are_refused() -> None:
    storage, _ = filled(None)
    batch = next(iter(storage.generate_batches(1, ROWS)))
    with pytest.raises(ValueError, match="states of sequences or episodes only"):
        storage.after_gradients(batch, {RHS: batch[RHS]})


def test_storages_of_a_mix_keep_the_states_of_acting() -> None:
    parts = [filled(KINDS["within episodes"])[0] for _ in range(2)]
    before = [states_of(part) for part in parts]
    mix = MixedStorage(dict(zip("ab", parts, strict=True)), {"a": 0.5, "b": 0.5})
    batch = next(iter(mix.generate_batches(1, ROWS)))
    mix.after_gradients(batch, {RHS: torch.zeros(*batch[DONE].shape[:-1], before[0].shape[-1])})
    assert all(torch.equal(states_of(part), states) for part, states in zip(parts, before, strict=True))
