"""QR-DQN's update equals the one computed by hand, by the loss of the paper."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    first_adam_step,
    layer_of,
    linear,
    linear_values,
    n_step_batch,
    numeric_gradient,
    numpy,
    replayed,
)

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])
NUM_ACTIONS, NUM_QUANTILES = 3, 5


def linear_qrdqn(**hyper_parameters: Any) -> Any:
    return linear_values(prl.QRDQN, NUM_ACTIONS, **({"num_quantiles": NUM_QUANTILES} | hyper_parameters))


def quantiles_of(layer: Any, obs: Any) -> Any:
    """(B, actions, quantiles)."""
    return linear(layer, obs).reshape(len(obs), NUM_ACTIONS, -1)


def quantile_huber_loss(quantiles: Any, target: Any, kappa: float) -> float:
    """Algorithm 1 and equations 9 and 10 of the paper, pair by pair of quantiles."""
    total = 0.0
    for i, quantile in enumerate(quantiles):
        fraction = (2 * i + 1) / (2 * len(quantiles))
        of_quantile = 0.0
        for value in target:
            error = value - quantile
            huber = error**2 / 2 if abs(error) <= kappa else kappa * (abs(error) - kappa / 2)
            of_quantile += abs(fraction - (error < 0)) * huber
        total += of_quantile / len(target)
    return total


class NumpyQRDQN:
    """The loss of one batch."""

    def __init__(self, algorithm: prl.QRDQN, batch: dict[str, Any]) -> None:
        self.online, self.target = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.kappa = algorithm.kappa
        obs2 = self.batch[OBS2]
        quantiles = quantiles_of(self.target, obs2)
        chooses = quantiles_of(self.online, obs2) if algorithm.double else quantiles
        chosen = quantiles[np.arange(len(obs2)), chooses.mean(2).argmax(1)]
        self.targets = self.batch[REW] + self.batch[DISCOUNT] * chosen  # (B, quantiles)

    def losses(self) -> Any:
        of_actions = quantiles_of(self.online, self.batch[OBS])[np.arange(len(ACTIONS)), ACTIONS[:, 0]]
        pairs = zip(of_actions, self.targets, strict=True)
        return np.array([[quantile_huber_loss(quantiles, target, self.kappa)] for quantiles, target in pairs])

    def loss(self) -> float:
        return float((self.batch[WEIGHTS] * self.losses()).mean())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("kappa", "max_grad_norm"), [(1.0, None), (0.3, None), (1.0, 0.1)])
def test_an_update_equals_the_one_computed_by_hand(kappa: float, max_grad_norm: float | None, double: bool) -> None:
    algorithm = linear_qrdqn(lr=0.01, kappa=kappa, double=double, max_grad_norm=max_grad_norm, polyak=0.8)
    batch = n_step_batch(ACTIONS)
    before = copies(batch)
    by_hand = NumpyQRDQN(algorithm, batch)
    of_the_other = NumpyQRDQN(linear_qrdqn_like(algorithm, double=not double), batch)
    assert not np.allclose(by_hand.targets, of_the_other.targets), (
        "targets with and without double differ in this batch"
    )
    expected = [numeric_gradient(by_hand.loss, part) for part in by_hand.online]

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    # Priorities follow each row's loss.
    np.testing.assert_allclose(numpy(result.info[ERRORS]), by_hand.losses(), rtol=1e-4)
    of_actions = quantiles_of(by_hand.online, by_hand.batch[OBS])[np.arange(len(ACTIONS)), ACTIONS[:, 0]]
    np.testing.assert_allclose(result.metrics["q_value"], of_actions.mean(), rtol=1e-4)
    for part, gradient in zip(("weight", "bias"), expected, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"q.head.numbers.layer.{part}"]), gradient, rtol=1e-3, atol=1e-5)

    algorithm.update(batch)
    if max_grad_norm is not None:
        norm = np.sqrt(sum((gradient**2).sum() for gradient in expected))
        assert norm > max_grad_norm
        expected = [gradient * max_grad_norm / norm for gradient in expected]
    parts = zip(
        layer_of(algorithm.q.head.numbers),
        layer_of(algorithm.q_target.head.numbers),
        by_hand.online,
        by_hand.target,
        expected,
        strict=True,
    )
    for online, target, online_before, target_before, gradient in parts:
        stepped = online_before + first_adam_step(gradient, 0.01)
        np.testing.assert_allclose(online, stepped, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(target, 0.8 * target_before + 0.2 * online, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def linear_qrdqn_like(algorithm: prl.QRDQN, **changes: Any) -> prl.QRDQN:
    other = linear_qrdqn(**changes)
    other.load_state_dict(algorithm.state_dict())
    return other


def test_quantiles_learn_the_distribution_of_rewards() -> None:
    algorithm = linear_qrdqn(num_quantiles=4, lr=prl.LinearSchedule(0.2, 0.0), kappa=0.05, max_grad_norm=None)
    random = np.random.default_rng(0)
    for number in range(300):
        algorithm.set_progress(number, 300)
        batch = replayed(random.integers(NUM_ACTIONS, size=(128, 1)))
        for key in (OBS, OBS2, DISCOUNT):
            batch[key].zero_()
        batch[WEIGHTS].fill_(1.0)
        batch[REW] = torch.from_numpy(random.uniform(0, 8, (128, 1)).astype(np.float32))
        algorithm.update(batch)
    found = quantiles_of(layer_of(algorithm.q.head.numbers), np.zeros((1, 3)))[0]
    # The midpoints of four equal parts of [0, 8].
    np.testing.assert_allclose(found, np.tile([1.0, 3.0, 5.0, 7.0], (NUM_ACTIONS, 1)), atol=0.3)
