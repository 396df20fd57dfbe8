"""QRSAC's losses and gradients equal those of slow numpy loops over rows, critics and pairs of quantiles."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import QuantileValue, quantile_midpoints
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import numpy, perturb
from tests.support.soft_critics import ByHand, assert_gradients, made, n_step_batch, target_of

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


def test_each_row_bootstraps_on_the_whole_distribution_of_the_critic_with_the_smaller_mean() -> None:
    algorithm, fractions = made(prl.QRSAC, num_quantiles=3), quantile_midpoints(3)
    # The first critic has the smaller mean in the first row, though also the largest quantile; then the second one.
    quantiles = torch.tensor([[-9.0, 0, 6], [1, 2, 3]]), torch.tensor([[0.0, 1, 2], [0, 5, -5]])
    target = algorithm.value_for_target([QuantileValue(each, fractions) for each in quantiles])
    assert target.quantiles.tolist() == [[-9, 0, 6], [0, 5, -5]]
    assert algorithm.value_for_policy([QuantileValue(each, fractions) for each in quantiles]).mean.tolist() == [
        [-1],
        [0],
    ]


def test_critics_of_equal_means_give_the_distribution_of_one_of_them() -> None:
    algorithm, fractions = made(prl.QRSAC, num_quantiles=2), quantile_midpoints(2)
    values = [QuantileValue(torch.tensor([each]), fractions) for each in ([-1.0, 1.0], [-2.0, 2.0])]
    assert algorithm.value_for_target(values).quantiles.tolist() == [[-1, 1]]


def test_the_means_of_targets_are_those_of_clipped_double_q_learning_and_have_no_gradient() -> None:
    algorithm, batch = made(prl.QRSAC, num_quantiles=QUANTILES, num_critics=3), n_step_batch()
    by_hand = NumpyQRSAC(algorithm, batch)
    target = target_of(algorithm, batch, algorithm.alpha)
    action, log_prob = by_hand.act(by_hand.batch[OBS2], by_hand.noise2)
    means = [each.mean(1) for each in by_hand.values(by_hand.target_critics, by_hand.batch[OBS2], action)]
    soft = np.min(means, axis=0)[:, None] - algorithm.alpha * log_prob
    expected = by_hand.batch[REW] + by_hand.batch[DISCOUNT] * soft
    np.testing.assert_allclose(numpy(target.mean), expected, rtol=1e-4, atol=1e-5)


def test_priorities_follow_the_losses_of_the_rows() -> None:
    algorithm, batch = made(prl.QRSAC, num_quantiles=QUANTILES), n_step_batch()
    perturb(algorithm.critics, 5)
    batch[WEIGHTS] = torch.ones(5, 1)
    result = algorithm.update(batch)
    # The loss is a sum over the two critics, an error their mean.
    torch.testing.assert_close(2 * result.info[ERRORS].mean(), result.metrics["critic_loss"])
    assert len(result.info[ERRORS].unique()) == 5


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="QRSAC: num_quantiles must be at least 1, got 0"):
        prl.QRSAC.create_factory(num_quantiles=0)
    with pytest.raises(ValueError, match="QRSAC: kappa must be"):
        prl.QRSAC.create_factory(kappa=0.0)
    with pytest.raises(ValueError, match="num_quantiles"):
        made(prl.QRSAC).update_algorithm_parameter("num_quantiles", 8)
