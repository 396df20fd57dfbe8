"""NAF's update equals the one computed by hand, and its maximum is taken within the bounds of actions."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import QuadraticValues
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    n_step_batch,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)

SIZE = 3
SPACE = spaces.Box(np.array([-3, 0, -1], np.float32), np.array([1, 4, 1], np.float32))
ACTIONS = np.random.default_rng(5).uniform(SPACE.low, SPACE.high, (6, SIZE)).astype(np.float32)


def linear_naf(dueling: bool = False, **hyper_parameters: Any) -> prl.NAF:
    envs = envs_with(SPACE)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(), dueling=dueling)("cpu", envs)
    algorithm = prl.NAF.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(algorithm.q, 1, 0.5)
    perturb(algorithm.q_target, 2, 0.5)
    return algorithm


class ByHand:
    """Equations 2 and 3 of the paper, row by row and number by number."""

    def __init__(self, algorithm: prl.NAF, batch: dict[str, Any]) -> None:
        self.online, self.target = (layer_of(net.head.numbers) for net in (algorithm.q, algorithm.q_target))
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.squash, self.min_log_diagonal = algorithm.squash, algorithm.min_log_diagonal
        self.actions = 2 * (self.batch[ACT] - SPACE.low) / (SPACE.high - SPACE.low) - 1
        targets = []
        for row, obs in enumerate(self.batch[OBS2]):
            value, peak, matrix = self.parts(self.target, obs)
            best = np.clip(peak, -1, 1)
            after = value - 0.5 * (best - peak) @ matrix @ (best - peak)
            targets.append(self.batch[REW][row, 0] + self.batch[DISCOUNT][row, 0] * after)
        self.targets = np.array(targets)

    def parts(self, layer: Any, obs: Any) -> tuple[float, Any, Any]:
        """V, the peak and P of one observation."""
        numbers = list(linear(layer, obs))
        value = numbers.pop(0)
        peak = np.array([numbers.pop(0) for _ in range(SIZE)])
        factor = np.zeros((SIZE, SIZE))
        for i in range(SIZE):
            factor[i, i] = np.exp(self.bounded(numbers.pop(0)))
        for i in range(SIZE):
            for j in range(i):
                factor[i, j] = numbers.pop(0)
        assert not numbers
        return value, np.tanh(peak) if self.squash else peak, factor @ factor.T

    def bounded(self, log_diagonal: float) -> float:
        low = self.min_log_diagonal
        return log_diagonal if low is None else low + np.log1p(np.exp(log_diagonal - low))

    def values(self) -> Any:
        values = []
        for obs, action in zip(self.batch[OBS], self.actions, strict=True):
            value, peak, matrix = self.parts(self.online, obs)
            values.append(value - 0.5 * (action - peak) @ matrix @ (action - peak))
        return np.array(values)

    def loss(self) -> float:
        return float((self.batch[WEIGHTS][:, 0] * (self.values() - self.targets) ** 2 / 2).mean())


@pytest.mark.parametrize(("squash", "min_log_diagonal"), [(True, None), (False, None), (False, -0.5)])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_an_update_equals_the_one_computed_by_hand(
    squash: bool, min_log_diagonal: float | None, max_grad_norm: float | None
) -> None:
    algorithm = linear_naf(
        lr=0.01, squash=squash, min_log_diagonal=min_log_diagonal, max_grad_norm=max_grad_norm, polyak=0.8
    )
    batch = n_step_batch(ACTIONS)
    before = copies(batch)
    by_hand = ByHand(algorithm, batch)
    expected = [numeric_gradient(by_hand.loss, part) for part in by_hand.online]

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["q_value"], by_hand.values().mean(), rtol=1e-4)
    errors = np.abs(by_hand.values() - by_hand.targets)[:, None]
    np.testing.assert_allclose(numpy(result.info[ERRORS]), errors, rtol=1e-4)
    for part, gradient in zip(("weight", "bias"), expected, strict=True):
        np.testing.assert_allclose(numpy(gradients[f"q.head.numbers.layer.{part}"]), gradient, rtol=1e-3, atol=1e-4)

    algorithm.update(batch)
    if max_grad_norm is not None:
        norm = np.sqrt(sum((gradient**2).sum() for gradient in expected))
        assert norm > max_grad_norm
        expected = [gradient * max_grad_norm / norm for gradient in expected]
    layers = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
    for online, target, online_before, target_before, gradient in zip(
        *layers, by_hand.online, by_hand.target, expected, strict=True
    ):
        np.testing.assert_allclose(online, online_before + first_adam_step(gradient, 0.01), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(target, 0.8 * target_before + 0.2 * online, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)
    assert all(parameter.grad is None for parameter in algorithm.q_target.parameters())


def outputs(squash: bool) -> QuadraticValues:
    algorithm = linear_naf(squash=squash)
    values = algorithm.q(algorithm.actor.view(4 * torch.randn(200, 3, generator=torch.Generator().manual_seed(3))))
    assert isinstance(values, QuadraticValues)
    return values


@pytest.mark.parametrize("squash", [True, False])
def test_the_best_value_is_that_of_the_greedy_action_within_the_bounds(squash: bool) -> None:
    values = outputs(squash)
    greedy, best = values.greedy(), values.best().mean
    assert (greedy.abs() <= 1).all()
    torch.testing.assert_close(best, values.of(greedy).mean)
    assert (best <= values.state_value).all()
    beyond = (values.peak.abs() > 1).any(1)
    assert beyond.any() != squash
    assert (best < values.state_value)[beyond].all(), "no action reaches V where the peak lies beyond the bounds"
    torch.testing.assert_close(best[~beyond], values.state_value[~beyond])
    advantage = values.advantage(torch.zeros_like(greedy))
    torch.testing.assert_close(advantage, values.of(torch.zeros_like(greedy)).mean - best)


def test_no_action_is_better_than_a_peak_within_the_bounds() -> None:
    values = outputs(squash=True)
    generator = torch.Generator().manual_seed(4)
    for _ in range(20):
        action = torch.rand((200, SIZE), generator=generator) * 2 - 1
        assert (values.of(action).mean <= values.best().mean).all()


@pytest.mark.parametrize("squash", [True, False])
def test_gradients_reach_every_weight_of_both_streams_of_a_dueling_network(squash: bool) -> None:
    algorithm = linear_naf(dueling=True, squash=squash)
    gradients, _ = algorithm.compute_gradients(n_step_batch(ACTIONS))
    assert len(gradients) == 8
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())


def gradients_of_peaks(**hyper_parameters: Any) -> torch.Tensor:
    """Gradients of the peaks' biases, with values that hardly depend on the action."""
    algorithm = linear_naf(max_grad_norm=None, **hyper_parameters)
    numbers = algorithm.q.head.numbers.layer
    with torch.no_grad():
        diagonal_and_below = slice(1 + SIZE, None)
        numbers.weight[diagonal_and_below] = 0
        numbers.bias[diagonal_and_below] = 0
        numbers.bias[1 + SIZE : 1 + 2 * SIZE] = -20
    gradients, _ = algorithm.compute_gradients(n_step_batch(ACTIONS))
    return gradients["q.head.numbers.layer.bias"][1 : 1 + SIZE]


