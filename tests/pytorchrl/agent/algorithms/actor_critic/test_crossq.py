"""CrossQ's losses and gradients equal those of numpy, with present and next observations normalised as one batch."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pytorchrl as prl
from pytorchrl.agent.actors.layers.mlp import BatchRenorm
from storages.transition import DISCOUNT, OBS, OBS2, REW
from tests.support.by_hand import exploring, linear, numeric_gradient, numpy
from tests.support.comparison import assert_equal
from tests.support.soft_critics import ByHand, assert_close, assert_gradients, made, n_step_batch
from tests.support.training import saved_and_loaded

UNITS = 4
ACTOR = {"hidden_sizes": (UNITS,), "activation": "tanh"}


class NumpyLayers:
    """A hidden layer with batch renormalisation before and after it, during the warm-up of the renormalisation."""

    def __init__(self, layers: Any) -> None:
        self.layer = [numpy(part).copy() for part in layers.layers[0].parameters()]
        self.scales = [[numpy(norm.weight), numpy(norm.bias)] for norm in layers.renorms]
        self._running = [(numpy(norm.running_mean), numpy(norm.running_var)) for norm in layers.renorms]

    def features(self, inputs: Any, is_batch: bool) -> Any:
        features = self._normalised(0, inputs, is_batch)
        return self._normalised(1, np.tanh(linear(self.layer, features)), is_batch)

    def _normalised(self, position: int, features: Any, is_batch: bool) -> Any:
        mean, variance = (features.mean(0), features.var(0)) if is_batch else self._running[position]
        scale, shift = self.scales[position]
        return (features - mean) / np.sqrt(variance + 1e-3) * scale + shift


class NumpyCrossQ(ByHand):
    def prepare(self, algorithm: Any) -> None:
        self.hidden_of_policy = NumpyLayers(algorithm.pi.body.hidden)
        self.hidden = [NumpyLayers(critic.joint) for critic in algorithm.critics]
        self._is_batch = False
        # Next actions are computed first, with running statistics that the policy's batch has not updated yet.
        self._next_action, self._next_log_prob = self.act(self.batch[OBS2], self.noise2)
        self._is_batch = True

    def policy_output(self, obs: Any) -> Any:
        return linear(self.policy, self.hidden_of_policy.features(obs, self._is_batch))

    def values_of_both(self) -> list[Any]:
        """Values of the actions taken and of the next actions in one batch, (10, 1) for each critic."""
        rows = np.hstack([self.batch[OBS], self.taken]), np.hstack([self.batch[OBS2], self._next_action])
        return [
            linear(critic, hidden.features(np.vstack(rows), is_batch=True))
            for critic, hidden in zip(self.critics, self.hidden, strict=True)
        ]

    def make_target(self) -> Any:
        value = np.min([values[5:] for values in self.values_of_both()], axis=0)
        soft_value = value - self.alpha * self._next_log_prob
        return self.batch[REW] + self.batch[DISCOUNT] * soft_value

    def differences(self) -> Any:
        return [values[:5] - self.target for values in self.values_of_both()]

    def keep_running_statistics(self, algorithm: Any) -> None:
        """Keep the statistics after the critics' batch, with which the policy's actions are evaluated."""
        self._evaluating = [NumpyLayers(critic.joint) for critic in algorithm.critics]

    def values(self, critics: Sequence[Any], obs: Any, action: Any) -> list[Any]:
        rows = np.hstack([obs, action])
        return [
            linear(critic, hidden.features(rows, is_batch=False))
            for critic, hidden in zip(critics, self._evaluating, strict=True)
        ]


def crossq(actor: Any = None, **hyper_parameters: Any) -> Any:
    return made(prl.CrossQ, {**ACTOR, **(actor or {})}, **{"policy_delay": 1, **hyper_parameters})


def norms_of(network: nn.Module) -> list[BatchRenorm]:
    return [module for module in network.modules() if isinstance(module, BatchRenorm)]


def test_gradients_equal_those_of_a_numpy_version() -> None:
    algorithm, batch = crossq(initial_alpha=0.5), n_step_batch()
    by_hand = NumpyCrossQ(algorithm, batch)
    after = copy.deepcopy(algorithm)
    after.compute_gradients(batch)
    by_hand.keep_running_statistics(after)
    expected = {
        "policy.body.hidden.layers.0.weight": numeric_gradient(by_hand.policy_loss, by_hand.hidden_of_policy.layer[0]),
        "policy.body.hidden.renorms.0.weight": numeric_gradient(
            by_hand.policy_loss, by_hand.hidden_of_policy.scales[0][0]
        ),
    }
    for number, hidden in enumerate(by_hand.hidden):
        name = f"critics.networks.{number}.joint"
        # Gradients pass through the batch statistics, which include the next observations.
        expected[f"{name}.layers.0.weight"] = numeric_gradient(by_hand.critic_loss, hidden.layer[0])
        expected[f"{name}.renorms.1.bias"] = numeric_gradient(by_hand.critic_loss, hidden.scales[1][1])
    assert_close(assert_gradients(algorithm, batch, by_hand), expected)


def test_running_statistics_are_those_of_present_and_next_observations_as_one_batch() -> None:
    algorithm, batch = crossq(), n_step_batch()
    seen = torch.cat([batch[OBS], batch[OBS2]])
    algorithm.update(batch)
    for critic in algorithm.critics:
        first = norms_of(critic)[0]
        assert first.num_batches_tracked == 1, "evaluating the policy's actions does not update the running statistics"
        torch.testing.assert_close(first.running_mean[:3], 0.01 * seen.mean(0))
        torch.testing.assert_close(first.running_var[:3], 0.99 + 0.01 * seen.var(0))
    first = norms_of(algorithm.pi)[0]
    assert first.num_batches_tracked == 1
    torch.testing.assert_close(first.running_mean, 0.01 * batch[OBS].mean(0))


def test_there_are_no_target_networks_and_the_policys_updates_are_delayed() -> None:
    algorithm = crossq(policy_delay=3)
    assert not algorithm.training.targets
    has_learnt = ["policy_loss" in algorithm.update(n_step_batch()).metrics for _ in range(6)]
    assert has_learnt == [False, False, True] * 2
    assert norms_of(algorithm.pi)[0].num_batches_tracked == 2


@pytest.mark.parametrize("optimizer", [{}, {"optimizer": prl.Adam(betas=(0.2, 0.5))}])
def test_the_temperature_is_trained_with_adams_usual_betas(optimizer: dict[str, Any]) -> None:
    algorithm = crossq(lr_alpha=0.03, **optimizer)
    target = -2.0  # minus the action's dimension
    log_alpha = mean = square = 0.0
    for step in range(1, 5):
        gradient = float(algorithm.update(n_step_batch()).metrics["entropy"]) - target
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        log_alpha -= 0.03 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(algorithm.log_alpha.item(), log_alpha, rtol=1e-4)


def test_the_temperature_is_trained_by_another_optimizer_of_the_networks() -> None:
    algorithm = crossq(lr_alpha=0.03, optimizer=prl.SGD(momentum=0.0))
    batch = n_step_batch()
    entropy = float(algorithm.update(batch).metrics["entropy"])
    np.testing.assert_allclose(algorithm.log_alpha.item(), -0.03 * (entropy + 2.0), rtol=1e-4)


def test_acting_uses_running_statistics_without_updating_them() -> None:
    algorithm = crossq(start_steps=0)
    algorithm.update(n_step_batch())
    before = copy.deepcopy(algorithm.actor.state_dict())
    obs, done = torch.randn(6, 3), torch.zeros(6, 1)
    evaluation = exploring(algorithm, 6, deterministic=True)
    together = algorithm.acting_step(obs, None, done, evaluation).action
    alone = exploring(algorithm, 1, deterministic=True)
    for row in range(6):
        one = algorithm.acting_step(obs[row : row + 1], None, done[:1], alone).action
        torch.testing.assert_close(one, together[row : row + 1])
    algorithm.acting_step(obs, None, done, exploring(algorithm, 6))
    assert_equal(algorithm.actor.state_dict(), before)


def test_running_statistics_are_saved_and_copied_with_the_weights() -> None:
    one, two, third = crossq(), crossq(), crossq()
    for _ in range(2):
        one.update(n_step_batch())
    two.load_state_dict(saved_and_loaded(one.state_dict()))
    third.set_weights(one.get_weights())
    statistics = [[norm.running_var for norm in norms_of(each.actor)] for each in (one, two, third)]
    assert_equal(statistics[0], statistics[1])
    assert_equal(statistics[0], statistics[2])
    assert_equal(one.update(n_step_batch()).info, two.update(n_step_batch()).info)


def test_unsupported_actors_and_hyper_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"CrossQ .* has a memory \(gru\).*choose SAC, REDQ"):
        crossq({"memory": "gru"})
    with pytest.raises(ValueError, match=r"CrossQ .* late_action=0, got 1"):
        crossq({"late_action": 1})
    with pytest.raises(ValueError, match="batch_norm"):
        crossq({"batch_norm": True})
    with pytest.raises(TypeError, match="polyak"):
        prl.CrossQ.create_factory(polyak=0.9)
    with pytest.raises(ValueError, match="CrossQ: renorm_warmup must be"):
        prl.CrossQ.create_factory(renorm_warmup=-1)
    with pytest.raises(ValueError, match=r"CrossQ .* mini_batch_size must be at least 2, got 1"):
        prl.CrossQ.create_factory(mini_batch_size=1)
