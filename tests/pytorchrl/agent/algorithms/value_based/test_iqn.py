"""IQN's update equals the one computed by hand, at the fractions that it draws."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import ImplicitQuantileValues
from pytorchrl.agent.risk_measures import CVaR, Neutral
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    layer_of,
    linear_values,
    n_step_batch,
    numeric_gradient,
    numpy,
    replayed,
)
from tests.support.comparison import assert_equal

ACTIONS = np.array([[0], [2], [1], [2], [0], [1]])
NUM_ACTIONS, N, N_TARGET, K, COSINES = 3, 4, 3, 5, 2
PARAMETERS = 2
"""Seed of the networks' parameters, with which the quantiles depend on the fractions."""
SIZES = {"num_quantiles": N, "num_target_quantiles": N_TARGET, "num_action_quantiles": K, "num_cosines": COSINES}


def linear_iqn(cls: Any = prl.IQN, **hyper_parameters: Any) -> Any:
    return linear_values(cls, NUM_ACTIONS, **(SIZES | hyper_parameters))


def parameters_of(network: Any) -> list[Any]:
    """Weights and biases of the embedding and of the layer after the product."""
    head = network.head
    return [numpy(head.embedding.weight), numpy(head.embedding.bias), *layer_of(head.numbers)]


def quantiles_of(parameters: list[Any], obs: Any, fractions: Any) -> Any:
    """Equation 4 of the paper and the layer after it: (B, actions, fractions)."""
    weight, bias, behind, behind_bias = parameters
    found = np.zeros((len(obs), NUM_ACTIONS, len(fractions)))
    for n, fraction in enumerate(fractions):
        cosines = np.array([np.cos(np.pi * i * fraction) for i in range(1, COSINES + 1)])
        embedded = np.maximum(weight @ cosines + bias, 0.0)
        for b, row in enumerate(obs):
            found[b, :, n] = behind @ (row * embedded) + behind_bias
    return found


class Draws:
    """The fractions that an update draws, in their order."""

    def __init__(self, algorithm: Any) -> None:
        self._generator = torch.Generator()
        self._generator.set_state(algorithm.actor.generator.get_state())

    def __call__(self, count: int) -> Any:
        within = torch.empty(count).uniform_(generator=self._generator)
        return numpy((torch.arange(count) + within) / count)


def quantile_loss(quantiles: Any, fractions: Any, target: Any, kappa: float) -> float:
    """Equation 3 of the paper, pair by pair of quantiles."""
    total = 0.0
    for quantile, fraction in zip(quantiles, fractions, strict=True):
        for value in target:
            error = value - quantile
            huber = error**2 / 2 if abs(error) <= kappa else kappa * (abs(error) - kappa / 2)
            total += abs(fraction - (error < 0)) * huber / kappa / len(target)
    return total


class NumpyIQN:
    """The loss of one batch."""

    def __init__(self, algorithm: Any, batch: dict[str, Any]) -> None:
        self.online, self.target = parameters_of(algorithm.q), parameters_of(algorithm.q_target)
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.kappa, self.draw = algorithm.kappa, Draws(algorithm)
        self.targets = self.target_quantiles(algorithm)
        self.fractions = self.draw(N)

    def target_quantiles(self, algorithm: Any) -> Any:
        obs2, eta = self.batch[OBS2], getattr(algorithm.risk, "eta", 1.0)
        chooses = quantiles_of(self.online if algorithm.double else self.target, obs2, eta * self.draw(K))
        quantiles = quantiles_of(self.target, obs2, self.draw(N_TARGET))
        chosen = quantiles[np.arange(len(obs2)), chooses.mean(2).argmax(1)]
        return self.batch[REW] + self.batch[DISCOUNT] * chosen

    def of_actions(self) -> Any:
        return quantiles_of(self.online, self.batch[OBS], self.fractions)[np.arange(len(ACTIONS)), ACTIONS[:, 0]]

    def losses(self) -> Any:
        pairs = zip(self.of_actions(), self.targets, strict=True)
        return np.array([[quantile_loss(one, self.fractions, target, self.kappa)] for one, target in pairs])

    def loss(self) -> float:
        return float((self.batch[WEIGHTS] * self.losses()).mean())


