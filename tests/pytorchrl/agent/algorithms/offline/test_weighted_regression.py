"""Losses and gradients of IQL, XQL, AWAC and CRR equal those of slow numpy loops over rows and drawn actions."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS, WINDOW
from tests.support.by_hand import copies, layer_of, linear, numeric_gradient, numpy
from tests.support.soft_critics import drawn, made, n_step_batch

ROWS, SIZE, FLOOR = 5, 2, -5.0


class ByHand:
    """The losses of one batch, row by row, with the noise that the algorithm is about to draw."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.algorithm = algorithm
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.taken = (self.batch[ACT] + 1) / 2  # the Box is [-3, 1]: middle -1, half range 2
        self.policy = layer_of(algorithm.pi.head)
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        self.target_critics = [layer_of(critic.head) for critic in algorithm.target_critics]
        self.value = layer_of(algorithm.value.head) if hasattr(algorithm, "value") else None
        self.target_policy = layer_of(algorithm.target_pi.head) if hasattr(algorithm, "target_pi") else self.policy
        self.log_std = numpy(algorithm.pi.head.log_std) if hasattr(algorithm.pi.head, "log_std") else None
        self.prepare()
        # Targets and weights are constants for the gradients: they are computed before differentiating.
        self.targets = [self.batch[REW][r, 0] + self.batch[DISCOUNT][r, 0] * self.next_value(r) for r in range(ROWS)]
        self.weights = self.make_weights()

    def prepare(self) -> None:
        """Draw the noise of the next update."""

    def next_value(self, row: int) -> float:
        raise NotImplementedError

    def advantage(self, row: int) -> float:
        raise NotImplementedError

    def make_weights(self) -> list[float]:
        raise NotImplementedError

    def normal(self, layer: Any, obs: Any) -> tuple[Any, Any]:
        """Mean and logarithm of the standard deviation."""
        output = linear(layer, obs)
        mean, log_std = (output, self.log_std) if self.log_std is not None else np.split(output, 2)
        assert log_std is not None
        return np.tanh(mean), FLOOR + np.log1p(np.exp(log_std - FLOOR))

    def draw(self, layer: Any, obs: Any, noise: Any) -> Any:
        mean, log_std = self.normal(layer, obs)
        return np.clip(mean + np.exp(log_std) * noise, -1, 1)

    def smallest(self, critics: Any, obs: Any, action: Any) -> float:
        return float(min(linear(critic, np.concatenate([obs, action]))[0] for critic in critics))

    def critic_loss(self) -> float:
        total = 0.0
        for row, target in enumerate(self.targets):
            for critic in self.critics:
                value = linear(critic, np.concatenate([self.batch[OBS][row], self.taken[row]]))[0]
                total += self.batch[WEIGHTS][row, 0] * 0.5 * (value - target) ** 2
        return total / ROWS

    def errors(self) -> list[float]:
        rows = [np.concatenate([self.batch[OBS][row], self.taken[row]]) for row in range(ROWS)]
        return [
            float(np.mean([abs(linear(critic, rows[row])[0] - target) for critic in self.critics]))
            for row, target in enumerate(self.targets)
        ]

    def policy_loss(self) -> float:
        total = 0.0
        for row in range(ROWS):
            mean, log_std = self.normal(self.policy, self.batch[OBS][row])
            for number in range(SIZE):
                deviation = (self.taken[row, number] - mean[number]) / np.exp(log_std[number])
                log_density = -0.5 * deviation**2 - log_std[number] - 0.5 * np.log(2 * np.pi)
                total -= self.weights[row] * log_density
        return total / ROWS


class NumpyIQL(ByHand):
    def next_value(self, row: int) -> float:
        return float(linear(self.value, self.batch[OBS2][row])[0])

    def advantage(self, row: int) -> float:
        obs = self.batch[OBS][row]
        return self.smallest(self.target_critics, obs, self.taken[row]) - float(linear(self.value, obs)[0])

    def make_weights(self) -> list[float]:
        one = self.algorithm
        return [min(np.exp(one.inverse_temperature * self.advantage(row)), one.max_weight) for row in range(ROWS)]

    def value_loss(self) -> float:
        total = 0.0
        for row in range(ROWS):
            difference = self.advantage(row)
            side = abs(self.algorithm.expectile - (1 if difference < 0 else 0))
            total += self.batch[WEIGHTS][row, 0] * side * difference**2
        return total / ROWS


