"""The recurrent states of an update replace those stored with the steps of its sequences."""

from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, HERBuffer, MixedStorage, PERBuffer, ReplayBuffer, Sequences
from storages.transition import BATCH_SIZES, BURN_IN, DONE, EPISODE, ERRORS, INDICES, MASK, RHS
from tests.support.model import ALGORITHM, Stream, equal, unchanged

ENVS, SIZE, STEPS, ROWS = 2, 30, 20, 12
KINDS: dict[str, Any] = {
    "within episodes": Sequences(6),
    "across episodes": Sequences(6, across_episodes=True),
    "burn-in": Sequences(4, burn_in=2, across_episodes=True),
    "episodes": Episodes(whole=False),
    "packed": Episodes(whole=False, packed=True),
}


def filled(kind: Any, make: Any = ReplayBuffer, steps: int = STEPS, **settings: Any) -> tuple[Any, Stream]:
    storage = make.create_factory(size=SIZE, sequences=kind, **settings)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(ENVS, "vector", True, np.random.default_rng(3))
    for _ in range(steps):
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


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_states_kept_on_the_device_are_those_of_a_storage_on_the_cpu(kind: Any, prefetch: int) -> None:
    on_cpu, stream = filled(kind, PERBuffer)
    on_device, _ = filled(kind, PERBuffer, keep_on_device=True, prefetch=prefetch)
    begun_newer = 0
    for inserted in (0, 1, 7, 0, SIZE + 3, 2):
        for _ in range(inserted):
            sample = stream.step()
            for storage in (on_cpu, on_device):
                storage.insert_transition(sample)
        batches = [storage.generate_batches(4, ROWS) for storage in (on_cpu, on_device)]
        for one, other in zip(*batches, strict=True):
            assert equal(one, other)
            begun_newer += int((one[RHS] >= 100).any())
            for storage, batch in ((on_cpu, one), (on_device, other)):
                storage.after_gradients(batch, {RHS: new_states(storage, batch), ERRORS: torch.ones_like(batch[DONE])})
    # Only pieces of episodes begin in their middle.
    assert begun_newer or isinstance(kind, Episodes)


def test_hindsight_keeps_the_states_of_acting() -> None:
    storage, _ = filled(KINDS["within episodes"], HERBuffer, her_function=unchanged, her_ratio=0.5)
    before = states_of(storage)
    batch = next(iter(storage.generate_batches(1, ROWS)))
    storage.after_gradients(batch, {RHS: new_states(storage, batch)})
    assert torch.equal(states_of(storage), before)


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


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_storage_of_a_mix_takes_the_states_of_its_own_steps(kind: Any) -> None:
    parts = [filled(kind, steps=steps)[0] for steps in (STEPS, STEPS - 5)]
    before = [states_of(part) for part in parts]
    mix = MixedStorage(dict(zip("ab", parts, strict=True)), {"a": 0.5, "b": 0.5})
    batch = next(iter(mix.generate_batches(1, ROWS)))
    # Each state is the one stored plus 100, so that it says of which storage and step it is.
    states = new_states(parts[0], batch).clone()
    expected = [stored.clone() for stored in before]
    for position, number in continuing(batch):
        row = int(batch[EPISODE][position[0], 0]) if BATCH_SIZES in batch else position[1]
        of, place = int(row >= ROWS // 2), divmod(number, ENVS)
        states[position] = expected[of][place] = before[of][place] + 100
    mix.after_gradients(batch, {RHS: states})
    for part, there, stored in zip(parts, expected, before, strict=True):
        assert torch.equal(states_of(part), there)
        assert not torch.equal(there, stored)
    with pytest.raises(ValueError, match=r"MixedStorage: .* must be one state for each step of the batch"):
        mix.after_gradients(batch, {RHS: states[1:]})
