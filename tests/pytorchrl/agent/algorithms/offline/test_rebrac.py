"""ReBRAC's losses and gradients equal those of numpy loops over the rows of a batch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pytorchrl as prl
from storages.transition import ACT2, DISCOUNT, OBS, OBS2, REW, TAKEN2, TRUNC2
from tests.support.by_hand import copies, layer_of, linear, numpy, with_next_actions
from tests.support.comparison import assert_equal
from tests.support.soft_critics import ByHand, assert_gradients, made, n_step_batch
from tests.support.training import train


class NumpyReBRAC(ByHand):
    """The losses of one batch, row by row, with the noise that the algorithm draws next."""

    def __init__(self, algorithm: prl.ReBRAC, batch: dict[str, torch.Tensor], scale: float | None = None) -> None:
        self.algorithm, self.scale = algorithm, scale
        super().__init__(algorithm, batch)

    def prepare(self, algorithm: prl.ReBRAC) -> None:
        super().prepare(algorithm)
        self.target_policy = layer_of(algorithm.target_pi.head)
        self.policy_penalty, self.critic_penalty = (
            algorithm.current(each) for each in (algorithm.policy_penalty, algorithm.critic_penalty)
        )
        if self.scale is None:
            # The mean magnitude is a constant for the policy's gradient.
            self.scale = 1 / np.mean(np.abs(self.policy_values())) if algorithm.normalize_q_loss else 1.0

    def make_target(self) -> Any:
        targets = []
        for row, following in enumerate(self.batch[OBS2]):
            noise = (self.algorithm.target_noise * self.noise2[row]).clip(-0.5, 0.5)
            action = (np.tanh(linear(self.target_policy, following)) + noise).clip(-1, 1)
            value = min(linear(critic, np.hstack([following, action]))[0] for critic in self.target_critics)
            if self.batch[TAKEN2][row, 0] == 1:
                # The Box is [-3, 1]: middle -1, half range 2.
                taken = (self.batch[ACT2][row] + 1) / 2
                value -= self.critic_penalty * sum(
                    (ours - theirs) ** 2 for ours, theirs in zip(action, taken, strict=True)
                )
            targets.append(self.batch[REW][row] + self.batch[DISCOUNT][row] * value)
        return np.stack(targets)

    def actions(self) -> Any:
        return np.tanh(linear(self.policy, self.batch[OBS]))

    def policy_values(self) -> Any:
        return np.min(self.values(self.critics, self.batch[OBS], self.actions()), axis=0)[:, 0]

    def policy_loss(self) -> float:
        total = 0.0
        for row, (action, value) in enumerate(zip(self.actions(), self.policy_values(), strict=True)):
            distance = sum((ours - theirs) ** 2 for ours, theirs in zip(action, self.taken[row], strict=True))
            total += self.policy_penalty * distance - self.scale * value
        return float(total / len(self.taken))


@pytest.mark.parametrize(
    "settings",
    [
        {"policy_penalty": 0.3, "critic_penalty": 0.7},
        {"policy_penalty": 0.0, "critic_penalty": 0.7, "num_critics": 3},
        {"policy_penalty": 0.3, "critic_penalty": 0.0, "target_noise": 50.0},
        {"policy_penalty": 0.3, "critic_penalty": 0.7, "normalize_q_loss": False},
    ],
    ids=str,
)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(settings: dict[str, Any]) -> None:
    algorithm = made(prl.ReBRAC, policy_delay=1, **settings)
    batch = with_next_actions(n_step_batch())
    assert 0 < batch[TAKEN2].mean() < 1
    assert_gradients(algorithm, batch, NumpyReBRAC(algorithm, batch))


def test_a_next_action_that_is_not_known_is_not_penalised() -> None:
    algorithm = made(prl.ReBRAC, critic_penalty=10.0)
    batch = with_next_actions(n_step_batch())
    unknown = (batch[TAKEN2] == 0) & (batch[DISCOUNT] > 0)
    assert unknown.any()
    batch[TRUNC2][unknown] = 1
    other = copies(batch)
    other[ACT2][batch[TAKEN2][:, 0] == 0] += 0.7
    found = []
    for one in (batch, other):
        algorithm.seed(0)
        found.append(algorithm.compute_gradients(one))
    assert_equal(found[0][0], found[1][0])
    other[ACT2][batch[TAKEN2][:, 0] == 1] += 0.7
    algorithm.seed(0)
    assert not torch.equal(algorithm.compute_gradients(other)[1].errors, found[0][1].errors)


def test_penalties_follow_schedules() -> None:
    algorithm = made(
        prl.ReBRAC,
        policy_delay=1,
        policy_penalty=prl.LinearSchedule(0.4, 0.0),
        critic_penalty=prl.LinearSchedule(2.0, 1.0),
    )
    batch = with_next_actions(n_step_batch())
    for steps in (0, 30, 100):
        algorithm.set_progress(steps, 100)
        by_hand = NumpyReBRAC(algorithm, batch)
        assert by_hand.policy_penalty == pytest.approx(0.4 * (1 - steps / 100))
        assert_gradients(algorithm, batch, by_hand)


def test_without_penalties_and_normalisation_critics_learn_as_td3s() -> None:
    td3, ours = (
        made(cls, lr_pi=0.0, lr_q=3e-3, **settings)
        for cls, settings in ((prl.TD3, {}), (prl.ReBRAC, {"critic_penalty": 0.0}))
    )
    for seed in range(4):
        batch = with_next_actions(n_step_batch(seed))
        expected, result = (one.update(batch) for one in (td3, ours))
        assert_equal(result.errors, expected.errors)
    assert_equal(ours.state_dict()["actor"], td3.state_dict()["actor"])
    assert_equal(ours.target_critics.state_dict(), td3.target_critics.state_dict())


def test_if_all_values_are_zero_the_policys_gradients_are_those_of_cloning() -> None:
    algorithm = made(prl.ReBRAC, policy_delay=1, policy_penalty=0.5)
    with torch.no_grad():
        for parameter in algorithm.critics.parameters():
            parameter.zero_()
    batch = with_next_actions(n_step_batch())
    gradients = algorithm.compute_gradients(batch)[0]
    rows = algorithm.read(batch)
    loss = 0.5 * (algorithm.pi(rows.now) - rows.action).square().sum(1).mean()
    named = dict(algorithm.pi.named_parameters())
    for name, gradient in zip(named, torch.autograd.grad(loss, list(named.values())), strict=True):
        torch.testing.assert_close(gradients[f"policy.{name}"], gradient)


@pytest.mark.parametrize(("of_critics", "of_actor"), [(True, False), (False, False), (False, True), (True, True)])
def test_critics_have_layer_normalisation_unless_it_is_left_to_the_actor(of_critics: bool, of_actor: bool) -> None:
    algorithm = made(prl.ReBRAC, {"hidden_sizes": (5, 4), "layer_norm": of_actor}, critic_layer_norm=of_critics)

    def norms(network: nn.Module) -> int:
        return sum(isinstance(module, nn.LayerNorm) for module in network.modules())

    for critics in (algorithm.critics, algorithm.target_critics):
        assert [norms(critic) for critic in critics] == [2 * (of_critics or of_actor)] * 2
    assert norms(algorithm.pi) == 2 * of_actor


def test_next_actions_of_sequences_are_those_of_their_steps() -> None:
    envs = prl.VecEnv.create_factory("Pendulum-v1", env_kwargs={"max_episode_steps": 7})
    scheme = prl.Scheme(
        prl.ReBRAC.create_factory(start_steps=40, mini_batch_size=8, critic_penalty=3.0, target_noise=0.0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        prl.PERBuffer.create_factory(size=100, n_step=2, alpha=0.6, sequences=prl.Sequences(4, burn_in=2)),
        envs,
        seed=1,
    )
    train(scheme, 60)
    algorithm: Any = scheme.algorithm
    (batch,) = scheme.storage.generate_batches(1, 8)
    assert 0 < batch[TAKEN2].mean() < 1
    rows = algorithm.read(batch)
    with torch.no_grad():
        action = algorithm.smoothed_next_action(rows)
        values = [critic(rows.next, action).mean for critic in algorithm.target_critics]
    errors = []
    for row, (step, column) in enumerate(np.ndindex(*batch[REW].shape[:2])):
        # The Box is [-2, 2].
        distance = (numpy(action)[row, 0] - numpy(batch[ACT2])[step, column, 0] / 2) ** 2
        value = min(value[row, 0].item() for value in values) - 3.0 * batch[TAKEN2][step, column, 0].item() * distance
        target = batch[REW][step, column, 0] + batch[DISCOUNT][step, column, 0] * value
        found = [critic(rows.now, rows.action).mean[row, 0] for critic in algorithm.critics]
        errors.append(np.mean([abs(each.item() - target.item()) for each in found]))
    computed = algorithm.losses(rows).errors
    np.testing.assert_allclose(numpy(computed).ravel(), errors, rtol=1e-3, atol=1e-4)
    scheme.close()
