"""TQC's losses and gradients equal those of a slow numpy version that drops the highest quantiles of targets."""

from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from storages.transition import OBS, WEIGHTS
from tests.support.soft_critics import ByHand, assert_gradients, made, n_step_batch

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


def test_dropping_all_quantiles_is_refused() -> None:
    with pytest.raises(ValueError, match="TQC: num_dropped must be less than num_quantiles=4, got 4"):
        prl.TQC.create_factory(num_quantiles=4, num_dropped=4)
    with pytest.raises(ValueError, match="num_dropped"):
        made(prl.TQC).update_algorithm_parameter("num_dropped", 25)
    with pytest.raises(ValueError, match="TQC: kappa must be"):
        prl.TQC.create_factory(kappa=0.0)