class NumpyXQL(NumpyIQL):
    def prepare(self) -> None:
        # A constant for the gradients.
        self.shift = max(-1.0, *(self.error(row) for row in range(ROWS)))

    def error(self, row: int) -> float:
        error = self.advantage(row) / self.algorithm.value_temperature
        return error if self.algorithm.max_clip is None else min(error, self.algorithm.max_clip)

    def value_loss(self) -> float:
        total = 0.0
        for row in range(ROWS):
            loss = np.exp(self.error(row)) - self.error(row) - 1
            total += self.batch[WEIGHTS][row, 0] * loss / np.exp(self.shift)
        return total / ROWS


class NumpySampled(ByHand):
    """Advantages are relative to sampled actions of the policy."""

    def prepare(self) -> None:
        number = self.algorithm.num_samples
        shapes = [(ROWS, SIZE), (number, ROWS, SIZE)]
        draws = [lambda g, shape=shape: torch.empty(shape).normal_(generator=g) for shape in shapes]
        self.noise2, self.noise = drawn(self.algorithm.generator, draws)

    def next_value(self, row: int) -> float:
        obs2 = self.batch[OBS2][row]
        return self.smallest(self.target_critics, obs2, self.draw(self.target_policy, obs2, self.noise2[row]))

    def advantage(self, row: int) -> float:
        obs = self.batch[OBS][row]
        values = [self.smallest(self.critics, obs, self.draw(self.policy, obs, each[row])) for each in self.noise]
        return self.smallest(self.critics, obs, self.taken[row]) - self.baseline(values)

    def baseline(self, values: list[float]) -> float:
        return sum(values) / len(values)


class NumpyAWAC(NumpySampled):
    def make_weights(self) -> list[float]:
        powers = [np.exp(self.advantage(row) / self.algorithm.temperature) for row in range(ROWS)]
        return [power / np.mean(powers) for power in powers]


