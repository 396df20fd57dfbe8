"""An update without exactly one error for each row of its batch is refused before any priority is changed."""

from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, PERBuffer, Sequences
from storages.transition import EPISODE, ERRORS, INDICES, MASK
from tests.support.model import ALGORITHM, Stream, equal


def filled(**hyper_parameters: Any) -> PERBuffer:
    storage = PERBuffer.create_factory(size=100, alpha=0.6, **hyper_parameters)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(60):
        storage.insert_transition(stream.step())
    return storage


KINDS = {
    "transitions": (None, INDICES),
    "sequences": (Sequences(4), MASK),
    "episodes": (Episodes(whole=False), MASK),
    "packed episodes": (Episodes(whole=False, packed=True), EPISODE),
}


def wrong_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Wrong shapes that are similar to the given one."""
    rows = shape[:-1]
    others = [(1, 1), (1,), (), shape[:-1], (*rows, 2), (*rows, 1, 1), (shape[0] - 1, *shape[1:])]
    others += [(shape[0] + 5, *shape[1:]), (0, *shape[1:]), (1, *shape)]
    return [other for other in others if other != shape]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_another_shape_than_the_batch_are_refused_with_both_shapes(kind: str) -> None:
    sequences, key = KINDS[kind]
    storage = filled(sequences=sequences)
    (batch,) = storage.generate_batches(1, 16)
    before = storage.state_dict()["priorities"]
    expected = tuple(batch[key].shape)
    for shape in wrong_shapes(expected):
        for errors in (torch.ones(shape), np.ones(shape)):
            with pytest.raises(ValueError, match="one error for each row of the batch") as refusal:
                storage.after_gradients(batch, {ERRORS: errors})
            assert f"Errors must have shape {expected}" in str(refusal.value)
            assert f"got {shape}" in str(refusal.value)
    after = storage.state_dict()["priorities"]
    assert torch.equal(before.pop("errors"), after.pop("errors"))
    assert before == after


@pytest.mark.parametrize("kind", ["transitions", "packed episodes"])
@pytest.mark.parametrize(
    "convert",
    [
        lambda errors: errors.double(),
        lambda errors: errors.half(),
        lambda errors: errors.bfloat16(),
        lambda errors: errors.int(),
        lambda errors: errors.requires_grad_(),
        lambda errors: errors.numpy(),
        lambda errors: errors.numpy().astype(np.float16),
        lambda errors: np.asfortranarray(errors.numpy().astype(np.float64)),
        lambda errors: -errors,
    ],
)
def test_errors_of_any_real_dtype_are_accepted_as_tensors_and_arrays(kind: str, convert: Any) -> None:
    sequences, key = KINDS[kind]
    one, other = filled(sequences=sequences), filled(sequences=sequences)
    for storage, change in ((one, torch.clone), (other, convert)):
        (batch,) = storage.generate_batches(1, 16)
        errors = torch.arange(batch[key].numel()).reshape(batch[key].shape).float() % 7
        storage.after_gradients(batch, {ERRORS: change(errors)})
    assert equal(next(one.generate_batches(1, 16)), next(other.generate_batches(1, 16)))


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (
            torch.ones(4),
            r"Errors must have shape \(4, 1\), .*, got \(4,\) \(errors.unsqueeze\(-1\) adds the last axis\)",
        ),
        ([[1.0]] * 4, r"Errors must be a tensor or an array of numbers of shape \(4, 1\), got list"),
        (None, r"Errors must be a tensor or an array of numbers of shape \(4, 1\), got NoneType"),
        (np.array([["a"]] * 4), "Errors must be a tensor or an array of numbers .*, got an array of <U1"),
        (torch.ones(4, 1, dtype=torch.complex64), "Errors must be real numbers, got torch.complex64"),
        (torch.full((4, 1), 1e39, dtype=torch.float64), "error 0 of the update is 1e.39, beyond what float32 holds"),
        (torch.full((4, 1), torch.inf), "error 0 of the update is inf; no priority was changed"),
    ],
)
def test_invalid_errors_are_refused_and_the_storage_can_still_be_saved_and_loaded(errors: Any, message: str) -> None:
    storage = filled()
    (batch,) = storage.generate_batches(1, 4)
    with pytest.raises(ValueError, match=f"PERBuffer: {message}"):
        storage.after_gradients(batch, {ERRORS: errors})
    other = filled()
    other.load_state_dict(storage.state_dict())
    assert equal(next(storage.generate_batches(1, 16)), next(other.generate_batches(1, 16)))
