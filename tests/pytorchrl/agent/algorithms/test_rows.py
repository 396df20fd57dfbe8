"""Batches as rows: in every layout of a batch, weights and means count the real steps only."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
import storages
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.rows import Rows
from storages import Episodes, Sequences
from storages.transition import (
    ACT,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    ERRORS,
    MASK,
    OBS,
    OBS2,
    REW,
    TRUNC2,
    WEIGHTS,
)
from tests.support.by_hand import envs_with, replayed
from tests.support.toys import continuous

BOX = continuous(-3.0, 1.0, 2)
CODEC = make_codec(BOX, torch.device("cpu"), scaled=True)
LENGTHS = (7, 2, 5, 3, 1, 9)
KINDS: dict[str, Any] = {
    "plain": None,
    "sequences": Sequences(4),
    "burn-in": Sequences(4, burn_in=2),
    "padded": Episodes(),
    "packed": Episodes(packed=True),
}


def storage_of(kind: str, n_step: int = 1) -> Any:
    """Episodes of some lengths, of one environment; rewards and observations differ from step to step."""
    factory = storages.PERBuffer.create_factory(
        size=50, n_step=n_step, alpha=0.7, epsilon=0.1, default_error=1.0, sequences=KINDS[kind]
    )
    storage = factory("cpu", None, SimpleNamespace(gamma=0.9), None)
    storage.seed(0)
    random = np.random.default_rng(0)
    step = 0
    for length in LENGTHS:
        for position in range(length):
            last = position == length - 1
            storage.insert_transition(
                {
                    OBS: np.full((1, 1), step, np.float32),
                    OBS2: np.full((1, 1), step + 1, np.float32),
                    DONE: np.full((1, 1), position == 0),
                    ACT: random.uniform(-3, 1, (1, 2)).astype(np.float32),
                    REW: np.full((1, 1), step, np.float32),
                    DONE2: np.full((1, 1), last),
                    TRUNC2: np.zeros((1, 1)),
                }
            )
            step += 1
    return storage


def batch_of(kind: str, n_step: int = 1) -> Any:
    storage = storage_of(kind, n_step)
    (first,) = storage.generate_batches(1, 30)
    storage.after_gradients(first, {ERRORS: first[OBS]})
    (batch,) = storage.generate_batches(1, 8)
    return batch


def mask_and_weights(batch: Any) -> tuple[Any, Any]:
    """Mask (N,) of the real steps, and their importance weights (N,)."""
    real = np.ones(batch[REW].shape) if MASK not in batch else batch[MASK].numpy()
    if EPISODE in batch:
        weight = batch[WEIGHTS].numpy()[batch[EPISODE].numpy()[:, 0]]
    else:
        weight = np.broadcast_to(batch[WEIGHTS].numpy(), real.shape)
    return real.ravel(), weight.ravel()


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_steps_of_a_batch_in_their_order(kind: str, n_step: int) -> None:
    batch = batch_of(kind, n_step)
    rows = Rows(batch, CODEC)
    number = batch[REW].numel()
    assert len(rows) == number
    for found, key in ((rows.reward, REW), (rows.discount, DISCOUNT), (rows[OBS2], OBS2)):
        assert found.shape == (number, 1)
        assert torch.equal(found.flatten(), batch[key].flatten())
    assert rows.action.shape == (number, 2)
    torch.testing.assert_close(rows.action, (batch[ACT].reshape(-1, 2) + 1) / 2)
    errors = torch.randn(number, 1)
    back = rows.per_row(errors)
    assert back.shape == batch[REW].shape
    assert torch.equal(back.flatten(), errors.flatten())


@pytest.mark.parametrize("kind", KINDS)
def test_real_rows_are_weighted_by_their_importance_weights(kind: str) -> None:
    batch = batch_of(kind)
    rows = Rows(batch, CODEC)
    real, weight = mask_and_weights(batch)
    assert len(np.unique(weight)) > 1
    assert (real.all()) == (kind not in ("padded", "sequences", "burn-in"))
    np.testing.assert_allclose(rows.weight.numpy().ravel(), real * weight / real.sum(), rtol=1e-6)
    values = torch.randn(len(rows), 1)
    numbers = values.numpy().ravel()
    np.testing.assert_allclose(rows.mean(values), (real * numbers).sum() / real.sum(), rtol=1e-4, atol=1e-6)
    expected = (real * weight * numbers).sum() / real.sum()
    np.testing.assert_allclose(rows.weighted_mean(values), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_rows_sum_to_one_without_importance_weights(kind: str) -> None:
    batch = batch_of(kind)
    batch[WEIGHTS] = torch.ones_like(batch[WEIGHTS])
    torch.testing.assert_close(Rows(batch, CODEC).weight.sum(), torch.ones(()))
    if kind == "plain":
        del batch[WEIGHTS]
        assert torch.equal(Rows(batch, CODEC).weight, torch.full((8, 1), 1 / 8))


@pytest.mark.parametrize("kind", KINDS)
def test_networks_without_a_memory_give_equal_outputs_for_every_kind_of_batch(kind: str) -> None:
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,))("cpu", envs)
    network = actor.make("q", Values())
    batch = batch_of(kind)
    wide = {key: batch[key].expand(*batch[key].shape[:-1], 3) for key in (OBS, OBS2)}
    rows = Rows(batch | wide, CODEC)
    for view, key in ((rows.now, OBS), (rows.next, OBS2)):
        expected = network(actor.view(wide[key].reshape(-1, 3))).values
        torch.testing.assert_close(network(view).values, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_not_changed(kind: str) -> None:
    batch = batch_of(kind)
    before = {key: value.clone() for key, value in batch.items() if isinstance(value, torch.Tensor)}
    rows = Rows(batch, CODEC)
    rows.per_row(rows.weight * rows.reward + rows.mean(rows.discount)).sum()
    assert batch.keys() >= before.keys()
    assert all(torch.equal(batch[key], value) for key, value in before.items())


def test_a_single_row_is_standardised_to_itself_with_a_mask_and_without() -> None:
    def rows(length: int, **more: torch.Tensor) -> Rows:
        shape = (length, 1, 1) if more else (length, 1)
        return Rows({key: torch.zeros(shape) for key in (OBS, DONE, REW)} | more, CODEC)

    assert rows(1).standardised(torch.tensor([[2.0]])).tolist() == [[2.0]]
    padded = rows(3, **{MASK: torch.tensor([1.0, 0, 0]).view(3, 1, 1)})
    assert padded.standardised(torch.tensor([[2.0], [5.0], [7.0]]))[0].tolist() == [2.0]


@pytest.mark.parametrize("mean", ["mean", "weighted_mean"])
def test_a_mean_of_values_without_a_last_axis_is_refused(mean: str) -> None:
    envs = envs_with(BOX)
    algorithm = prl.SAC.create_factory()("cpu", prl.OffPolicyActor.create_factory()("cpu", envs), envs)
    rows = algorithm.read(replayed(np.zeros((4, 2), np.float32)))
    values = torch.full((4, 1), 2.0)
    weight = 1.0 if mean == "mean" else float(rows.weight.sum())
    assert float(getattr(rows, mean)(values)) == pytest.approx(2 * weight)
    with pytest.raises(ValueError, match=r"the mean is of values \(N, 1\), got \(4,\); keep the last axis"):
        getattr(rows, mean)(values[:, 0])