def check_update(algorithm: Any, by_hand: NumpyIQN, batch: dict[str, Any]) -> None:
    """Loss, errors and gradients of a batch are those by hand, and the batch stays as it is."""
    before = copies(batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), by_hand.losses(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.metrics["q_value"], by_hand.of_actions().mean(), rtol=1e-4)
    names = ["embedding.weight", "embedding.bias", "numbers.layer.weight", "numbers.layer.bias"]
    assert sorted(gradients) == sorted(f"q.head.{name}" for name in names)
    for name, parameter in zip(names, by_hand.online, strict=True):
        expected = numeric_gradient(by_hand.loss, parameter)
        assert expected.any(), "the quantiles depend on the fractions"
        np.testing.assert_allclose(numpy(gradients[f"q.head.{name}"]), expected, rtol=2e-3, atol=1e-4)
    assert all(torch.equal(batch[key], before[key]) for key in before)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("kappa", "risk"), [(1.0, Neutral()), (0.3, Neutral()), (1.0, CVaR(0.2))])
def test_an_update_equals_the_one_computed_by_hand(kappa: float, risk: Any, double: bool) -> None:
    algorithm = linear_iqn(kappa=kappa, risk=risk, double=double, max_grad_norm=None)
    batch = n_step_batch(ACTIONS)
    by_hand = NumpyIQN(algorithm, batch)
    of_the_other = NumpyIQN(linear_iqn(double=not double, risk=risk), batch)
    assert not np.allclose(by_hand.targets, of_the_other.targets), (
        "targets with and without double differ in this batch"
    )
    check_update(algorithm, by_hand, batch)


def test_deterministic_acting_uses_midpoint_fractions_and_draws_no_random_numbers() -> None:
    algorithm = linear_iqn(start_steps=0, risk=CVaR(0.25))
    states = [generator.get_state() for generator in algorithm._generators()]
    obs, done = torch.randn(100, 3), torch.zeros(100, 1)
    exploration = exploring(algorithm, 100, deterministic=True)
    step = algorithm.acting_step(obs, None, done, exploration)
    means = quantiles_of(parameters_of(algorithm.q), numpy(obs), 0.25 * (np.arange(K) + 0.5) / K).mean(2)
    np.testing.assert_array_equal(step.action[:, 0], means.argmax(1))
    assert torch.equal(exploration.generator.get_state(), exploring(algorithm, 100).generator.get_state())
    assert_equal([generator.get_state() for generator in algorithm._generators()], states)


def test_exploration_draws_fractions_from_its_own_generator_only() -> None:
    algorithm = linear_iqn(start_steps=0, epsilon=0.0)
    states = [generator.get_state() for generator in algorithm._generators()]
    obs, done = torch.randn(300, 3), torch.zeros(300, 1)
    exploration, again = (exploring(algorithm, 300) for _ in range(2))
    fractions = (np.arange(K) + numpy(torch.empty(K).uniform_(generator=exploring(algorithm, 300).generator))) / K
    first = algorithm.acting_step(obs, None, done, exploration).action
    drawn = exploration.generator.get_state()
    algorithm.acting_step(obs, None, done, exploration)
    means = quantiles_of(parameters_of(algorithm.q), numpy(obs), fractions).mean(2)
    np.testing.assert_array_equal(first[:, 0], means.argmax(1))
    assert not torch.equal(exploration.generator.get_state(), drawn)
    assert torch.equal(algorithm.acting_step(obs, None, done, again).action, first)
    assert_equal([generator.get_state() for generator in algorithm._generators()], states)


