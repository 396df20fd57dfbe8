"""Updates of SAC with a state-value network equal those computed by hand."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import layer_of, linear
from tests.support.soft_critics import ByHand, assert_close, assert_gradients, made, n_step_batch, of


class NumpySACWithValue(ByHand):
    def prepare(self, algorithm: Any) -> None:
        self.value, self._target_value = layer_of(algorithm.value.head), layer_of(algorithm.target_state_value.head)
        self._scale = algorithm.reward_scale
        # Only the policy's action is drawn.
        self.noise = self.noise2

    def make_target(self) -> Any:
        following = linear(self._target_value, self.batch[OBS2])
        return self._scale * self.batch[REW] + self.batch[DISCOUNT] * following

    def value_loss(self) -> float:
        error = linear(self.value, self.batch[OBS]) - self.soft_value()
        return float(0.5 * (self.batch[WEIGHTS] * error**2).mean())


@pytest.mark.parametrize("reward_scale", [5.0, 0.5])
def test_gradients_equal_those_of_a_numpy_version(reward_scale: float) -> None:
    algorithm, batch = made(prl.SACWithValue, reward_scale=reward_scale), n_step_batch()
    by_hand = NumpySACWithValue(algorithm, batch)
    of_value = of(by_hand.value_loss, by_hand.value)
    gradients = assert_gradients(algorithm, batch, by_hand)
    assert_close(gradients, {f"value.head.layer.{name}": part for name, part in of_value})
    assert not [name for name in gradients if "alpha" in name]


def test_the_temperature_is_fixed_and_the_rewards_of_the_batch_are_not_changed() -> None:
    algorithm, batch = made(prl.SACWithValue, reward_scale=3.0), n_step_batch()
    reward = batch[REW].clone()
    for _ in range(3):
        metrics = algorithm.update(batch).metrics
    assert algorithm.alpha == metrics["alpha"] == 1
    assert torch.equal(batch[REW], reward)


def test_only_the_state_value_has_a_target_which_follows_by_polyak() -> None:
    algorithm = made(prl.SACWithValue, polyak=0.75)
    before = algorithm.target_state_value.head.layer.weight.clone()
    algorithm.update(n_step_batch())
    expected = 0.75 * before + 0.25 * algorithm.value.head.layer.weight
    torch.testing.assert_close(algorithm.target_state_value.head.layer.weight, expected)
    assert list(algorithm.training.targets) == ["value"]


def test_unsupported_hyper_parameters_and_shared_bodies_are_refused() -> None:
    with pytest.raises(ValueError, match="SACWithValue: reward_scale must be"):
        prl.SACWithValue.create_factory(reward_scale=0.0)
    for name in ("learn_alpha", "initial_alpha", "lr_alpha", "target_entropy"):
        with pytest.raises(TypeError, match=name):
            prl.SACWithValue.create_factory(**{name: 1})
    with pytest.raises(ValueError, match="shared_body=False"):
        made(prl.SACWithValue, {"shared_body": True, "hidden_sizes": (4,)})
