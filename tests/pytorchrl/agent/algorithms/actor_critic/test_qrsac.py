"""QRSAC's losses and gradients equal those of slow numpy loops over rows, critics and pairs of quantiles."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import QuantileValue, quantile_midpoints
from storages.transition import OBS, WEIGHTS
from tests.support.soft_critics import ByHand, assert_gradients, made, n_step_batch

QUANTILES = 5


class NumpyQRSAC(ByHand):
    def prepare(self, algorithm: Any) -> None:
        super().prepare(algorithm)
        self._kappa = algorithm.kappa

    def of_target(self, values: list[Any]) -> Any:
        chosen = []
        for row in range(len(values[0])):
            means = [sum(quantiles[row]) / QUANTILES for quantiles in values]
            chosen.append(values[means.index(min(means))][row])
        return np.stack(chosen)

    def of_policy(self, values: list[Any]) -> Any:
        return np.min([quantiles.mean(1, keepdims=True) for quantiles in values], axis=0)

    def errors(self) -> Any:
        """Quantile Huber losses of each row: sums over quantiles, means over the target's, and over critics."""
        outputs = self.values(self.critics, self.batch[OBS], self.taken)
        return np.array([[np.mean([self._loss(each[row], self.target[row]) for each in outputs])] for row in range(5)])

    def _loss(self, quantiles: Any, target: Any) -> float:
        total = 0.0
        for number, quantile in enumerate(quantiles):
            fraction = (number + 0.5) / QUANTILES
            for wanted in target:
                error = wanted - quantile
                size, kappa = abs(error), self._kappa
                huber = 0.5 * error**2 if size <= kappa else kappa * (size - 0.5 * kappa)
                total += abs(fraction - (1.0 if error < 0 else 0.0)) * huber / len(target)
        return total

    def critic_loss(self) -> float:
        return float(len(self.critics) * (self.batch[WEIGHTS] * self.errors()).mean())


@pytest.mark.parametrize(("num_critics", "kappa"), [(2, 1.0), (3, 0.3), (1, 1.0)])
def test_gradients_equal_those_of_numpy_loops(num_critics: int, kappa: float) -> None:
    algorithm = made(prl.QRSAC, num_critics=num_critics, num_quantiles=QUANTILES, kappa=kappa, initial_alpha=0.5)
    assert_gradients(algorithm, n_step_batch(), NumpyQRSAC(algorithm, n_step_batch()))


def test_critics_of_equal_means_give_the_distribution_of_one_of_them() -> None:
    algorithm, fractions = made(prl.QRSAC, num_quantiles=2), quantile_midpoints(2)
    values = [QuantileValue(torch.tensor([each]), fractions) for each in ([-1.0, 1.0], [-2.0, 2.0])]
    assert algorithm.value_for_target(values).quantiles.tolist() == [[-1, 1]]
