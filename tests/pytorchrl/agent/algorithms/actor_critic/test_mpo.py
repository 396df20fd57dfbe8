"""MPO's losses and gradients equal those of a slow numpy version, for continuous and for discrete actions."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.algorithm import Algorithm
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)

SPACE, DISCRETE = spaces.Box(-3.0, 1.0, (2,), np.float32), spaces.Discrete(3)
SETTINGS: dict[str, Any] = {"initial_eta": 0.7, "initial_multiplier": 1.5, "epsilon": 0.2, "polyak": 0.9}


def batch_of(space: Any) -> dict[str, torch.Tensor]:
    """Windows of one to three steps, one of which ends in a termination."""
    if space is DISCRETE:
        batch = replayed(np.array([[0], [2], [1], [0], [2]]))
    else:
        batch = replayed(np.linspace(-2.9, 0.9, 10, dtype=np.float32).reshape(5, 2))
    return batch | {DISCOUNT: torch.tensor([[0.9**3], [0.0], [0.9**2], [0.9], [0.9**3]])}


def linear_mpo(space: Any, **hyper_parameters: Any) -> Any:
    envs = envs_with(space)
    torch.manual_seed(0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    cls: Any = prl.MPODiscrete if space is DISCRETE else prl.MPO
    algorithm = cls.create_factory(**SETTINGS, **hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    for number, network in enumerate((algorithm.pi, algorithm.target_pi, algorithm.target_critics)):
        perturb(network, number, 0.3)
    return algorithm


class NumpyMPO:
    """The losses of one batch, with the actions that the algorithm is about to draw."""

    def __init__(self, algorithm: Any, batch: dict[str, Any]) -> None:
        self.is_discrete = isinstance(algorithm, prl.MPODiscrete)
        self.policy, self.policy_before = layer_of(algorithm.pi.head), layer_of(algorithm.target_pi.head)
        self.critics = [self.critic_layer(critic) for critic in algorithm.critics]
        self.targets = [self.critic_layer(critic) for critic in algorithm.target_critics]
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.log_eta = np.log(np.array([0.7]))
        parts = ["policy"] if self.is_discrete else ["mean", "covariance"]
        self.epsilons = {part: getattr(algorithm, f"epsilon_{part}") for part in parts}
        if not self.is_discrete:
            generator = torch.Generator()
            generator.set_state(algorithm.generator.get_state())
            shape = (algorithm.num_samples, 5, 2)
            noise2, noise = (numpy(torch.empty(shape).normal_(generator=generator)) for _ in range(2))
            self.actions2, self.actions = self.drawn(OBS2, noise2), self.drawn(OBS, noise)

    def critic_layer(self, critic: Any) -> Any:
        head = critic.head
        return (
            [numpy(head.numbers.layer.weight), numpy(head.numbers.layer.bias)] if self.is_discrete else layer_of(head)
        )

    # Parts that differ between the two kinds of action space

    def normal(self, layer: Any, obs: Any) -> tuple[Any, Any]:
        mean, log_std = np.split(linear(layer, obs), 2, axis=1)
        return np.tanh(mean), np.exp(np.clip(log_std - 0.5, -20, 2))  # the initial standard deviation's logarithm

    def drawn(self, key: str, noise: Any) -> Any:
        mean, std = self.normal(self.policy_before, self.batch[key])
        return mean + std * noise

    def log_probs(self, layer: Any, obs: Any) -> Any:
        output = linear(layer, obs)
        return output - np.log(np.exp(output).sum(1, keepdims=True))

    def prior_and_values(self, key: str) -> tuple[Any, Any]:
        """Prior probabilities and values of M actions for each row, (5, M) each."""
        obs = self.batch[key]
        if self.is_discrete:
            prior = np.exp(self.log_probs(self.policy_before, obs))
            return prior, np.min([linear(critic, obs) for critic in self.targets], axis=0)
        actions = np.clip(self.actions2 if key == OBS2 else self.actions, -1, 1)
        values = [[linear(c, np.hstack([obs, drawn]))[:, 0] for drawn in actions] for c in self.targets]
        smallest = np.min(values, axis=0).T
        return np.full_like(smallest, 1 / len(actions)), smallest

    def taken(self, critic: Any) -> Any:
        if self.is_discrete:
            return np.take_along_axis(linear(critic, self.batch[OBS]), self.batch[ACT].astype(int), 1)
        scaled = (self.batch[ACT] + 1) / 2  # the Box is [-3, 1]: middle -1, half range 2
        return linear(critic, np.hstack([self.batch[OBS], scaled]))

    def fit_and_divergence(self, weights: Any) -> dict[str, tuple[float, float]]:
        """For each part, the mean weighted log likelihood and the mean divergence from the target policy."""
        obs = self.batch[OBS]
        if self.is_discrete:
            now, before = self.log_probs(self.policy, obs), self.log_probs(self.policy_before, obs)
            return {"policy": ((weights * now).sum(1).mean(), (np.exp(before) * (before - now)).sum(1).mean())}
        mean, std = self.normal(self.policy, obs)
        mean_before, std_before = self.normal(self.policy_before, obs)
        found = {}
        for name, m, s in (("mean", mean, std_before), ("covariance", mean_before, std)):
            density = (-0.5 * ((self.actions - m) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)).sum(2).T
            kl = np.log(s / std_before) + (std_before**2 + (mean_before - m) ** 2) / (2 * s**2) - 0.5
            found[name] = (weights * density).sum(1).mean(), kl.sum(1).mean()
        return found

    # The losses

    def target(self) -> Any:
        prior, values = self.prior_and_values(OBS2)
        return self.batch[REW] + self.batch[DISCOUNT] * (prior * values).sum(1, keepdims=True)

    def errors(self) -> list[Any]:
        return [self.taken(critic) - self.target() for critic in self.critics]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * error**2).mean() for error in self.errors()))

    def dual(self) -> float:
        eta, (prior, values) = np.exp(self.log_eta[0]), self.prior_and_values(OBS)
        return float(eta * (0.2 + np.log((prior * np.exp(values / eta)).sum(1)).mean()))

    def weights(self) -> Any:
        prior, values = self.prior_and_values(OBS)
        weights = prior * np.exp(values / np.exp(self.log_eta[0]))
        return weights / weights.sum(1, keepdims=True)

    def policy_loss(self) -> float:
        parts = self.fit_and_divergence(self.weights()).values()
        return float(sum(1.5 * kl - likelihood for likelihood, kl in parts))


@pytest.mark.parametrize("space", [SPACE, DISCRETE], ids=["continuous", "discrete"])
def test_losses_and_gradients_equal_those_of_a_numpy_version(space: Any) -> None:
    algorithm, batch = linear_mpo(space), batch_of(space)
    before = copies(batch)
    by_hand = NumpyMPO(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    parts = by_hand.fit_and_divergence(by_hand.weights())
    for name, expected in (
        ("policy_loss", by_hand.policy_loss()),
        ("critic_loss", by_hand.critic_loss()),
        ("eta", 0.7),
        *((f"kl_{name}", kl) for name, (_, kl) in parts.items()),
    ):
        np.testing.assert_allclose(result.metrics[name], expected, rtol=1e-4)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), np.abs(by_hand.errors()).mean(0), rtol=1e-4)

    expectations = {
        "policy.head.layer.weight": numeric_gradient(by_hand.policy_loss, by_hand.policy[0]),
        "policy.head.layer.bias": numeric_gradient(by_hand.policy_loss, by_hand.policy[1]),
        "log_eta.value": numeric_gradient(by_hand.dual, by_hand.log_eta),
    }
    for name, (_, kl) in parts.items():
        expectations[f"log_alpha_{name}.value"] = np.array([1.5 * (by_hand.epsilons[name] - kl)])
    layer = "head.numbers.layer" if by_hand.is_discrete else "head.layer"
    for number, critic in enumerate(by_hand.critics):
        for kind, parameter in zip(("weight", "bias"), critic, strict=True):
            gradient = numeric_gradient(by_hand.critic_loss, parameter)
            expectations[f"critics.networks.{number}.{layer}.{kind}"] = gradient
    assert gradients.keys() == expectations.keys()
    for name, expected in expectations.items():
        np.testing.assert_allclose(numpy(gradients[name]), expected, rtol=1e-3, atol=1e-5, err_msg=name)
    assert all(torch.equal(batch[key], before[key]) for key in before)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("space", [SPACE, DISCRETE], ids=["continuous", "discrete"])
def test_the_temperature_converges_to_weights_with_a_divergence_of_epsilon(space: Any) -> None:
    algorithm, batch = (
        linear_mpo(space, lr_pi=0.0, lr_q=0.0, lr_dual=0.02, target_update_interval=10_000),
        batch_of(space),
    )
    state = algorithm.generator.get_state()
    for _ in range(150):
        algorithm.generator.set_state(state)
        algorithm.update(batch)
    algorithm.generator.set_state(state)
    by_hand = NumpyMPO(algorithm, batch)
    by_hand.log_eta = numpy(algorithm.training.variables["log_eta"])
    weights, (prior, _) = by_hand.weights(), by_hand.prior_and_values(OBS)
    np.testing.assert_allclose((weights * np.log(weights / prior)).sum(1).mean(), 0.2, rtol=0.05)


@pytest.mark.parametrize("head", [prl.heads.GaussianPolicy(bounded_mean=True), prl.heads.SquashedGaussianPolicy()])
def test_actions_stay_in_the_box_with_every_supported_distribution(head: Any) -> None:
    algorithm = linear_mpo(SPACE, distribution=head, start_steps=0)
    obs, done = 100 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(200, 1)
    step = algorithm.acting_step(obs, None, done, exploring(algorithm, 200))
    assert all(SPACE.contains(action) for action in step.env_action.numpy())
    result = algorithm.update(batch_of(SPACE))
    assert all(torch.isfinite(torch.as_tensor(value)).all() for value in result.metrics.values())


def test_unsupported_distributions_and_values_out_of_range_are_refused() -> None:
    for head in (prl.heads.GaussianPolicy(), prl.heads.BetaPolicy(), prl.heads.GSDEPolicy(squash=True)):
        with pytest.raises(ValueError, match=r"MPO: distribution must be a GaussianPolicy\(bounded_mean=True\)"):
            prl.MPO.create_factory(distribution=head)
    for cls, name in (
        (prl.MPO, "epsilon_mean"),
        (prl.MPO, "epsilon_covariance"),
        (prl.MPO, "num_samples"),
        (prl.MPODiscrete, "epsilon_policy"),
        (prl.MPODiscrete, "epsilon"),
        (prl.MPODiscrete, "initial_eta"),
    ):
        with pytest.raises(ValueError, match=f"{cls.__name__}: {name} must be"):
            cls.create_factory(**{name: 0})  # type: ignore[attr-defined]


def test_errors_about_unsupported_action_spaces_name_algorithms_that_support_them() -> None:
    for cls, space, others in ((prl.MPO, DISCRETE, (prl.DQN, prl.PPO)), (prl.MPODiscrete, SPACE, (prl.SAC, prl.PPO))):
        envs = envs_with(space)
        actor = prl.OffPolicyActor.create_factory()("cpu", envs)
        named = " and ".join(other.__name__ for other in others)
        with pytest.raises(prl.UnsupportedSpaceError, match=f"{cls.__name__} needs a .*; {named} "):
            cls.create_factory()("cpu", actor, envs)  # type: ignore[attr-defined]
        for other in others:
            assert issubclass(other, Algorithm)
            other.check_spaces(envs)
