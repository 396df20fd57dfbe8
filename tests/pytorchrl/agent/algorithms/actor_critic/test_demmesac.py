"""Updates of disentangled max-min entropy SAC equal those computed by hand."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import layer_of, linear
from tests.support.soft_critics import ByHand, assert_close, assert_gradients, made, n_step_batch, of


class NumpyDEMMESAC(ByHand):
    def prepare(self, algorithm: Any) -> None:
        self.value, self._target_value = layer_of(algorithm.value.head), layer_of(algorithm.target_state_value.head)
        self._scale, self._alpha_q = algorithm.reward_scale, algorithm.alpha_q
        self.exploration_value = layer_of(algorithm.exploration_value.head)
        self.exploration_policy = layer_of(algorithm.exploration_pi.head)
        self.exploration_critics = [layer_of(critic.head) for critic in algorithm.exploration_critics]
        # The acting policy's action is drawn first, then that of exploration.
        self.noise, self.exploration_noise = self.noise2, self.noise
        following = linear(layer_of(algorithm.target_exploration_value.head), self.batch[OBS2])
        self.exploration_target = self.batch[DISCOUNT] * following

    def make_target(self) -> Any:
        return self._scale * self.batch[REW] + self.batch[DISCOUNT] * linear(self._target_value, self.batch[OBS2])

    def smallest(self, critics: Any, action: Any) -> Any:
        return np.min(self.values(critics, self.batch[OBS], action), axis=0)

    def policy_loss(self) -> float:
        action, log_prob = self.act(self.batch[OBS], self.noise)
        both = self.smallest(self.critics, action) + self.smallest(self.exploration_critics, action)
        return float((log_prob - both).mean())

    def explored(self) -> Any:
        acting, self.policy = self.policy, self.exploration_policy
        action, log_prob = self.act(self.batch[OBS], self.exploration_noise)
        self.policy = acting
        return self.smallest(self.exploration_critics, action), log_prob

    def exploration_policy_loss(self) -> float:
        value, log_prob = self.explored()
        return float((log_prob - value).mean())

    def exploration_critic_loss(self) -> float:
        values = self.values(self.exploration_critics, self.batch[OBS], self.taken)
        return float(sum(0.5 * (self.batch[WEIGHTS] * (each - self.exploration_target) ** 2).mean() for each in values))

    def value_loss(self) -> float:
        action, _ = self.act(self.batch[OBS], self.noise)
        return self._regression(self.value, self.smallest(self.critics, action))

    def exploration_value_loss(self) -> float:
        value, log_prob = self.explored()
        target = value + self._alpha_q * (log_prob - min(0.0, log_prob.min()))
        return self._regression(self.exploration_value, target)

    def _regression(self, layer: Any, target: Any) -> float:
        return float(0.5 * (self.batch[WEIGHTS] * (linear(layer, self.batch[OBS]) - target) ** 2).mean())


@pytest.mark.parametrize("alpha_q", [1.0, 0.3])
def test_gradients_equal_those_of_a_numpy_version(alpha_q: float) -> None:
    algorithm, batch = made(prl.DEMMESAC, reward_scale=2.0, alpha_q=alpha_q), n_step_batch()
    with torch.no_grad():
        algorithm.exploration_pi.head.layer.bias[2:] += 1.0
    by_hand = NumpyDEMMESAC(algorithm, batch)
    expected = {
        "value.head.layer": (by_hand.value_loss, by_hand.value),
        "exploration_value.head.layer": (by_hand.exploration_value_loss, by_hand.exploration_value),
        "exploration_policy.head.layer": (by_hand.exploration_policy_loss, by_hand.exploration_policy),
    } | {
        f"exploration_critics.networks.{number}.head.layer": (by_hand.exploration_critic_loss, critic)
        for number, critic in enumerate(by_hand.exploration_critics)
    }
    gradients = assert_gradients(algorithm, batch, by_hand)
    for network, (loss, layer) in expected.items():
        assert_close(gradients, {f"{network}.{name}": part for name, part in of(loss, layer)})


def test_policies_and_state_values_wait_for_the_policy_delay() -> None:
    algorithm, batch = made(prl.DEMMESAC, policy_delay=2), n_step_batch()
    gradients, result = algorithm.compute_gradients(batch)
    assert {name.split(".")[0] for name in gradients} == {"critics", "exploration_critics"}
    assert "policy_loss" not in result.metrics