class NumpyCRR(NumpySampled):
    def baseline(self, values: list[float]) -> float:
        return max(values) if self.algorithm.compared_with == "max" else super().baseline(values)

    def make_weights(self) -> list[float]:
        one, advantages = self.algorithm, [self.advantage(row) for row in range(ROWS)]
        if one.weighting == "binary":
            return [1.0 if advantage > 0 else 0.0 for advantage in advantages]
        return [min(np.exp(advantage / one.temperature), one.max_weight) for advantage in advantages]


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "IQL": (prl.IQL, NumpyIQL, {}),
    "IQL, clipped": (prl.IQL, NumpyIQL, {"max_weight": 0.9, "expectile": 0.9, "inverse_temperature": 1.0}),
    "IQL, the mean": (prl.IQL, NumpyIQL, {"expectile": 0.5, "inverse_temperature": 0.0, "num_critics": 1}),
    "XQL": (prl.XQL, NumpyXQL, {}),
    "XQL, clipped": (prl.XQL, NumpyXQL, {"value_temperature": 0.3, "max_clip": 1.5, "max_weight": 0.9}),
    "XQL, not clipped": (prl.XQL, NumpyXQL, {"value_temperature": 0.05, "max_clip": None, "num_critics": 1}),
    "AWAC": (prl.AWAC, NumpyAWAC, {}),
    "AWAC, several actions": (prl.AWAC, NumpyAWAC, {"num_samples": 3, "temperature": 0.4}),
    "CRR": (prl.CRR, NumpyCRR, {}),
    "CRR, clipped": (prl.CRR, NumpyCRR, {"max_weight": 1.1, "temperature": 0.5, "num_critics": 2}),
    "CRR, max": (prl.CRR, NumpyCRR, {"compared_with": "max"}),
    "CRR, binary": (prl.CRR, NumpyCRR, {"weighting": "binary"}),
    "CRR, binary max": (prl.CRR, NumpyCRR, {"weighting": "binary", "compared_with": "max", "num_samples": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(name: str) -> None:
    cls, numpy_version, hyper_parameters = CASES[name]
    algorithm = made(cls, **hyper_parameters)
    batch = n_step_batch()
    before = copies(batch)
    by_hand = numpy_version(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], by_hand.policy_loss(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(numpy(result.info[ERRORS])[:, 0], by_hand.errors(), rtol=1e-4)
    checked = 0

    def check(name: str, loss: Any, parameter: Any) -> None:
        nonlocal checked
        expected = numeric_gradient(loss, parameter)
        np.testing.assert_allclose(numpy(gradients[name]), expected, rtol=2e-3, atol=1e-4, err_msg=name)
        checked += 1

    for part, kind in enumerate(("weight", "bias")):
        check(f"policy.head.layer.{kind}", by_hand.policy_loss, by_hand.policy[part])
        for number, critic in enumerate(by_hand.critics):
            check(f"critics.networks.{number}.head.layer.{kind}", by_hand.critic_loss, critic[part])
        if by_hand.value is not None:
            check(f"value.head.layer.{kind}", by_hand.value_loss, by_hand.value[part])
    if by_hand.log_std is not None:
        check("policy.head.log_std", by_hand.policy_loss, by_hand.log_std)
    assert checked == len(gradients)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_padding_does_not_affect_awacs_weights() -> None:
    algorithm = made(prl.AWAC)
    batch = {key: value.view(1, ROWS, *value.shape[1:]) for key, value in n_step_batch().items() if key != WEIGHTS}
    batch |= {WEIGHTS: torch.ones(ROWS, 1), WINDOW: torch.ones(1, ROWS, 1), MASK: torch.ones(1, ROWS, 1)}
    batch[MASK][0, 3:] = 0
    rows = algorithm.read(batch)
    advantage = torch.tensor([[0.0], [1.0], [2.0], [90.0], [-90.0]])
    weights = numpy(algorithm.weights(advantage, rows))[:, 0]
    powers = np.exp([0.0, 1.0, 2.0])
    np.testing.assert_allclose(weights, [*(powers / powers.mean()), 0, 0], rtol=1e-5)


@pytest.mark.parametrize("cls", [prl.IQL, prl.XQL, prl.AWAC, prl.CRR])
def test_distributions_of_unscaled_actions_are_refused(cls: Any) -> None:
    with pytest.raises(ValueError, match=rf"{cls.__name__}: distribution must be of scaled actions.*GaussianPolicy"):
        cls.create_factory(distribution=prl.heads.GaussianPolicy())


@pytest.mark.quick_share(0.3, long=0.6)
@pytest.mark.parametrize(
    "distribution", [prl.heads.SquashedGaussianPolicy(), prl.heads.BetaPolicy(), prl.heads.GSDEPolicy(3, squash=True)]
)
@pytest.mark.parametrize("cls", [prl.IQL, prl.XQL, prl.AWAC, prl.CRR])
def test_other_distributions_of_scaled_actions_make_the_datas_actions_more_likely(cls: Any, distribution: Any) -> None:
    algorithm, batch = made(cls, distribution=distribution, num_critics=2, lr_pi=1e-2), n_step_batch()
    likelihoods = []
    for _ in range(30):
        rows = algorithm.read(batch)
        likelihoods.append(algorithm.pi(rows.now).log_prob(rows.action).mean().item())
        algorithm.update(batch)
    assert likelihoods[-1] > likelihoods[0] + 0.1


def test_a_standard_deviation_stays_above_its_bound_and_can_rise_again() -> None:
    algorithm = made(prl.IQL, inverse_temperature=0.0, lr_pi=0.3)
    batch = n_step_batch()
    with torch.no_grad():
        for parameter in algorithm.pi.head.layer.parameters():
            parameter.zero_()
    batch[ACT].fill_(-1.0)  # the middle of the Box, which is the policy's mean already
    for _ in range(100):
        algorithm.update(batch)
    log_std = algorithm.pi(algorithm.read(batch).now).log_std
    assert (log_std > FLOOR).all()
    assert (log_std < FLOOR + 0.01).all()
    batch[ACT][:2] = 1.0
    for _ in range(100):
        algorithm.update(batch)
    assert (algorithm.pi(algorithm.read(batch).now).log_std > FLOOR + 1).all()
