"""TD3's update equals the one computed by hand, and its policy and targets change in delayed updates only."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS, OBS2, REW
from tests.support.by_hand import (
    copies,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
)
from tests.support.comparison import assert_equal
from tests.support.soft_critics import SPACE, ByHand, assert_gradients, made, n_step_batch


def linear_td3(**hyper_parameters: Any) -> prl.TD3:
    td3: prl.TD3 = made(prl.TD3, **hyper_parameters)
    return td3


class NumpyTD3(ByHand):
    """The losses of one batch, with the noise that the algorithm is about to draw."""

    def prepare(self, algorithm: prl.TD3) -> None:
        super().prepare(algorithm)
        self.target_policy = layer_of(algorithm.target_pi.head)
        clip = algorithm.target_noise_clip
        self.noise = np.clip(algorithm.target_noise * self.noise2, -clip, clip)

    def make_target(self) -> Any:
        action = np.clip(np.tanh(linear(self.target_policy, self.batch[OBS2])) + self.noise, -1, 1)
        values = self.values(self.target_critics, self.batch[OBS2], action)
        return self.batch[REW] + self.batch[DISCOUNT] * np.min(values, axis=0)

    def policy_loss(self) -> float:
        action = np.tanh(linear(self.policy, self.batch[OBS]))
        return -float(self.values(self.critics, self.batch[OBS], action)[0].mean())


@pytest.mark.parametrize("target_noise", [0.0, 0.3, 50.0])
@pytest.mark.parametrize("num_critics", [1, 2, 3])
def test_losses_gradients_and_the_step_equal_those_of_a_numpy_version(num_critics: int, target_noise: float) -> None:
    algorithm = linear_td3(
        lr_pi=0.01, lr_q=0.02, polyak=0.9, policy_delay=1, num_critics=num_critics, target_noise=target_noise
    )
    batch = n_step_batch()
    by_hand = NumpyTD3(algorithm, batch)
    policy_gradients = [numeric_gradient(by_hand.policy_loss, part) for part in by_hand.policy]
    critic_gradients = [[numeric_gradient(by_hand.critic_loss, part) for part in critic] for critic in by_hand.critics]
    state = algorithm.generator.get_state()
    assert len(assert_gradients(algorithm, batch, by_hand)) == 2 + 2 * num_critics
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