def test_flat_values_give_peaks_no_gradient_unless_the_diagonal_has_a_bound() -> None:
    assert gradients_of_peaks().abs().max() < 1e-12
    assert gradients_of_peaks(min_log_diagonal=-1.5).abs().min() > 1e-4


def test_actions_stay_in_the_box_and_evaluation_adds_no_noise() -> None:
    algorithm = linear_naf(start_steps=0, exploration_noise=0.5)
    obs, done = torch.randn(300, 3), torch.zeros(300, 1)
    step = algorithm.acting_step(obs, None, done, exploring(algorithm, 300))
    assert all(SPACE.contains(action) for action in step.env_action.numpy())
    best = algorithm.acting_step(obs, None, done, exploring(algorithm, 300, deterministic=True)).action
    assert not torch.equal(step.action, best)
    torch.testing.assert_close(algorithm.codec.from_storage(best), algorithm.q(algorithm.actor.view(obs)).greedy())


def test_the_best_one_dimensional_action_is_learnt() -> None:
    envs = envs_with(spaces.Box(-2.0, 2.0, (1,), np.float32))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.NAF.create_factory(lr=0.05)("cpu", actor, envs)
    batch = replayed(np.linspace(-2, 2, 9, dtype=np.float32)[:, None])
    batch |= {OBS: torch.zeros(9, 3), DISCOUNT: torch.zeros(9, 1), REW: -(batch[ACT] - 1).square()}
    for _ in range(150):
        algorithm.update(batch)
    step = algorithm.acting_step(batch[OBS][:1], None, torch.ones(1, 1), exploring(algorithm, 1, deterministic=True))
    assert step.env_action.item() == pytest.approx(1.0, abs=0.05)


def test_unsupported_spaces_explorers_and_changes_are_refused() -> None:
    envs = envs_with(spaces.Discrete(3))
    actor = prl.OffPolicyActor.create_factory()("cpu", envs)
    with pytest.raises(prl.UnsupportedSpaceError, match="NAF needs a Box action space"):
        prl.NAF.create_factory()("cpu", actor, envs)
    with pytest.raises(TypeError, match="NAF: Boltzmann needs values of discrete actions"):
        linear_naf(explorer=prl.Boltzmann(1.0))
    with pytest.raises(ValueError, match="squash is fixed"):
        linear_naf().update_algorithm_parameter("squash", True)
