"""Discrete SAC's losses and gradients equal those of numpy loops, and each loss trains its own networks only."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    first_adam_step,
    layer_of,
    linear,
    n_step_batch,
    numeric_gradient,
    numpy,
    perturb,
)

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])
NUM_ACTIONS = 3


def linear_sac(space: Any = None, **hyper_parameters: Any) -> prl.SACDiscrete:
    envs = envs_with(space or spaces.Discrete(NUM_ACTIONS))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.SACDiscrete.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    for seed, network in enumerate((algorithm.pi, algorithm.critics, algorithm.target_critics)):
        perturb(network, seed)
    return algorithm


class ByHand:
    """Equations 10 to 12 of the paper, computed row by row and action by action."""

    def __init__(self, algorithm: prl.SACDiscrete, batch: dict[str, Any], alpha: float) -> None:
        self.policy = layer_of(algorithm.pi.head)
        self.critics = [layer_of(critic.head.numbers) for critic in algorithm.critics]
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.alpha = alpha
        target_critics = [layer_of(critic.head.numbers) for critic in algorithm.target_critics]
        self.targets = np.array(
            [
                reward[0] + discount[0] * self.soft_value(obs2, target_critics)
                for reward, discount, obs2 in zip(*(self.batch[k] for k in (REW, DISCOUNT, OBS2)), strict=True)
            ]
        )

    def probabilities(self, obs: Any) -> Any:
        exponentials = np.exp(linear(self.policy, obs))
        return exponentials / exponentials.sum()

    def soft_value(self, obs: Any, critics: Any) -> float:
        values = [linear(critic, obs) for critic in critics]
        total = 0.0
        for action, probability in enumerate(self.probabilities(obs)):
            smallest = min(value[action] for value in values)
            total += probability * (smallest - self.alpha * np.log(probability))
        return total

    def entropy(self) -> float:
        of_rows = [-sum(p * np.log(p) for p in self.probabilities(obs)) for obs in self.batch[OBS]]
        return float(np.mean(of_rows))

    def errors(self) -> Any:
        """(critics, B)."""
        pairs = list(zip(self.batch[OBS], ACTIONS[:, 0], strict=True))
        return [[linear(critic, obs)[action] for obs, action in pairs] - self.targets for critic in self.critics]

    def critic_loss(self) -> float:
        return float(sum((self.batch[WEIGHTS][:, 0] * error**2 / 2).mean() for error in self.errors()))

    def policy_loss(self) -> float:
        return -float(np.mean([self.soft_value(obs, self.critics) for obs in self.batch[OBS]]))


@pytest.mark.parametrize("num_critics", [1, 2])
def test_losses_gradients_and_the_step_equal_those_of_a_numpy_version(num_critics: int) -> None:
    rates = {"lr_pi": 0.01, "lr_q": 0.02, "lr_alpha": 0.03, "polyak": 0.9}
    algorithm = linear_sac(initial_alpha=0.5, num_critics=num_critics, **rates)
    batch = n_step_batch(ACTIONS)
    before = copies(batch)
    by_hand = ByHand(algorithm, batch, 0.5)
    of_policy = [numeric_gradient(by_hand.policy_loss, part) for part in by_hand.policy]
    of_critics = [[numeric_gradient(by_hand.critic_loss, part) for part in critic] for critic in by_hand.critics]

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], by_hand.policy_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["entropy"], by_hand.entropy(), rtol=1e-4)
    soft = -by_hand.policy_loss() - 0.5 * by_hand.entropy()
    np.testing.assert_allclose(result.metrics["q_value"], soft, rtol=1e-4)
    np.testing.assert_allclose(numpy(result.info[ERRORS])[:, 0], np.abs(by_hand.errors()).mean(0), rtol=1e-4)
    gap = by_hand.entropy() - 0.98 * np.log(NUM_ACTIONS)
    np.testing.assert_allclose(gradients["log_alpha.value"], [gap], rtol=1e-3, atol=1e-5)
    for part, expected in zip(("weight", "bias"), of_policy, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"policy.head.layer.{part}"]), expected, rtol=1e-3, atol=1e-5)
    for number, parts in enumerate(of_critics):
        for part, expected in zip(("weight", "bias"), parts, strict=True):
            # The policy's loss leaves no gradient in the critics.
            found = gradients[f"critics.networks.{number}.head.numbers.layer.{part}"]
            np.testing.assert_allclose(numpy(found), expected, rtol=1e-3, atol=1e-5)

    targets_before = [layer_of(critic.head.numbers) for critic in algorithm.target_critics]
    algorithm.update(batch)
    policy = layer_of(algorithm.pi.head)
    for found, start, gradient in zip(policy, by_hand.policy, of_policy, strict=True):
        np.testing.assert_allclose(found, start + first_adam_step(gradient, 0.01), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(algorithm.log_alpha.item(), np.log(0.5) - 0.03 * np.sign(gap), rtol=1e-4)
    for critic, target, start, target_start, parts in zip(
        algorithm.critics, algorithm.target_critics, by_hand.critics, targets_before, of_critics, strict=True
    ):
        online, slow = layer_of(critic.head.numbers), layer_of(target.head.numbers)
        for part in range(2):
            stepped = start[part] + first_adam_step(parts[part], 0.02)
            np.testing.assert_allclose(online[part], stepped, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(slow[part], 0.9 * target_start[part] + 0.1 * online[part], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)
    assert all(parameter.grad is None for parameter in algorithm.target_critics.parameters())


def test_an_update_draws_no_random_numbers() -> None:
    algorithm = linear_sac()
    before = algorithm.generator.get_state()
    algorithm.update(n_step_batch(ACTIONS))
    assert torch.equal(algorithm.generator.get_state(), before)


def test_the_target_entropy_is_a_share_of_the_entropy_of_uniform_actions() -> None:
    algorithm = linear_sac()
    rows = algorithm.read(n_step_batch(ACTIONS))
    assert algorithm.target_entropy(rows) == pytest.approx(0.98 * np.log(3))
    falling = linear_sac(target_entropy_share=prl.LinearSchedule(1.0, 0.0))
    falling.set_progress(3, 4)
    assert falling.target_entropy(rows) == pytest.approx(0.25 * np.log(3))
    rising, sinking, fixed = (
        linear_sac(target_entropy_share=1.0),
        linear_sac(target_entropy_share=0.0),
        linear_sac(learn_alpha=False),
    )
    for algorithm in (rising, sinking, fixed):
        algorithm.update(n_step_batch(ACTIONS))
    assert rising.alpha > 1 > sinking.alpha
    assert fixed.alpha == 1
