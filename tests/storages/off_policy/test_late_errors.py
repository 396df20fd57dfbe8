"""Errors on a device are transferred asynchronously: they take effect at the second draw after their update."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, EREBuffer, HERBuffer, PERBuffer, Sequences, Storage
from storages.core.device.transfer import Fetched, Transfer
from storages.transition import ERRORS, REW
from tests.support.comparison import assert_equal
from tests.support.episodic import buffer
from tests.support.model import ALGORITHM, Stream, equal, unchanged
from tests.support.profiles import examples


class Arrival:
    """An event; until it is waited for, the copies hold meaningless numbers.

    Args:
        copies: tensors that are filled when they arrive.
        sources: tensors that are copied.
    """

    def __init__(self, copies: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
        self._copies, self._sources = copies, [source.clone() for source in sources]

    def synchronize(self) -> None:
        for arrived, source in zip(self._copies, self._sources, strict=True):
            arrived.copy_(source)


class LateTransfer(Transfer):
    """A transfer to the CPU as if it were another device."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.is_asynchronous = True

    def fetch(self, *tensors: torch.Tensor) -> Fetched:
        copies = [torch.full_like(tensor, 12_345) for tensor in tensors]
        return Fetched(copies, Arrival(copies, [tensor.detach() for tensor in tensors]))

    def __reduce__(self) -> tuple[Any, ...]:
        return LateTransfer, ()


def with_late_errors(storage: Storage) -> Any:
    """Make a storage that does not wait for errors."""
    storage.sampler._transfer = LateTransfer()  # type: ignore[attr-defined]
    return storage


SIZE = 16
PRIORITIES: dict[str, Any] = {"n_step": 2, "alpha": 0.7, "beta": 0.5, "epsilon": 0.01}
WINDOWS = [None, Sequences(4, burn_in=2, overlap=2), Episodes(), Episodes(packed=True)]


KINDS: dict[str, Any] = {
    "priority": lambda **kwargs: PERBuffer.create_factory(SIZE, **PRIORITIES, **kwargs),
    "recency": lambda **kwargs: EREBuffer.create_factory(SIZE, eta=0.999, cmin=6, **PRIORITIES, **kwargs),
    "hindsight": lambda **kwargs: HERBuffer.create_factory(SIZE, unchanged, **PRIORITIES, **kwargs),
}


def made(kind: str = "priority", **hyper_parameters: Any) -> Any:
    storage = KINDS[kind](**hyper_parameters)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage


def filled(*storages: Storage, steps: int = 20) -> Stream:
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        insert(stream.step(), *storages)
    return stream


def insert(sample: Any, *storages: Storage) -> None:
    for storage in storages:
        storage.insert_transition(sample)


def errors_of(batch: Any, update: int = 0) -> torch.Tensor:
    """Errors that are computed from the batch."""
    return batch[REW].abs() * (1 + update % 5)


