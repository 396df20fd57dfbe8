"""SAC's losses and gradients equal those of a slow numpy version, and each loss trains its own networks only."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ERRORS, OBS
from tests.support.by_hand import (
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    numeric_gradient,
    numpy,
    replayed,
)
from tests.support.comparison import assert_equal
from tests.support.soft_critics import ACTIONS, SPACE, ByHand, assert_gradients, made, n_step_batch


def linear_sac(**hyper_parameters: Any) -> prl.SAC:
    sac: prl.SAC = made(prl.SAC, **hyper_parameters)
    return sac


def test_losses_gradients_and_the_step_equal_those_of_a_numpy_version() -> None:
    algorithm = linear_sac(lr_pi=0.01, lr_q=0.02, lr_alpha=0.03, initial_alpha=0.5, polyak=0.9)
    batch = replayed(ACTIONS)
    by_hand = ByHand(algorithm, batch)
    log_prob = by_hand.act(by_hand.batch[OBS], by_hand.noise)[1]
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
    np.testing.assert_allclose(numpy(info[ERRORS]), errors, rtol=1e-4)
    target = 0.9 * by_hand.target_critics[1][0] + 0.1 * layer_of(critic.head)[0]
    for found, expected in (
        (numpy(algorithm.pi.head.layer.weight), policy_before + first_adam_step(policy_gradient, 0.01)),
        (layer_of(critic.head)[0], critic_before + first_adam_step(critic_gradient, 0.02)),
        (layer_of(algorithm.target_critics[1].head)[0], target),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    entropy_gap = -log_prob.mean() - (-2.0)
    np.testing.assert_allclose(algorithm.log_alpha.item(), np.log(0.5) - 0.03 * np.sign(entropy_gap), rtol=1e-4)


def test_gradients_equal_those_of_a_numpy_version() -> None:
    algorithm = linear_sac()
    assert_gradients(algorithm, n_step_batch(), ByHand(algorithm, n_step_batch()))


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


def test_policy_and_temperature_wait_for_the_policy_delay_and_critics_do_not() -> None:
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
