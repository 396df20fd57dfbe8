"""TD3's update equals the one computed by hand, and its policy and targets change in delayed updates only."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, DONE2, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    replayed,
)
from tests.support.comparison import assert_equal

ACTIONS = np.linspace(-2.9, 0.9, 10, dtype=np.float32).reshape(5, 2)
SPACE = spaces.Box(-3.0, 1.0, (2,), np.float32)


def linear_td3(**hyper_parameters: Any) -> prl.TD3:
    envs = envs_with(SPACE)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.TD3.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in (algorithm.pi, algorithm.critics, algorithm.target_pi, algorithm.target_critics):
            for parameter in network.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return algorithm


def n_step_batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch whose rows sum up 1, 2 or 3 rewards, with importance weights that differ."""
    batch = replayed(ACTIONS, seed)
    batch[DISCOUNT] = 0.9 ** torch.tensor([[1.0], [3], [2], [3], [1]]) * (1 - batch[DONE2])
    return batch


class NumpyTD3:
    """The losses of one batch, with the noise that the algorithm is about to draw."""

    def __init__(self, algorithm: prl.TD3, batch: dict[str, Any]) -> None:
        generator = torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        noise = algorithm.target_noise * numpy(torch.empty(5, 2).normal_(generator=generator))
        self.noise = np.clip(noise, -algorithm.target_noise_clip, algorithm.target_noise_clip)
        self.policy, self.target_policy = layer_of(algorithm.pi.head), layer_of(algorithm.target_pi.head)
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        self.target_critics = [layer_of(critic.head) for critic in algorithm.target_critics]
        self.batch = {key: numpy(value) for key, value in batch.items()}

    def target(self) -> Any:
        action = np.clip(np.tanh(linear(self.target_policy, self.batch[OBS2])) + self.noise, -1, 1)
        q = np.min([linear(c, np.hstack([self.batch[OBS2], action])) for c in self.target_critics], axis=0)
        return self.batch[REW] + self.batch[DISCOUNT] * q

    def errors(self) -> list[Any]:
        stored = np.hstack([self.batch[OBS], (self.batch[ACT] + 1) / 2])  # the Box is [-3, 1]: middle -1, half range 2
        return [linear(critic, stored) - self.target() for critic in self.critics]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * error**2).mean() for error in self.errors()))

    def policy_loss(self) -> float:
        action = np.tanh(linear(self.policy, self.batch[OBS]))
        return float(-linear(self.critics[0], np.hstack([self.batch[OBS], action])).mean())


