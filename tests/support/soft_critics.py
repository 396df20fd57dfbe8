"""Soft actor-critics of bounded actions with few weights, and their losses in numpy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support import by_hand
from tests.support.by_hand import copies, envs_with, layer_of, linear, numeric_gradient, numpy, perturb

ACTIONS = np.linspace(-2.9, 0.9, 10, dtype=np.float32).reshape(5, 2)
SPACE = spaces.Box(-3.0, 1.0, (2,), np.float32)
Array = NDArray[np.float64]


def made(cls: Any, actor: Mapping[str, Any] | None = None, **hyper_parameters: Any) -> Any:
    """An algorithm with networks of one layer, whose target networks differ from the trained ones."""
    torch.manual_seed(0)
    envs = envs_with(SPACE)
    body = prl.OffPolicyActor.create_factory(**{"hidden_sizes": (), **(actor or {})})("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", body, envs)
    algorithm.seed(0)
    perturb(algorithm.actor, 1, 0.3)
    for number, target in enumerate(algorithm.training.targets.values()):
        perturb(target.network, 2 + number, 0.3)
    return algorithm


def n_step_batch(seed: int = 0) -> dict[str, torch.Tensor]:
    """Windows of 1, 2 or 3 steps, one of which ends with its episode, and different importance weights."""
    return by_hand.n_step_batch(ACTIONS, seed)


def drawn(generator: torch.Generator, draws: Sequence[Callable[[torch.Generator], torch.Tensor]]) -> list[Array]:
    """The next draws of a generator."""
    copied = torch.Generator()
    copied.set_state(generator.get_state())
    return [numpy(draw(copied)) for draw in draws]


class ByHand:
    """The losses of one batch, with the noise that the algorithm draws next; networks have one layer."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.noise2, self.noise = drawn(algorithm.generator, [lambda g: torch.empty(5, 2).normal_(generator=g)] * 2)
        self.policy = layer_of(algorithm.pi.head)
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        self.alpha = getattr(algorithm, "alpha", None)
        self.taken = (self.batch[ACT] + 1) / 2  # the Box is [-3, 1]: middle -1, half range 2
        self.prepare(algorithm)
        # The target does not depend on the trained networks: it is fixed before the differentiation.
        self.target = self.make_target()

    def prepare(self, algorithm: Any) -> None:
        """Read further networks."""
        targets = getattr(algorithm, "target_critics", [])
        self.target_critics = [layer_of(critic.head) for critic in targets]

    def act(self, obs: Any, noise: Any) -> tuple[Any, Any]:
        """Actions and log probabilities."""
        mean, log_std = np.split(self.policy_output(obs), 2, axis=1)
        log_std = np.clip(log_std, -20, 2)
        unsquashed = mean + np.exp(log_std) * noise
        density = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(unsquashed) ** 2)
        return np.tanh(unsquashed), density.sum(1, keepdims=True)

    def policy_output(self, obs: Any) -> Any:
        return linear(self.policy, obs)

    def values(self, critics: Sequence[Any], obs: Any, action: Any) -> list[Any]:
        return [linear(critic, np.hstack([obs, action])) for critic in critics]

    def of_target(self, values: list[Any]) -> Any:
        return np.min(values, axis=0)

    def of_policy(self, values: list[Any]) -> Any:
        return np.min(values, axis=0)

    def make_target(self) -> Any:
        action, log_prob = self.act(self.batch[OBS2], self.noise2)
        value = self.of_target(self.values(self.target_critics, self.batch[OBS2], action))
        return self.batch[REW] + self.batch[DISCOUNT] * (value - self.alpha * log_prob)

    def errors(self) -> Any:
        """The error of each row."""
        return np.abs(self.differences()).mean(0)

    def differences(self) -> Any:
        return [value - self.target for value in self.values(self.critics, self.batch[OBS], self.taken)]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * each**2).mean() for each in self.differences()))

    def soft_value(self) -> Any:
        action, log_prob = self.act(self.batch[OBS], self.noise)
        return self.of_policy(self.values(self.critics, self.batch[OBS], action)) - self.alpha * log_prob

    def policy_loss(self) -> float:
        return -float(self.soft_value().mean())


def target_of(algorithm: Any, batch: dict[str, torch.Tensor], alpha: float) -> Any:
    """The critics' target at a temperature; assert that it leaves no gradient in what it is computed of."""
    start = algorithm.generator.get_state()
    rows = algorithm.read(batch)
    algorithm.losses(rows).of[algorithm.train_critics].backward()
    sources = *algorithm.pi.parameters(), *algorithm.target_critics.parameters()
    assert all(parameter.grad is None for parameter in sources)
    algorithm.train_critics.stepper.zero_grad()
    algorithm.generator.set_state(start)
    with torch.no_grad():
        return algorithm.target_value(rows, torch.tensor([alpha]))


def assert_gradients(algorithm: Any, batch: dict[str, torch.Tensor], by_hand: Any) -> dict[str, Any]:
    """Assert that losses, errors and gradients of policy and critics equal those in numpy; return all gradients."""
    expected = {f"policy.head.layer.{name}": part for name, part in of(by_hand.policy_loss, by_hand.policy)}
    for number, critic in enumerate(by_hand.critics):
        # The loss of the policy leaves no gradient in the critics.
        named = of(by_hand.critic_loss, critic)
        expected |= {f"critics.networks.{number}.head.layer.{name}": part for name, part in named}
    before = copies(batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], by_hand.policy_loss(), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), by_hand.errors(), rtol=1e-4, atol=1e-6)
    assert_close(gradients, expected)
    assert all(torch.equal(batch[key], before[key]) for key in before)
    return dict(gradients)


def of(loss: Any, layer: Sequence[Any]) -> list[tuple[str, Array]]:
    """The gradients of a loss in weight and bias of a layer, by name."""
    return [(name, numeric_gradient(loss, part)) for name, part in zip(("weight", "bias"), layer, strict=True)]


def assert_close(gradients: Mapping[str, torch.Tensor], expected: Mapping[str, Array]) -> None:
    """Assert that gradients equal those in numpy."""
    for name, gradient in expected.items():
        np.testing.assert_allclose(numpy(gradients[name]), gradient, rtol=2e-3, atol=1e-4, err_msg=name)
