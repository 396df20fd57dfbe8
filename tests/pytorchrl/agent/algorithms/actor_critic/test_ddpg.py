"""Updates of DDPG, SVG(0) and PGT equal those computed by hand."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import DeterministicPolicy
from storages.transition import DISCOUNT, MASK, OBS, OBS2, REW
from tests.pytorchrl.agent.algorithms.test_rows import BOX, batch_of
from tests.support import soft_critics
from tests.support.by_hand import envs_with, layer_of, linear
from tests.support.soft_critics import assert_gradients, made, n_step_batch


class ByHand(soft_critics.ByHand):
    """The losses of deterministic and of drawn actions, without an entropy."""

    def prepare(self, algorithm: Any) -> None:
        super().prepare(algorithm)
        self.target_policy = layer_of(algorithm.target_pi.head)
        self.is_deterministic = not isinstance(algorithm, prl.SVG0)

    def next_action(self) -> Any:
        if self.is_deterministic:
            return np.tanh(linear(self.target_policy, self.batch[OBS2]))
        mean, log_std = np.split(linear(self.target_policy, self.batch[OBS2]), 2, axis=1)
        return np.tanh(mean + np.exp(log_std) * self.noise2)

    def make_target(self) -> Any:
        (following,) = self.values(self.target_critics, self.batch[OBS2], self.next_action())
        return self.batch[REW] + self.batch[DISCOUNT] * following

    def value(self, action: Any) -> Any:
        return self.values(self.critics, self.batch[OBS], action)[0]

    def deterministic_loss(self) -> float:
        return -float(self.value(np.tanh(linear(self.policy, self.batch[OBS]))).mean())

    def unsquashed(self) -> Any:
        mean, log_std = np.split(linear(self.policy, self.batch[OBS]), 2, axis=1)
        return mean + np.exp(log_std) * self.noise

    def reparameterised_loss(self) -> float:
        return -float(self.value(np.tanh(self.unsquashed())).mean())

    def log_prob(self, unsquashed: Any) -> Any:
        """Log probabilities of given actions, before the tanh, under the present policy."""
        mean, log_std = np.split(linear(self.policy, self.batch[OBS]), 2, axis=1)
        normal = -0.5 * ((unsquashed - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        return (normal - -2 * np.log(np.cosh(unsquashed))).sum(1, keepdims=True)

    def weight(self, unsquashed: Any, entropy_coef: float) -> Any:
        mean, _ = np.split(linear(self.policy, self.batch[OBS]), 2, axis=1)
        advantage = self.value(np.tanh(unsquashed)) - self.value(np.tanh(mean))
        return advantage - entropy_coef * self.log_prob(unsquashed)


def check(kind: Any, loss_of: Callable[[ByHand], Callable[[], float]], **hyper_parameters: Any) -> None:
    algorithm, batch = made(kind, **hyper_parameters), n_step_batch()
    by_hand = ByHand(algorithm, batch)
    by_hand.policy_loss = loss_of(by_hand)  # type: ignore[method-assign]
    assert len(assert_gradients(algorithm, batch, by_hand)) == 4


def test_ddpgs_gradients_equal_those_of_a_numpy_version() -> None:
    check(prl.DDPG, lambda by_hand: by_hand.deterministic_loss)


def test_svg0s_gradients_pass_through_the_drawn_action() -> None:
    check(prl.SVG0, lambda by_hand: by_hand.reparameterised_loss)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.5])
def test_pgts_gradients_are_those_of_log_probabilities_weighted_by_advantages(entropy_coef: float) -> None:
    def loss_of(by_hand: ByHand) -> Callable[[], float]:
        drawn = by_hand.unsquashed()
        weight = by_hand.weight(drawn, entropy_coef)
        return lambda: -float((weight * by_hand.log_prob(drawn)).mean())

    check(prl.PGT, loss_of, entropy_coef=entropy_coef)


@pytest.mark.parametrize("kind", ["sequences", "burn-in", "padded"])
def test_observations_of_padding_do_not_affect_the_gradients(kind: str) -> None:
    envs = envs_with(BOX)
    envs.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    body = prl.OffPolicyActor.create_factory(hidden_sizes=(7, 5))("cpu", envs)
    algorithm, batch = prl.DDPG.create_factory()("cpu", body, envs), batch_of(kind)
    padding = batch[MASK] == 0
    assert padding.any()
    gradients, changed = (
        algorithm.compute_gradients(batch | {OBS: batch[OBS].masked_fill(padding, number)})[0] for number in (3.0, 90.0)
    )
    for name, gradient in gradients.items():
        torch.testing.assert_close(changed[name], gradient)


def test_observations_of_double_precision_are_learnt_from_in_single_precision() -> None:
    one, other, batch = made(prl.DDPG), made(prl.DDPG), n_step_batch()
    one.update(dict(batch))
    other.update(batch | {OBS: batch[OBS].double(), OBS2: batch[OBS2].double()})
    torch.testing.assert_close(one.get_weights(), other.get_weights())


class SmallActions(prl.TD3):
    """Takes actions within (-0.3, 0.3)."""

    def policy_head(self) -> Head:
        return DeterministicPolicy(0.3)


def test_another_head_of_the_policy_takes_other_actions_and_learns() -> None:
    algorithm, plain = (made(kind, {"hidden_sizes": (7, 5)}) for kind in (SmallActions, prl.TD3))
    view = algorithm.actor.view(n_step_batch()[OBS])
    torch.testing.assert_close(algorithm.pi(view), 0.3 * plain.pi(view))
    before = copy.deepcopy(algorithm.pi.state_dict())
    for _ in range(2):
        algorithm.update(n_step_batch())
    assert not all(torch.equal(before[name], weight) for name, weight in algorithm.pi.state_dict().items())
