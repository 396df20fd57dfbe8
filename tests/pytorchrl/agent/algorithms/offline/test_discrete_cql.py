"""DiscreteCQL's loss and gradients equal those of numpy loops over rows and actions."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import envs_with, layer_of, linear, n_step_batch, numeric_gradient, numpy, perturb

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])


def linear_cql(cls: Any = prl.DiscreteCQL, **hyper_parameters: Any) -> Any:
    torch.manual_seed(0)
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", actor, envs)
    for seed, network in enumerate((algorithm.q, algorithm.q_target)):
        perturb(network, seed)
    return algorithm


class ByHand:
    """Double DQN's error and the gap, row by row."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.algorithm = algorithm
        self.q, slow = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.targets = [
            self.batch[REW][row, 0] + self.batch[DISCOUNT][row, 0] * linear(slow, obs2)[linear(self.q, obs2).argmax()]
            for row, obs2 in enumerate(self.batch[OBS2])
        ]

    def loss(self) -> float:
        total = 0.0
        for row, obs in enumerate(self.batch[OBS]):
            values = linear(self.q, obs)
            error = abs(values[ACTIONS[row, 0]] - self.targets[row])
            is_linear = self.algorithm.huber_threshold is not None and error >= self.algorithm.huber_threshold
            bellman = error - 0.5 if is_linear else error**2 / 2
            total += self.batch[WEIGHTS][row, 0] * (
                bellman + self.algorithm.conservative_weight * self.gap(values, row)
            )
        return total / len(ACTIONS)

    def gap(self, values: Any, row: int) -> float:
        return float(np.log(sum(np.exp(value) for value in values)) - values[ACTIONS[row, 0]])

    def mean_gap(self) -> float:
        gaps = [self.gap(linear(self.q, obs), row) for row, obs in enumerate(self.batch[OBS])]
        return float((self.batch[WEIGHTS][:, 0] * gaps).mean())


@pytest.mark.parametrize(
    "settings", [{}, {"conservative_weight": 0.0}, {"conservative_weight": 4.0, "huber_threshold": 1.0}]
)
def test_loss_and_gradients_equal_those_of_numpy_loops(settings: dict[str, float]) -> None:
    algorithm = linear_cql(**settings)
    batch = n_step_batch(ACTIONS)
    by_hand = ByHand(algorithm, batch)
    values = [linear(by_hand.q, obs)[a] for obs, (a,) in zip(by_hand.batch[OBS], ACTIONS, strict=True)]
    assert np.abs(np.subtract(values, by_hand.targets)).max() > 1
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["conservative_gap"], by_hand.mean_gap(), rtol=1e-4)
    assert result.errors is not None
    np.testing.assert_allclose(numpy(result.errors)[:, 0], np.abs(np.subtract(values, by_hand.targets)), rtol=1e-4)
    for part, name in zip(by_hand.q, ("weight", "bias"), strict=True):
        expected = numeric_gradient(by_hand.loss, part)
        np.testing.assert_allclose(numpy(gradients[f"q.head.numbers.layer.{name}"]), expected, rtol=1e-3, atol=1e-5)
