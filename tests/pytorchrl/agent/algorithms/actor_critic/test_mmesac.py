"""Updates of max-min entropy SAC equal those computed by hand."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import layer_of, linear
from tests.support.soft_critics import ByHand, assert_close, assert_gradients, made, n_step_batch, of


class NumpyMMESAC(ByHand):
    def prepare(self, algorithm: Any) -> None:
        self.value, self._target_value = layer_of(algorithm.value.head), layer_of(algorithm.target_state_value.head)
        self._scale, self._alpha_q = algorithm.reward_scale, algorithm.alpha_q
        # Only the policy's action is drawn.
        self.noise = self.noise2

    def make_target(self) -> Any:
        following = linear(self._target_value, self.batch[OBS2])
        return self._scale * self.batch[REW] + self.batch[DISCOUNT] * following

    def log_prob(self) -> Any:
        return self.act(self.batch[OBS], self.noise)[1]

    def value_loss(self) -> float:
        action, log_prob = self.act(self.batch[OBS], self.noise)
        value = np.min(self.values(self.critics, self.batch[OBS], action), axis=0)
        # The target in the authors' code.
        target = value + self._alpha_q * (log_prob - min(0.0, log_prob.min()))
        return float(0.5 * (self.batch[WEIGHTS] * (linear(self.value, self.batch[OBS]) - target) ** 2).mean())


@pytest.mark.parametrize("alpha_q", [1.0, 0.3])
@pytest.mark.parametrize("log_std", [1.0, -4.0], ids=["much entropy", "negative entropy"])
def test_gradients_equal_those_of_a_numpy_version(alpha_q: float, log_std: float) -> None:
    algorithm, batch = made(prl.MMESAC, reward_scale=2.0, alpha_q=alpha_q), n_step_batch()
    with torch.no_grad():
        algorithm.pi.head.layer.bias[2:] += log_std
    by_hand = NumpyMMESAC(algorithm, batch)
    # With a log probability below 0 in the batch, and without any.
    assert (by_hand.log_prob().min() < 0) == (log_std > 0)
    of_value = of(by_hand.value_loss, by_hand.value)
    gradients = assert_gradients(algorithm, batch, by_hand)
    assert_close(gradients, {f"value.head.layer.{name}": part for name, part in of_value})


def test_without_a_weight_state_values_are_those_of_the_critics() -> None:
    algorithm, batch = made(prl.MMESAC, alpha_q=0.0), n_step_batch()
    value, log_prob = torch.randn(2, 5, 1)
    assert torch.equal(algorithm.state_value(algorithm.read(batch), value, log_prob), value)
