"""Updates of DDPG, SVG(0) and PGT equal those computed by hand."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import DeterministicPolicy
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, DISCOUNT, DONE2, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS
from tests.pytorchrl.agent.algorithms.test_rows import BOX, batch_of
from tests.support.by_hand import copies, envs_with, layer_of, linear, numeric_gradient, numpy, replayed
from tests.support.soft_critics import made

ACTIONS = np.linspace(-2.9, 0.9, 10, dtype=np.float32).reshape(5, 2)
SPACE = spaces.Box(-3.0, 1.0, (2,), np.float32)


def linear_algorithm(kind: Any, **hyper_parameters: Any) -> Any:
    """Policy and critics of one layer each, and targets that differ from them."""
    envs = envs_with(SPACE)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = kind.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for network in (algorithm.pi, algorithm.critics, algorithm.target_pi, algorithm.target_critics):
            for parameter in network.parameters():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return algorithm


def n_step_batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch whose rows sum up 1, 2 or 3 rewards, with importance weights that differ."""
    batch = replayed(ACTIONS, seed)
    batch[DISCOUNT] = 0.9 ** torch.tensor([[1.0], [3], [2], [3], [1]]) * (1 - batch[DONE2])
    return batch


class ByHand:
    """The losses of one batch, with the noise that the algorithm is about to draw."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.policy, self.target_policy = layer_of(algorithm.pi.head), layer_of(algorithm.target_pi.head)
        self.critic = layer_of(algorithm.critics[0].head)
        self.target_critic = layer_of(algorithm.target_critics[0].head)
        generator = torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        self.noise = [numpy(torch.empty(5, 2).normal_(generator=generator)) for _ in range(2)]
        self.is_deterministic = not isinstance(algorithm, prl.SVG0)

    def next_action(self) -> Any:
        if self.is_deterministic:
            return np.tanh(linear(self.target_policy, self.batch[OBS2]))
        mean, log_std = np.split(linear(self.target_policy, self.batch[OBS2]), 2, axis=1)
        return np.tanh(mean + np.exp(log_std) * self.noise[0])

    def errors(self) -> Any:
        following = linear(self.target_critic, np.hstack([self.batch[OBS2], self.next_action()]))
        target = self.batch[REW] + self.batch[DISCOUNT] * following
        stored = np.hstack([self.batch[OBS], (self.batch[ACT] + 1) / 2])  # the Box is [-3, 1]: middle -1, half range 2
        return linear(self.critic, stored) - target

    def critic_loss(self) -> float:
        return float(0.5 * (self.batch[WEIGHTS] * self.errors() ** 2).mean())

    def value(self, action: Any) -> Any:
        return linear(self.critic, np.hstack([self.batch[OBS], action]))

    def deterministic_loss(self) -> float:
        return -float(self.value(np.tanh(linear(self.policy, self.batch[OBS]))).mean())

    def unsquashed(self) -> Any:
        mean, log_std = np.split(linear(self.policy, self.batch[OBS]), 2, axis=1)
        return mean + np.exp(log_std) * self.noise[1]

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


def assert_gradients(algorithm: Any, batch: dict[str, torch.Tensor], by_hand: ByHand, policy_loss: Any) -> None:
    of_policy = [numeric_gradient(policy_loss, part) for part in by_hand.policy]
    of_critic = [numeric_gradient(by_hand.critic_loss, part) for part in by_hand.critic]
    before = copies(batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], policy_loss(), rtol=1e-3)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), np.abs(by_hand.errors()), rtol=1e-4, atol=1e-6)
    for part, ours, theirs in zip(("weight", "bias"), of_policy, of_critic, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"policy.head.layer.{part}"]), ours, rtol=2e-3, atol=1e-4)
        # The policy's loss leaves no gradient in the critic.
        found = numpy(gradients[f"critics.networks.0.head.layer.{part}"])
        np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-5)
    assert len(gradients) == 4
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_ddpgs_gradients_equal_those_of_a_numpy_version() -> None:
    algorithm, batch = linear_algorithm(prl.DDPG), n_step_batch()
    by_hand = ByHand(algorithm, batch)
    assert_gradients(algorithm, batch, by_hand, by_hand.deterministic_loss)


def test_svg0s_gradients_pass_through_the_drawn_action() -> None:
    algorithm, batch = linear_algorithm(prl.SVG0), n_step_batch()
    by_hand = ByHand(algorithm, batch)
    assert_gradients(algorithm, batch, by_hand, by_hand.reparameterised_loss)


@pytest.mark.parametrize("entropy_coef", [0.0, 0.5])
def test_pgts_gradients_are_those_of_log_probabilities_weighted_by_advantages(entropy_coef: float) -> None:
    algorithm, batch = linear_algorithm(prl.PGT, entropy_coef=entropy_coef), n_step_batch()
    by_hand = ByHand(algorithm, batch)
    drawn = by_hand.unsquashed()
    weight = by_hand.weight(drawn, entropy_coef)
    assert_gradients(algorithm, batch, by_hand, lambda: -float((weight * by_hand.log_prob(drawn)).mean()))


def test_pgt_and_svg0_estimate_the_same_gradient() -> None:
    """PGT uses likelihood ratios, SVG(0) reparameterisation; with 200,000 samples, both are close."""
    batch = {key: value.repeat(40_000, *[1] * (value.ndim - 1)) for key, value in n_step_batch().items()}
    svg0, pgt = linear_algorithm(prl.SVG0), linear_algorithm(prl.PGT, entropy_coef=0.0)
    pgt.actor.load_state_dict(svg0.actor.state_dict())
    one, other = svg0.compute_gradients(batch)[0], pgt.compute_gradients(batch)[0]
    for part in ("weight", "bias"):
        torch.testing.assert_close(
            one[f"policy.head.layer.{part}"], other[f"policy.head.layer.{part}"], rtol=0.1, atol=0.02
        )


def test_ddpg_accepts_ornstein_uhlenbeck_noise_and_svg0_explores_by_sampling() -> None:
    noise = prl.OrnsteinUhlenbeck(0.2)
    assert linear_algorithm(prl.DDPG, explorer=noise).make_explorer().then == noise
    with pytest.raises(TypeError, match="DDPG: Sample needs a distribution"):
        linear_algorithm(prl.DDPG, explorer=prl.Sample())
    assert linear_algorithm(prl.SVG0).make_explorer().then == prl.Sample()
    with pytest.raises(ValueError, match="DDPG: polyak must lie in"):
        prl.DDPG.create_factory(polyak=1.5)


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


@pytest.mark.parametrize("kind", [prl.DDPG, prl.TD3, prl.SAC])
def test_gradients_applied_separately_update_the_critics_as_one_update_does(kind: Any) -> None:
    whole, apart = (made(kind, {"hidden_sizes": (7, 5)}) for _ in range(2))
    gradients, _ = apart.compute_gradients(n_step_batch())
    before = {name: gradient.clone() for name, gradient in gradients.items()}
    # Gradients of another batch, computed in between, do not change them.
    apart.compute_gradients(n_step_batch(1))
    torch.testing.assert_close(gradients, before, rtol=0, atol=0)
    apart.apply_gradients(gradients)
    whole.update(n_step_batch())
    torch.testing.assert_close(list(apart.critics.parameters()), list(whole.critics.parameters()))


def test_observations_of_double_precision_are_learnt_from_in_single_precision() -> None:
    one, other, batch = linear_algorithm(prl.DDPG), linear_algorithm(prl.DDPG), n_step_batch()
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


class OtherLosses(prl.TD3):
    """Scales the loss of the policy, and adds a penalty on weights to that of the critics."""

    def losses(self, rows: Rows) -> Losses:
        losses = super().losses(rows)
        size = sum(parameter.square().sum() for parameter in self.critics.parameters())
        return Losses({self.train_critics: losses.of[self.train_critics] + size}, losses.metrics, losses.errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        losses = super().losses_after_step(rows)
        return losses and Losses({group: 3 * loss for group, loss in losses.of.items()})


def test_overridden_losses_determine_the_gradients() -> None:
    algorithm, plain = (made(kind, {"hidden_sizes": (7, 5)}, policy_delay=1) for kind in (OtherLosses, prl.TD3))
    found, expected = (each.compute_gradients(n_step_batch())[0] for each in (algorithm, plain))
    for name, parameter in algorithm.train_critics.parameters.items():
        torch.testing.assert_close(found[f"critics.{name}"], expected[f"critics.{name}"] + 2 * parameter.detach())
    for name in algorithm.train_pi.parameters:
        torch.testing.assert_close(found[f"policy.{name}"], 3 * expected[f"policy.{name}"])