@pytest.mark.parametrize("target_noise", [0.0, 0.3, 50.0])
@pytest.mark.parametrize("num_critics", [1, 2, 3])
def test_losses_gradients_and_the_step_equal_those_of_a_numpy_version(num_critics: int, target_noise: float) -> None:
    algorithm = linear_td3(
        lr_pi=0.01, lr_q=0.02, polyak=0.9, policy_delay=1, num_critics=num_critics, target_noise=target_noise
    )
    batch = n_step_batch()
    before = copies(batch)
    by_hand = NumpyTD3(algorithm, batch)
    policy_gradients = [numeric_gradient(by_hand.policy_loss, part) for part in by_hand.policy]
    critic_gradients = [[numeric_gradient(by_hand.critic_loss, part) for part in critic] for critic in by_hand.critics]
    state = algorithm.generator.get_state()

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], by_hand.policy_loss(), rtol=1e-4)
    assert result.errors is not None
    assert result.errors.shape == (5, 1)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), np.abs(by_hand.errors()).mean(0), rtol=1e-4)
    for part, gradient in zip(("weight", "bias"), policy_gradients, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"policy.head.layer.{part}"]), gradient, rtol=1e-3, atol=1e-5)
    for number, of_critic in enumerate(critic_gradients):
        # The policy's loss passes through the critics without leaving a gradient.
        for part, gradient in zip(("weight", "bias"), of_critic, strict=True):
            found = numpy(gradients[f"critics.networks.{number}.head.layer.{part}"])
            np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-5)
    assert len(gradients) == 2 + 2 * num_critics

    algorithm.generator.set_state(state)
    algorithm.update(batch)
    policy = [w + first_adam_step(g, 0.01) for w, g in zip(by_hand.policy, policy_gradients, strict=True)]
    _assert_layers_close([layer_of(algorithm.pi.head)], [policy])
    critics = [
        [w + first_adam_step(g, 0.02) for w, g in zip(critic, of_critic, strict=True)]
        for critic, of_critic in zip(by_hand.critics, critic_gradients, strict=True)
    ]
    _assert_layers_close([layer_of(critic.head) for critic in algorithm.critics], critics)
    targets = [
        [0.9 * old + 0.1 * new for old, new in zip(target, layer, strict=True)]
        for target, layer in zip([by_hand.target_policy, *by_hand.target_critics], [policy, *critics], strict=True)
    ]
    found_targets = [
        layer_of(algorithm.target_pi.head),
        *(layer_of(critic.head) for critic in algorithm.target_critics),
    ]
    _assert_layers_close(found_targets, targets)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def _assert_layers_close(found: list[Any], expected: list[Any]) -> None:
    for one, two in zip(found, expected, strict=True):
        for ours, theirs in zip(one, two, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("apart", [False, True], ids=["update", "compute and apply"])
@pytest.mark.parametrize("policy_delay", [1, 2, 3])
def test_policy_and_targets_do_not_change_between_delayed_updates(policy_delay: int, apart: bool) -> None:
    algorithm = linear_td3(policy_delay=policy_delay, polyak=0.5)
    delayed = {"pi": algorithm.pi, "target_pi": algorithm.target_pi, "target_critics": algorithm.target_critics}
    for number in range(1, 3 * policy_delay + 1):
        critics_before = copies(algorithm.critics.state_dict())
        before = {name: copies(network.state_dict()) for name, network in delayed.items()}
        optimizer = copy.deepcopy(algorithm.train_pi.stepper.state_dict())
        if apart:
            gradients, result = algorithm.compute_gradients(n_step_batch(number))
            algorithm.apply_gradients(gradients)
        else:
            result = algorithm.update(n_step_batch(number))
        assert not torch.equal(algorithm.critics[0].head.layer.weight, critics_before["networks.0.head.layer.weight"])
        is_delayed = number % policy_delay == 0
        assert ("policy_loss" in result.metrics) == is_delayed
        for name, network in delayed.items():
            for weight_name, weight in network.state_dict().items():
                assert torch.equal(weight, before[name][weight_name]) != is_delayed, (name, weight_name)
        if not is_delayed:
            assert_equal(algorithm.train_pi.stepper.state_dict(), optimizer)
        assert algorithm.updates == number


def test_target_noise_is_clipped_and_comes_from_the_algorithms_generator() -> None:
    batch = n_step_batch()
    batch[REW].zero_()
    algorithm = linear_td3(target_noise=1e6, target_noise_clip=0.25)
    with torch.no_grad():
        for parameter in (*algorithm.target_pi.parameters(), *algorithm.target_critics.parameters()):
            parameter.zero_()
        for critic in algorithm.target_critics:
            critic.head.layer.weight[0, 3:] = torch.tensor([1.0, 10.0])  # type: ignore[index]
            critic.head.layer.bias.zero_()
        for parameter in algorithm.critics.parameters():
            parameter.zero_()
    batch[DISCOUNT].fill_(1.0)
    global_random_state = torch.get_rng_state()
    # With critics of 0, errors are the targets: the noise 1 * e_0 + 10 * e_1, each e at the clip.
    errors = [algorithm.compute_gradients(batch)[1].errors for _ in range(20)]
    assert torch.equal(torch.get_rng_state(), global_random_state)
    sizes = torch.cat([error for error in errors if error is not None]).flatten().unique()
    torch.testing.assert_close(sizes, torch.tensor([0.25 * 9, 0.25 * 11]))


def test_exploration_adds_gaussian_noise_within_the_box_and_evaluation_adds_none() -> None:
    algorithm = linear_td3(exploration_noise=0.1, start_steps=0)
    with torch.no_grad():
        for parameter in algorithm.pi.parameters():
            parameter.zero_()
    exploration = exploring(algorithm, 2_000)
    obs, done = torch.randn(2_000, 3), torch.zeros(2_000, 1)
    step = algorithm.acting_step(obs, None, done, exploration)
    # Actions in [-1, 1] are stretched to the Box [-3, 1]: noise of 0.1 becomes 0.2 around -1.
    assert abs(step.env_action.mean() + 1) < 0.01
    assert abs(step.env_action.std() - 0.2) < 0.01
    assert torch.equal(step.action, step.env_action)

    algorithm = linear_td3(exploration_noise=5.0, start_steps=0)
    step = algorithm.acting_step(100 * obs, None, done, exploration)
    assert all(SPACE.contains(action) for action in step.env_action.numpy())
    evaluating = exploring(algorithm, 2_000, deterministic=True)
    state = evaluating.state_dict()
    one, two = (algorithm.acting_step(obs, None, done, evaluating).env_action for _ in range(2))
    assert torch.equal(one, two)
    np.testing.assert_allclose(numpy(one), 2 * np.tanh(linear(layer_of(algorithm.pi.head), numpy(obs))) - 1, atol=1e-5)
    assert_equal(evaluating.state_dict(), state)
