"""TQC's losses and gradients equal those of a slow numpy version that drops the highest quantiles of targets."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, REW, WEIGHTS
from tests.support.by_hand import perturb
from tests.support.soft_critics import ByHand, assert_gradients, made, n_step_batch, target_of

QUANTILES = 5


class NumpyTQC(ByHand):
    def prepare(self, algorithm: Any) -> None:
        super().prepare(algorithm)
        self._kept = len(algorithm.critics) * (QUANTILES - algorithm.num_dropped)
        self._kappa = algorithm.kappa

    def of_target(self, values: list[Any]) -> Any:
        return np.sort(np.hstack(values), axis=1)[:, : self._kept]

    def of_policy(self, values: list[Any]) -> Any:
        return np.hstack(values).mean(1, keepdims=True)

    def errors(self) -> Any:
        """Quantile Huber losses, averaged over critics, their quantiles and the target's quantiles."""
        fractions = (np.arange(QUANTILES) + 0.5) / QUANTILES
        losses = []
        for quantiles in self.values(self.critics, self.batch[OBS], self.taken):
            error = self.target[:, None, :] - quantiles[:, :, None]
            size, kappa = np.abs(error), self._kappa
            huber = np.where(size <= kappa, 0.5 * error**2, kappa * (size - 0.5 * kappa))
            weight = np.abs(fractions[:, None] - (error < 0))
            losses.append((weight * huber).mean((1, 2)))
        return np.mean(losses, axis=0)[:, None]

    def critic_loss(self) -> float:
        return float((self.batch[WEIGHTS] * self.errors()).mean())


@pytest.mark.parametrize(("num_critics", "num_dropped", "kappa"), [(3, 1, 1.0), (2, 0, 0.3), (1, 4, 1.0)])
def test_gradients_equal_those_of_a_numpy_version(num_critics: int, num_dropped: int, kappa: float) -> None:
    algorithm = made(
        prl.TQC,
        num_critics=num_critics,
        num_quantiles=QUANTILES,
        num_dropped=num_dropped,
        kappa=kappa,
        initial_alpha=0.5,
    )
    assert_gradients(algorithm, n_step_batch(), NumpyTQC(algorithm, n_step_batch()))


def test_dropping_more_quantiles_lowers_the_targets() -> None:
    batch, means = n_step_batch(), []
    for dropped in (0, 2, 4):
        algorithm = made(prl.TQC, num_quantiles=QUANTILES, num_dropped=dropped)
        target = target_of(algorithm, batch, alpha=1.0)
        assert target.quantiles.shape == (5, 5 * (QUANTILES - dropped))
        means.append(target.mean)
    alive = batch[DISCOUNT] > 0
    assert (means[0] > means[1])[alive].all()
    assert (means[1] > means[2])[alive].all()
    for mean in means:
        torch.testing.assert_close(mean[~alive], batch[REW][~alive])


def test_priorities_follow_the_losses_of_the_rows() -> None:
    algorithm, batch = made(prl.TQC, num_quantiles=QUANTILES), n_step_batch()
    perturb(algorithm.critics, 5)
    batch[WEIGHTS] = torch.ones(5, 1)
    result = algorithm.update(batch)
    torch.testing.assert_close(result.info[ERRORS].mean(), result.metrics["critic_loss"])
    assert len(result.info[ERRORS].unique()) == 5


def test_dropping_all_quantiles_is_refused() -> None:
    with pytest.raises(ValueError, match="TQC: num_dropped must be less than num_quantiles=4, got 4"):
        prl.TQC.create_factory(num_quantiles=4, num_dropped=4)
    with pytest.raises(ValueError, match="num_dropped"):
        made(prl.TQC).update_algorithm_parameter("num_dropped", 25)
    with pytest.raises(ValueError, match="TQC: kappa must be"):
        prl.TQC.create_factory(kappa=0.0)