def test_the_risk_measure_decides_between_a_certain_and_a_larger_uncertain_reward() -> None:
    sizes = {"num_quantiles": 16, "num_target_quantiles": 1, "num_action_quantiles": 32, "num_cosines": 8}
    body = {"hidden_sizes": (16,)}
    schedule = prl.LinearSchedule(0.02, 0.0)
    neutral = linear_iqn(actor=body, lr=schedule, kappa=0.1, max_grad_norm=None, **sizes)
    random = np.random.default_rng(0)
    for number in range(200):
        neutral.set_progress(number, 200)
        action = random.integers(2, size=(64, 1))
        batch = replayed(action)
        batch[DISCOUNT].zero_()
        batch[OBS].fill_(1.0)
        batch[WEIGHTS].fill_(1.0)
        uncertain = random.choice([0.0, 3.0], size=(64, 1))
        batch[REW] = torch.from_numpy(np.where(action == 1, uncertain, 1.0).astype(np.float32))
        neutral.update(batch)
    # The quantiles learnt can be used with another risk measure.
    averse = linear_iqn(actor=body, risk=CVaR(0.25), **sizes)
    averse.set_weights(neutral.get_weights())
    values = [one.policy(one.actor.view(torch.ones(1, 3)), exploring(one, 1)) for one in (neutral, averse)]
    assert all(isinstance(one, ImplicitQuantileValues) for one in values)
    assert [one.values[0, :2].argmax().item() for one in values] == [1, 0]
    low, high = values[0].at(torch.tensor([0.2, 0.8])).quantiles[0, :2].detach().unbind(1)
    torch.testing.assert_close(torch.stack([low, high]), torch.tensor([[1.0, 0.0], [1.0, 3.0]]), atol=0.8, rtol=0)


@pytest.mark.parametrize(
    ("cls", "interval", "falls_within"), [(prl.IQN, 2_500, 1_000_000), (prl.MunchausenIQN, 2_000, 250_000)]
)
def test_the_papers_preset_has_the_papers_hyper_parameters_and_network(
    cls: Any, interval: int, falls_within: int
) -> None:
    preset = cls.paper(capacity=80_000, num_envs=8)
    given = preset["algo_factory"].hyper_parameters
    expected = {
        "num_quantiles": 64,
        "num_target_quantiles": 64,
        "num_action_quantiles": 32,
        "kappa": 1.0,
        "lr": 5e-5,
        "optimizer": prl.Adam(eps=0.01 / 32),
        "gamma": 0.99,
        "start_steps": 20_000,
        "update_every": 4,
        "mini_batch_size": 32,
        "polyak": 0.0,
        "target_update_interval": interval,
        "max_grad_norm": None,
    }
    assert {name: given[name] for name in expected} == expected
    assert given.get("double", False) is False
    # The schedule counts transitions; the length of the run does not matter.
    at = [0, 20_000, 20_000 + falls_within // 2, 20_000 + falls_within, 50_000_000]
    assert [given["epsilon"].at(steps, 7) for steps in at] == pytest.approx([1.0, 1.0, 0.505, 0.01, 0.01])
    assert preset["storage_factory"].hyper_parameters["size"] == 10_000
    envs = envs_with(spaces.Discrete(6))
    envs.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    with torch.device("meta"):
        algorithm = preset["algo_factory"]("meta", preset["actor_factory"]("meta", envs), envs)
    shapes = {name: tuple(parameter.shape) for name, parameter in algorithm.q.head.named_parameters()}
    assert shapes["embedding.weight"] == (3136, 64)
    assert shapes["hidden.layers.0.weight"] == (512, 3136)
    assert shapes["numbers.layer.weight"] == (6, 512)


@pytest.mark.parametrize(
    ("actor", "settings"),
    [
        ({}, {}),
        ({"dueling": True, "hidden_sizes": (4,)}, {}),
        ({}, {"quantile_layers": (4,)}),
    ],
    ids=["linear", "dueling", "hidden"],
)
def test_the_next_action_is_chosen_by_the_noise_that_evaluates_it(actor: Any, settings: Any) -> None:
    algorithm = linear_iqn(actor={"noisy": True, **actor}, **settings)
    view, fractions = algorithm.actor.view(n_step_batch(ACTIONS)[OBS]), torch.tensor([0.1, 0.7])
    for network in (algorithm.q, algorithm.q_target):
        values = network(view)
        first = values.at(fractions).values
        # Means, mixtures and single quantiles are computed in different ways.
        torch.testing.assert_close(values.function.means(values.features, fractions), first)
        of_one = values.function.mixed(values.features, fractions, torch.eye(NUM_ACTIONS)[[1] * len(first)])
        torch.testing.assert_close(of_one.mean(1), first[:, 1])
        assert not torch.allclose(network(view).at(fractions).values, first)
