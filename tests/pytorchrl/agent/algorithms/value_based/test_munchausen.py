"""The updates of Munchausen-DQN and Munchausen-IQN equal those computed by hand, also at low temperatures."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import ScalarValues
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.pytorchrl.agent.algorithms.value_based.test_iqn import (
    N_TARGET,
    K,
    NumpyIQN,
    check_update,
    linear_iqn,
    quantiles_of,
)
from tests.support.by_hand import (
    copies,
    layer_of,
    linear,
    linear_values,
    n_step_batch,
    numeric_gradient,
    numpy,
)
from tests.support.profiles import examples

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])
NUM_ACTIONS = 3


def linear_munchausen(cls: Any = prl.MunchausenDQN, **hyper_parameters: Any) -> Any:
    return linear_values(cls, NUM_ACTIONS, **hyper_parameters)


def policy_of(values: Any, temperature: float) -> tuple[list[float], list[float]]:
    """Probabilities of one row's actions, and their logarithms times the temperature."""
    largest = max(values)
    partition = sum(math.exp((value - largest) / temperature) for value in values)
    scaled = [value - largest - temperature * math.log(partition) for value in values]
    return [math.exp(log / temperature) for log in scaled], scaled


def bonus_of(algorithm: Any, values: Any, action: int) -> float:
    scaled = policy_of(values, algorithm.temperature)[1][action]
    return float(algorithm.alpha * max(algorithm.clip_min, min(scaled, 0.0)))


class NumpyMunchausenDQN:
    """The loss of one batch: equation 1 of the paper, row by row."""

    def __init__(self, algorithm: prl.MunchausenDQN, batch: dict[str, Any]) -> None:
        self.online, target = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
        self.batch = {key: numpy(value) for key, value in batch.items()}
        now, after = linear(target, self.batch[OBS]), linear(target, self.batch[OBS2])
        self.bonuses = np.array([[bonus_of(algorithm, now[b], action)] for b, (action,) in enumerate(ACTIONS)])
        soft = np.zeros((len(now), 1))
        for b, values in enumerate(after):
            for value, probability, scaled in zip(values, *policy_of(values, algorithm.temperature), strict=True):
                soft[b] += probability * (value - scaled)
        self.targets = self.batch[REW] + self.bonuses + self.batch[DISCOUNT] * soft

    def errors(self) -> Any:
        values = linear(self.online, self.batch[OBS])[np.arange(len(ACTIONS)), ACTIONS[:, 0]][:, None]
        return np.abs(values - self.targets)

    def loss(self) -> float:
        errors = self.errors()
        huber = np.where(errors <= 1, errors**2 / 2, errors - 0.5)
        return float((self.batch[WEIGHTS] * huber).mean())


@pytest.mark.parametrize(
    ("temperature", "alpha", "clip_min"),
    [(0.03, 0.9, -1.0), (1.0, 0.9, -1.0), (1.0, 0.5, -0.2), (5.0, 1.0, float("-inf")), (0.03, 0.0, -1.0)],
)
def test_an_update_equals_the_one_computed_by_hand(temperature: float, alpha: float, clip_min: float) -> None:
    algorithm = linear_munchausen(temperature=temperature, alpha=alpha, clip_min=clip_min, max_grad_norm=None)
    batch = n_step_batch(ACTIONS)
    before = copies(batch)
    by_hand = NumpyMunchausenDQN(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), by_hand.errors(), rtol=1e-4, atol=1e-5)
    for part, parameter in zip(("weight", "bias"), by_hand.online, strict=True):
        expected = numeric_gradient(by_hand.loss, parameter)
        np.testing.assert_allclose(numpy(gradients[f"q.head.numbers.layer.{part}"]), expected, rtol=1e-3, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=6), st.floats(1e-30, 1e3))
def test_the_policy_is_a_softmax_at_any_temperature(values: list[float], temperature: float) -> None:
    algorithm = linear_munchausen(temperature=temperature)
    row = torch.tensor([values])
    policy, scaled = algorithm.scaled_log_policy(ScalarValues(row))
    probabilities, expected = policy_of(row.double()[0].tolist(), temperature)
    assert policy.isfinite().all()
    assert scaled.isfinite().all()
    assert (scaled <= 0).all()
    np.testing.assert_allclose(numpy(policy)[0], probabilities, atol=1e-3)
    np.testing.assert_allclose(numpy(scaled)[0], expected, rtol=1e-5, atol=1e-4 * max(temperature, 1e-4))


class NumpyMunchausenIQN(NumpyIQN):
    """The loss of one batch: policy and target use different fractions."""

    def target_quantiles(self, algorithm: Any) -> Any:
        eta = getattr(algorithm.risk, "eta", 1.0)
        now, after = self.batch[OBS], self.batch[OBS2]
        now_means = quantiles_of(self.target, now, eta * self.draw(K)).mean(2)
        means = quantiles_of(self.target, after, eta * self.draw(K)).mean(2)
        quantiles = quantiles_of(self.target, after, self.draw(N_TARGET))
        found = np.zeros((len(now), N_TARGET))
        for b, (action,) in enumerate(ACTIONS):
            probabilities, scaled = policy_of(means[b], algorithm.temperature)
            for j in range(N_TARGET):
                soft = sum(p * (quantiles[b, a, j] - scaled[a]) for a, p in enumerate(probabilities))
                found[b, j] = self.batch[DISCOUNT][b, 0] * soft
            found[b] += self.batch[REW][b, 0] + bonus_of(algorithm, now_means[b], action)
        return found


@pytest.mark.parametrize("temperature", [0.03, 1.0])
@pytest.mark.parametrize("risk", [prl.risk_measures.Neutral(), prl.risk_measures.CVaR(0.3)])
def test_an_update_of_munchausen_iqn_equals_the_one_computed_by_hand(temperature: float, risk: Any) -> None:
    algorithm = linear_iqn(prl.MunchausenIQN, temperature=temperature, risk=risk, max_grad_norm=None)
    batch = n_step_batch(ACTIONS)
    check_update(algorithm, NumpyMunchausenIQN(algorithm, batch), batch)


class MunchausenC51(prl.MunchausenDQN, prl.CategoricalDQN):
    v_min = -20.0
    v_max = 20.0
    num_atoms = 201


def test_targets_of_a_categorical_head_have_the_same_mean() -> None:
    algorithm, batch = linear_munchausen(MunchausenC51, temperature=0.5), n_step_batch(ACTIONS)
    rows = Rows(batch, algorithm.codec)
    with torch.no_grad():
        target, now, after = algorithm.target_value(rows), algorithm.q_target(rows.now), algorithm.q_target(rows.next)
    for b, (action,) in enumerate(ACTIONS):
        values = numpy(after.values[b])
        soft = sum(p * (v - log) for v, p, log in zip(values, *policy_of(values, 0.5), strict=True))
        expected = batch[REW][b, 0] + bonus_of(algorithm, numpy(now.values[b]), action) + batch[DISCOUNT][b, 0] * soft
        assert target.mean[b].item() == pytest.approx(float(expected), abs=1e-3)
    assert algorithm.update(batch).info[ERRORS].shape == (6, 1)
