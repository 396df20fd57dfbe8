"""SAC's losses and gradients equal those of a slow numpy version, and each loss trains its own networks only."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)
from tests.support.comparison import assert_equal

ACTIONS = np.linspace(-2.9, 0.9, 10, dtype=np.float32).reshape(5, 2)
SPACE = spaces.Box(-3.0, 1.0, (2,), np.float32)


def linear_sac(**hyper_parameters: Any) -> prl.SAC:
    envs = envs_with(SPACE)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.SAC.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(algorithm.target_critics, 1)
    return algorithm


class NumpySAC:
    """The losses of one batch, with the noise that the algorithm is about to draw."""

    def __init__(self, algorithm: prl.SAC, batch: dict[str, Any]) -> None:
        generator = torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        self.noise2, self.noise = (numpy(torch.empty(5, 2).normal_(generator=generator)) for _ in range(2))
        self.policy = layer_of(algorithm.pi.head)
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        self.targets = [layer_of(critic.head) for critic in algorithm.target_critics]
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.alpha = algorithm.alpha

    def act(self, obs: Any, noise: Any) -> tuple[Any, Any]:
        mean, log_std = np.split(linear(self.policy, obs), 2, axis=1)
        log_std = np.clip(log_std, -20, 2)
        unsquashed = mean + np.exp(log_std) * noise
        density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(unsquashed) ** 2)
        return np.tanh(unsquashed), density.sum(1, keepdims=True)

    def target(self) -> Any:
        action, log_prob = self.act(self.batch[OBS2], self.noise2)
        q = np.min([linear(c, np.hstack([self.batch[OBS2], action])) for c in self.targets], axis=0)
        return self.batch[REW] + self.batch[DISCOUNT] * (q - self.alpha * log_prob)

    def errors(self) -> list[Any]:
        stored = np.hstack([self.batch[OBS], (self.batch[ACT] + 1) / 2])  # the Box is [-3, 1]: middle -1, half range 2
        return [linear(critic, stored) - self.target() for critic in self.critics]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * error**2).mean() for error in self.errors()))

    def policy_loss(self) -> float:
        action, log_prob = self.act(self.batch[OBS], self.noise)
        q = np.min([linear(c, np.hstack([self.batch[OBS], action])) for c in self.critics], axis=0)
        return float((self.alpha * log_prob - q).mean())


def test_losses_gradients_and_the_step_equal_those_of_a_numpy_version() -> None:
    algorithm = linear_sac(lr_pi=0.01, lr_q=0.02, lr_alpha=0.03, initial_alpha=0.5, polyak=0.9)
    batch = replayed(ACTIONS)
    before = copies(batch)
    by_hand = NumpySAC(algorithm, batch)
    log_prob = by_hand.act(by_hand.batch[OBS], by_hand.noise)[1]
    # The target does not depend on the critics nor on the policy that is learnt: it is fixed before differentiating.
    target = by_hand.target()
    by_hand.target = lambda: target  # type: ignore[method-assign]
    critic_gradient = numeric_gradient(by_hand.critic_loss, by_hand.critics[1][0])
    critic_loss, errors = by_hand.critic_loss(), by_hand.errors()

    critic = algorithm.critics[1]
    policy_before, critic_before = numpy(algorithm.pi.head.layer.weight), layer_of(critic.head)[0]
    info = algorithm.update(batch).info
    np.testing.assert_allclose(info["critic_loss"], critic_loss, rtol=1e-4)
    # The policy learns from the critics as they are after their step.
    by_hand.critics = [layer_of(each.head) for each in algorithm.critics]
    policy_gradient = numeric_gradient(by_hand.policy_loss, by_hand.policy[0])
    np.testing.assert_allclose(info["policy_loss"], by_hand.policy_loss(), rtol=1e-4)
    np.testing.assert_allclose(info["entropy"], -log_prob.mean(), rtol=1e-4)
    np.testing.assert_allclose(numpy(info[ERRORS]), np.abs(errors).mean(0), rtol=1e-4)
    np.testing.assert_allclose(
        numpy(algorithm.pi.head.layer.weight),
        policy_before + first_adam_step(policy_gradient, 0.01),
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        layer_of(critic.head)[0], critic_before + first_adam_step(critic_gradient, 0.02), rtol=1e-3, atol=1e-4
    )
    entropy_gap = -log_prob.mean() - (-2.0)
    np.testing.assert_allclose(algorithm.log_alpha.item(), np.log(0.5) - 0.03 * np.sign(entropy_gap), rtol=1e-4)
    np.testing.assert_allclose(
        layer_of(algorithm.target_critics[1].head)[0],
        0.9 * by_hand.targets[1][0] + 0.1 * layer_of(critic.head)[0],
        rtol=1e-4,
        atol=1e-5,
    )
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_gradients_equal_those_of_a_numpy_version() -> None:
    algorithm = linear_sac()
    batch = replayed(ACTIONS)
    by_hand = NumpySAC(algorithm, batch)
    target = by_hand.target()
    by_hand.target = lambda: target  # type: ignore[method-assign]
    gradients, _ = algorithm.compute_gradients(batch)
    policy = numeric_gradient(by_hand.policy_loss, by_hand.policy[0])
    np.testing.assert_allclose(numpy(gradients["policy.head.layer.weight"]), policy, rtol=1e-3, atol=1e-4)
    for number, critic in enumerate(by_hand.critics):
        # The policy's loss passes through the critics without leaving a gradient.
        expected = numeric_gradient(by_hand.critic_loss, critic[0])
        found = numpy(gradients[f"critics.networks.{number}.head.layer.weight"])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [5.0, 20.0, 1e4])
def test_actions_at_their_bounds_have_finite_losses_and_gradients(size: float) -> None:
    algorithm, batch = linear_sac(), replayed(ACTIONS)
    with torch.no_grad():
        algorithm.pi.head.layer.weight.zero_()
        algorithm.pi.head.layer.bias.copy_(torch.tensor([size, -size, -1.0, 0.5]))
    action, log_prob = algorithm.pi(algorithm.read(batch).now).sample_with_log_prob(torch.Generator().manual_seed(0))
    assert action.dtype == torch.float32
    if size > 5:
        assert (action.abs() == 1).all(), "they round to the bounds"
    noise = torch.empty(5, 2).normal_(generator=torch.Generator().manual_seed(0)).double()
    unsquashed = torch.tensor([size, -size]).double() + torch.tensor([-1.0, 0.5]).double().exp() * noise
    density = torch.distributions.Normal(0.0, 1.0).log_prob(noise) - torch.tensor([-1.0, 0.5])
    # log(1 - tanh(x)^2) = -2 log cosh x, where cosh overflows
    slope = -2 * (unsquashed.abs() + torch.log1p((-2 * unsquashed.abs()).exp()) - np.log(2))
    torch.testing.assert_close(log_prob.double(), (density - slope).sum(1, keepdim=True), rtol=1e-5, atol=1e-4)
    gradients, result = algorithm.compute_gradients(batch)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert all(np.isfinite(float(value)) for value in result.metrics.values())
    stored = algorithm.pi(algorithm.read(batch).now).log_prob(action.sign())
    assert torch.isfinite(stored).all()


def test_policy_and_temperature_are_updated_once_every_policy_delay_updates_and_critics_in_each() -> None:
    algorithm, moved = linear_sac(policy_delay=2), []
    for _ in range(4):
        parts = (algorithm.pi.head.layer.weight, algorithm.log_alpha, algorithm.critics[1].head.layer.weight)
        before = [part.clone() for part in parts]
        algorithm.update(replayed(ACTIONS))
        moved.append([not torch.equal(*both) for both in zip(parts, before, strict=True)])
    assert moved == [[False, False, True], [True, True, True]] * 2


def test_the_temperature_rises_below_the_target_entropy_and_can_be_fixed() -> None:
    batch = replayed(ACTIONS)
    rising, falling, fixed = (
        linear_sac(target_entropy=50.0),
        linear_sac(target_entropy=-50.0),
        linear_sac(learn_alpha=False),
    )
    for algorithm in (rising, falling, fixed):
        algorithm.update(batch)
    assert rising.alpha > 1 > falling.alpha
    assert fixed.alpha == 1


def test_actions_stay_in_the_box_and_evaluation_draws_no_random_numbers() -> None:
    algorithm = linear_sac(start_steps=0)
    obs, done = 100 * torch.randn(500, 3), torch.zeros(500, 1)
    step = algorithm.acting_step(obs, None, done, exploring(algorithm, 500))
    assert all(SPACE.contains(action) for action in step.env_action.numpy())
    assert step.action is step.env_action, "actions are stored in the units of the Box"
    evaluation = exploring(algorithm, 500, deterministic=True)
    before, generator = evaluation.state_dict(), algorithm.generator.get_state()
    one, two = (algorithm.acting_step(obs, None, done, evaluation).action for _ in range(2))
    assert torch.equal(one, two)
    assert_equal(evaluation.state_dict(), before)
    assert torch.equal(algorithm.generator.get_state(), generator)


@pytest.mark.parametrize("actor", [prl.OnPolicyActor, prl.OffPolicyActor])
def test_every_network_of_either_actor_with_default_settings_is_trained(actor: Any) -> None:
    envs = envs_with(SPACE)
    algorithm = prl.SAC.create_factory()("cpu", actor.create_factory()("cpu", envs), envs)
    before = algorithm.get_weights()
    algorithm.update(replayed(ACTIONS))
    assert not [name for name, weight in algorithm.get_weights().items() if torch.equal(weight, before[name])]