class DelayedErrors:
    """Gives a storage its errors at the moment when late errors must take effect.

    Args:
        storage: receives the errors.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.pending: list[tuple[Any, Any]] = []
        self.pending_at_last_draw = 0

    def draw(self, batches: Any) -> Any:
        self.give(self.pending_at_last_draw)
        self.pending_at_last_draw = len(self.pending)
        return next(batches)

    def give(self, count: int) -> None:
        for batch, errors in self.pending[:count]:
            self.storage.after_gradients(batch, {ERRORS: errors})
        del self.pending[:count]
        self.pending_at_last_draw = max(0, self.pending_at_last_draw - count)


@settings(max_examples=examples(60), deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    sequences=st.sampled_from(WINDOWS),
    default_error=st.sampled_from([1.0, "largest", "first"]),
    events=st.lists(st.sampled_from(["update"] * 4 + ["insert", "save", "reset"]), min_size=5, max_size=40),
)
def test_errors_take_effect_at_the_second_draw_or_at_an_insertion_or_a_save(
    kind: str, sequences: Any, default_error: Any, events: list[str]
) -> None:
    late = with_late_errors(made(kind, sequences=sequences, default_error=default_error))
    reference = DelayedErrors(made(kind, sequences=sequences, default_error=default_error))
    stream = filled(late, reference.storage)
    batches, expected = late.generate_batches(1000, 6), reference.storage.generate_batches(1000, 6)
    for number, event in enumerate(events):
        if event == "update":
            batch, other = next(batches), reference.draw(expected)
            assert equal(batch, other)
            errors = errors_of(batch, number)
            info, bare = late.after_gradients(batch, {ERRORS: errors, "loss": 2.0}), {"loss": 2.0}
            reference.pending.append((other, errors.clone()))
            assert bare.items() <= info.items()
            # The caller may overwrite its tensor of errors afterwards.
            errors.fill_(99.0)
        elif event == "insert":
            insert(stream.step(), late, reference.storage)
            reference.give(len(reference.pending))
        elif event == "save":
            reference.give(len(reference.pending))
            assert_equal(late.state_dict(), reference.storage.state_dict())
        else:
            reference.give(len(reference.pending))
            for storage in (late, reference.storage):
                storage.reset()
            for _ in range(20):
                insert(stream.step(), late, reference.storage)


@pytest.mark.parametrize("prefetch", [1, 3])
def test_prefetched_batches_are_drawn_with_the_errors_in_effect_at_their_draw(prefetch: int) -> None:
    late, reference = with_late_errors(made(prefetch=prefetch)), DelayedErrors(made(prefetch=prefetch))
    stream = filled(late, reference.storage)
    for _ in range(4):
        for batch, other in zip(late.generate_batches(8, 6), reference.storage.generate_batches(8, 6), strict=True):
            assert equal(batch, other)
            # All batches so far were drawn without the errors of the previous update.
            reference.give(len(reference.pending))
            late.after_gradients(batch, {ERRORS: errors_of(batch)})
            reference.pending.append((other, errors_of(batch)))
        insert(stream.step(), late, reference.storage)
        reference.give(len(reference.pending))
        assert_equal(late.state_dict(), reference.storage.state_dict())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_non_finite_error_is_refused_by_the_draw_at_which_it_takes_effect(value: float) -> None:
    late, sound = with_late_errors(made()), made()
    filled(late, sound)
    batches = late.generate_batches(9, 6)
    next(iter(sound.generate_batches(1, 6)))
    for update in range(3):
        errors = errors_of(batch := next(batches))
        errors[2] = value if update == 1 else errors[2]
        late.after_gradients(batch, {ERRORS: errors})
        if update != 1:
            sound.after_gradients(batch, {ERRORS: errors})
    with pytest.raises(ValueError, match=rf"PERBuffer: error 2 of the update is {value}; no priority was changed"):
        next(batches)
    # The errors of the other updates take effect, and the storage can be saved.
    assert_equal(late.state_dict()["priorities"], sound.state_dict()["priorities"])
    assert next(iter(late.generate_batches(1, 6))) is not None


def test_a_storage_can_be_saved_after_an_update_with_nan_errors(tmp_path: Path) -> None:
    late = with_late_errors(made(directory=tmp_path / "replay"))
    filled(late)
    batch = next(iter(late.generate_batches(1, 6)))
    late.after_gradients(batch, {ERRORS: errors_of(batch) * float("nan")})
    late.state_dict()
    late.close()
    again = made(directory=tmp_path / "replay")
    assert len(again) == len(late)
    again.close()


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({}, "PERBuffer: the update's info has no 'Errors'"),
        ({ERRORS: torch.zeros(6)}, r"PERBuffer: Errors must have shape \(6, 1\)"),
        ({ERRORS: torch.zeros(6, 1, dtype=torch.complex64)}, "PERBuffer: Errors must be real numbers"),
    ],
)
def test_missing_or_malformed_errors_are_refused_immediately(info: Any, message: str) -> None:
    late = with_late_errors(made())
    filled(late)
    batch = next(iter(late.generate_batches(1, 6)))
    with pytest.raises(ValueError, match=message):
        late.after_gradients(batch, info)


def test_a_copy_includes_the_errors_that_are_still_being_transferred() -> None:
    late = with_late_errors(made())
    filled(late)
    batches = late.generate_batches(3, 6)
    for _ in range(2):
        late.after_gradients(batch := next(batches), {ERRORS: errors_of(batch)})
    batches.close()
    copies = [copy.deepcopy(late), pickle.loads(pickle.dumps(late))]
    expected = next(iter(late.generate_batches(1, 6)))
    for storage in copies:
        assert equal(next(iter(storage.generate_batches(1, 6))), expected)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("size", [20, 200])
@pytest.mark.parametrize("sequences", [None, Episodes()])
def test_an_episodic_buffer_on_disk_applies_late_errors(size: int, sequences: Any, tmp_path: Path) -> None:
    """Also the errors of episodes that are evicted from memory."""
    late, reference = (
        buffer(tmp_path / name, "vector", 2, size, sequences=sequences, memory_bytes=100_000, **PRIORITIES)
        for name in ("late", "reference")
    )
    with_late_errors(late)
    stream = filled(late, reference, steps=60)
    for storage in (late, reference):
        storage.seed(0)
    for _ in range(5):
        # A single update before an insertion: its errors take effect before the next draw in both storages.
        batch, other = (next(iter(storage.generate_batches(1, 6))) for storage in (late, reference))
        assert equal(batch, other)
        late.after_gradients(batch, {ERRORS: errors_of(batch)})
        reference.after_gradients(other, {ERRORS: errors_of(batch)})
        insert(stream.step(), late, reference)
    for name in ("errors", "priorities", "generator"):
        assert_equal(late.state_dict()[name], reference.state_dict()[name])
    late.close()
    reference.close()
