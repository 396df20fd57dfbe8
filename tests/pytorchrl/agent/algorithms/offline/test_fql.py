"""FQL's losses, gradients and actions equal those computed by hand in numpy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import copies, envs_with, exploring, layer_of, linear, numeric_gradient, numpy, replayed
from tests.support.proposing import BOX, ROWS, SCALED, STORED, check_gradients, linear_learner


class ByHand:
    """The losses of one batch with networks of one layer, and the random numbers of the next update."""

    def __init__(self, algorithm: prl.FQL, batch: Any) -> None:
        self.algorithm, self.batch = algorithm, {key: numpy(value) for key, value in batch.items()}
        self.policy, self.velocity = layer_of(algorithm.pi.head), layer_of(algorithm.flow.head)
        self.critics, self.target_critics = (
            [layer_of(critic.head) for critic in critics] for critics in (algorithm.critics, algorithm.target_critics)
        )
        generator = torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        # In the order in which the algorithm draws them: of next actions, of the flow and its times, of the policy.
        noise2, self.flow_noise = (torch.empty(ROWS, 2).normal_(generator=generator) for _ in range(2))
        self.flow_noise, self.time = numpy(self.flow_noise), numpy(torch.empty(ROWS, 1).uniform_(generator=generator))
        self.noise = numpy(torch.empty(ROWS, 2).normal_(generator=generator))
        self.target = self.make_target(numpy(noise2))
        self.flow_actions = [self.flow(self.batch[OBS][row], self.noise[row]) for row in range(ROWS)]
        magnitude = np.mean(np.abs([self.value(row) for row in range(ROWS)]))
        # A constant for the policy's gradient.
        self.scale = 1 / max(magnitude, 1e-8) if algorithm.normalize_q_loss else 1.0

    def make_target(self, noise: Any) -> Any:
        targets = []
        for row, following in enumerate(self.batch[OBS2]):
            action = linear(self.policy, np.hstack([following, noise[row]])).clip(-1, 1)
            values = [linear(critic, np.hstack([following, action]))[0] for critic in self.target_critics]
            value = min(values) if self.algorithm.value_of_targets == "minimum" else sum(values) / len(values)
            targets.append(self.batch[REW][row] + self.batch[DISCOUNT][row] * value)
        return np.stack(targets)

    def flow(self, obs: Any, noise: Any) -> Any:
        """The end of a flow of equal steps along the velocities, from time 0 to 1."""
        steps, point = self.algorithm.flow_steps, noise.copy()
        for step in range(steps):
            point = point + (1 / steps) * linear(self.velocity, np.hstack([obs, point, step / steps]))
        return point.clip(-1, 1)

    def differences(self) -> list[Any]:
        return [linear(critic, np.hstack([self.batch[OBS], SCALED])) - self.target for critic in self.critics]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * each**2).mean() for each in self.differences()))

    def flow_loss(self) -> float:
        total = 0.0
        for row in range(ROWS):
            noise, time = self.flow_noise[row], self.time[row, 0]
            between = (1 - time) * noise + time * SCALED[row]
            velocity = linear(self.velocity, np.hstack([self.batch[OBS][row], between, time]))
            total += np.mean((velocity - (SCALED[row] - noise)) ** 2)
        return total / ROWS

    def action(self, row: int) -> Any:
        return linear(self.policy, np.hstack([self.batch[OBS][row], self.noise[row]]))

    def value(self, row: int) -> float:
        inputs = np.hstack([self.batch[OBS][row], self.action(row).clip(-1, 1)])
        return float(np.mean([linear(critic, inputs)[0] for critic in self.critics]))

    def policy_loss(self) -> float:
        total = 0.0
        for row in range(ROWS):
            distance = np.mean((self.action(row) - self.flow_actions[row]) ** 2)
            total += self.algorithm.alpha * distance - self.scale * self.value(row)
        return total / ROWS


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"value_of_targets": "minimum", "num_critics": 3, "alpha": 0.5, "flow_steps": 3},
        {"normalize_q_loss": True, "alpha": 0.3, "flow_steps": 1},
        {"alpha": 0.0},
    ],
    ids=str,
)
def test_losses_errors_and_gradients_equal_those_computed_by_hand(settings: dict[str, Any]) -> None:
    algorithm: prl.FQL = linear_learner(prl.FQL, **settings)
    batch = replayed(STORED)
    before, hand = copies(batch), ByHand(algorithm, batch)
    # Some actions of policy and flow lie within the bounds, others beyond them.
    assert 0 < np.mean([np.abs(hand.action(row)) < 1 for row in range(ROWS)]) < 1
    assert 0 < np.mean(np.abs(hand.flow_actions) < 1) < 1
    gradients, result = algorithm.compute_gradients(batch)
    for name, loss in (
        ("critic_loss", hand.critic_loss),
        ("flow_loss", hand.flow_loss),
        ("policy_loss", hand.policy_loss),
    ):
        np.testing.assert_allclose(result.metrics[name], loss(), rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), np.abs(hand.differences()).mean(0), rtol=1e-4)
    layers: dict[str, tuple[Any, Any]] = {
        "policy": (hand.policy, hand.policy_loss),
        "flow": (hand.velocity, hand.flow_loss),
        **{f"critics.networks.{n}": (critic, hand.critic_loss) for n, critic in enumerate(hand.critics)},
    }
    check_gradients(gradients, layers)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_it_acts_by_the_policys_actions_of_noise_scaled_to_the_bounds() -> None:
    algorithm: prl.FQL = linear_learner(prl.FQL, start_steps=0)
    policy = layer_of(algorithm.pi.head)
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for deterministic in (True, False):
        exploration = exploring(algorithm, 5, deterministic=deterministic)
        noise = torch.empty(5, 2).normal_(generator=_copied(exploration.generator))
        step = algorithm.acting_step(obs, None, torch.zeros(5, 1), exploration)
        action = linear(policy, np.hstack([numpy(obs), numpy(noise)])).clip(-1, 1)
        # The Box is [-2, 2] by [0, 5].
        np.testing.assert_allclose(numpy(step.env_action), action * [2, 2.5] + [0, 2.5], rtol=1e-4, atol=1e-5)


def _copied(generator: torch.Generator) -> torch.Generator:
    copied = torch.Generator()
    copied.set_state(generator.get_state())
    return copied


def test_the_flow_becomes_both_kinds_of_action_in_data_with_two() -> None:
    torch.manual_seed(0)
    envs, random = envs_with(BOX), np.random.default_rng(0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64))("cpu", envs)
    algorithm = prl.FQL.create_factory(lr_flow=3e-3)("cpu", actor, envs)
    algorithm.seed(0)
    for _ in range(400):
        # Scaled actions near -0.5 and 0.5 in both components together, whose mean is not among them.
        scaled = random.choice([-0.5, 0.5], (256, 1)) + random.normal(0, 0.05, (256, 2))
        batch = replayed((scaled * [2, 2.5] + [0, 2.5]).astype(np.float32))
        algorithm.minimise(prl.Losses({algorithm.train_flow: algorithm.flow_loss(algorithm.read(batch))}))
    view = algorithm.actor.view(batch[OBS])
    with torch.no_grad():
        found = algorithm.flow_action(view, algorithm.noise(256, algorithm.generator))
    is_first, is_second = ((found - mode).abs().amax(1) < 0.25 for mode in (-0.5, 0.5))
    assert 0.3 < is_first.float().mean() < 0.7
    assert (is_first | is_second).float().mean() > 0.9


@pytest.mark.parametrize("of_critics", [True, False])
def test_critics_have_layer_normalisation_unless_it_is_left_to_the_actor(of_critics: bool) -> None:
    algorithm = linear_learner(prl.FQL, actor={"hidden_sizes": (5, 4)}, critic_layer_norm=of_critics)

    def norms(network: nn.Module) -> int:
        return sum(isinstance(module, nn.LayerNorm) for module in network.modules())

    for critics in (algorithm.critics, algorithm.target_critics):
        assert [norms(critic) for critic in critics] == [2 * of_critics] * 2
    assert norms(algorithm.pi) == norms(algorithm.flow) == 0


def test_if_all_values_are_zero_normalised_ones_leave_the_distillation_alone() -> None:
    algorithm: prl.FQL = linear_learner(prl.FQL, normalize_q_loss=True, alpha=2.0)
    with torch.no_grad():
        for parameter in algorithm.critics.parameters():
            parameter.zero_()
    batch = replayed(STORED)
    hand = ByHand(algorithm, batch)
    gradients = algorithm.compute_gradients(batch)[0]
    expected = numeric_gradient(hand.policy_loss, hand.policy[0])
    np.testing.assert_allclose(numpy(gradients["policy.head.layer.weight"]), expected, rtol=2e-3, atol=1e-5)
