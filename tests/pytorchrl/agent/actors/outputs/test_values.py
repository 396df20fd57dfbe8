"""Action values agree with slow numpy loops: expected returns, quantiles and probabilities of atoms."""

import math

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from pytorchrl.agent.actors.outputs import (
    ActionValues,
    CategoricalValue,
    CategoricalValues,
    QuantileValue,
    QuantileValues,
    RescaledValues,
    ScalarValue,
    ScalarValues,
    quantile_midpoints,
)
from pytorchrl.agent.actors.outputs.expected_returns import rescaled
from tests.support.profiles import examples

B, NUM_ACTIONS, ATOMS = 5, 3, 7
SUPPORT = torch.linspace(-3, 3, ATOMS)
DOUBLE_SUPPORT = SUPPORT.double()
few = settings(max_examples=examples(60), deadline=None)
numbers = st.floats(-5, 5)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def matrix(rows: int, columns: int) -> st.SearchStrategy[np.ndarray]:
    return arrays.arrays(np.float64, (rows, columns), elements=numbers)


def all_kinds(seed: int = 0) -> list[ActionValues]:
    return [
        ScalarValues(randn(B, NUM_ACTIONS, seed=seed)),
        ScalarValues(randn(B, NUM_ACTIONS, seed=seed), huber_threshold=None),
        QuantileValues(randn(B, NUM_ACTIONS, 11, seed=seed), quantile_midpoints(11)),
        CategoricalValues(SUPPORT, randn(B, NUM_ACTIONS, ATOMS, seed=seed)),
        RescaledValues(3 * randn(B, NUM_ACTIONS, seed=seed), eps=0.1),
    ]


every_kind = pytest.mark.parametrize("kind", range(5), ids=["huber", "squared", "quantiles", "atoms", "rescaled"])


@every_kind
def test_actions_are_compared_by_their_expected_returns(kind: int) -> None:
    values, action = all_kinds()[kind], torch.tensor([[0], [2], [1], [1], [0]])
    assert values.values.shape == (B, NUM_ACTIONS)
    greedy = values.greedy()
    assert torch.equal(greedy, values.values.argmax(1, keepdim=True))
    torch.testing.assert_close(values.of(action).mean, values.values.gather(1, action))
    torch.testing.assert_close(values.best().mean, values.values.max(1, keepdim=True).values)
    torch.testing.assert_close(values.advantage(action), values.of(action).mean - values.best().mean)
    assert (values.advantage(greedy) == 0).all()


@every_kind
def test_the_value_of_a_policy_is_the_expectation_over_its_actions(kind: int) -> None:
    values, probabilities = all_kinds()[kind], randn(B, NUM_ACTIONS, seed=1).softmax(1)
    expected = values.expectation(probabilities)
    torch.testing.assert_close(expected.mean, (probabilities * values.values).sum(1, keepdim=True))
    certain = torch.eye(NUM_ACTIONS)[1].expand(B, NUM_ACTIONS)
    one = values.of(torch.ones(B, 1, dtype=torch.int64))
    torch.testing.assert_close(values.expectation(certain).mean, one.mean)
    # The expectation has losses like any other value.
    assert values.best().loss(expected).shape == (B, 1)
    assert expected.loss(one).isfinite().all()


@every_kind
def test_a_backup_discounts_the_return_and_adds_the_reward(kind: int) -> None:
    value = all_kinds()[kind].best()
    reward, discount = 0.1 * randn(B, 1, seed=2), torch.tensor([[0.9], [0.5], [0.0], [0.9], [0.0]])
    backed_up = value.backup(reward, discount)
    torch.testing.assert_close(backed_up.mean, reward + discount * value.mean)
    assert type(backed_up) is type(value)


@every_kind
def test_the_weighted_loss_sums_weighted_losses_and_returns_their_errors(kind: int) -> None:
    value, target = all_kinds()[kind].best(), all_kinds(1)[kind].best()
    weight = randn(B, 1, seed=3).abs()
    loss, error = value.weighted_loss(weight, target)
    torch.testing.assert_close(loss, (weight * value.loss(target)).sum())
    torch.testing.assert_close(error, value.error(target))
    magnitude = (value.mean - target.mean).abs() if kind < 2 else value.loss(target)
    if kind == 4:
        magnitude = (rescaled(value.mean, 0.1) - rescaled(target.mean, 0.1)).abs()
    torch.testing.assert_close(error, magnitude)
    shared, _ = value.weighted_loss(torch.tensor([[0.25]]).expand(B, 1), target)
    torch.testing.assert_close(shared, 0.25 * value.loss(target).sum())


@every_kind
def test_losses_have_gradients_and_errors_and_detached_values_have_none(kind: int) -> None:
    shapes = [(NUM_ACTIONS,), (NUM_ACTIONS,), (NUM_ACTIONS, 11), (NUM_ACTIONS, ATOMS), (NUM_ACTIONS,)]
    parameters = [randn(B, *shape) for shape in shapes]
    leaf = parameters[kind].requires_grad_()
    values: list[ActionValues] = [
        ScalarValues(leaf),
        ScalarValues(leaf, None),
        QuantileValues(leaf, quantile_midpoints(11)),
        CategoricalValues(SUPPORT, leaf),
        RescaledValues(leaf, eps=0.1),
    ][kind : kind + 1]
    action, target = torch.tensor([[0], [2], [1], [1], [0]]), all_kinds(1)[kind].best()
    value = values[0].of(action)
    loss, error = value.weighted_loss(torch.ones(B, 1), target)
    loss.backward()
    assert leaf.grad is not None
    touched = leaf.grad.reshape(B, NUM_ACTIONS, -1).abs().sum(2) > 0
    assert torch.equal(touched, torch.nn.functional.one_hot(action[:, 0], NUM_ACTIONS).bool())
    assert not error.requires_grad
    assert not value.error(target).requires_grad
    assert value.mean.requires_grad
    detached = value.detach()
    assert not detached.mean.requires_grad
    assert not detached.loss(target).requires_grad
    torch.testing.assert_close(detached.mean, value.mean)
    mixed = values[0].expectation(torch.full((B, NUM_ACTIONS), 1 / NUM_ACTIONS))
    assert mixed.mean.requires_grad
    assert not mixed.detach().mean.requires_grad


@few
@given(matrix(4, 1), matrix(4, 1), st.floats(0.1, 3) | st.none())
def test_the_loss_of_expected_returns_is_the_huber_loss(
    mean: np.ndarray, target: np.ndarray, threshold: float | None
) -> None:
    error = np.abs(mean - target)
    slow = 0.5 * error**2
    if threshold is not None:
        slow = np.where(error <= threshold, slow, threshold * (error - 0.5 * threshold))
    leaf = torch.from_numpy(mean).requires_grad_()
    value = ScalarValue(leaf, threshold)
    loss, magnitude = value.weighted_loss(torch.ones(4, 1).double(), ScalarValue(torch.from_numpy(target)))
    np.testing.assert_allclose(loss.item(), slow.sum(), atol=1e-9)
    np.testing.assert_allclose(magnitude.numpy(), error)
    loss.backward()
    bound = math.inf if threshold is None else threshold
    np.testing.assert_allclose(leaf.grad.numpy(), np.clip(mean - target, -bound, bound), atol=1e-9)


# Quantiles


def slow_quantile_loss(quantiles: np.ndarray, target: np.ndarray, fractions: np.ndarray, kappa: float) -> np.ndarray:
    """Equations 9 and 10 and algorithm 1 of arXiv 1710.10044, number by number."""
    losses = np.zeros((len(quantiles), 1))
    for row in range(len(quantiles)):
        for quantile, fraction in zip(quantiles[row], fractions[row], strict=True):
            for sample in target[row]:
                error = sample - quantile
                if kappa == 0:
                    size = abs(error)
                elif abs(error) <= kappa:
                    size = 0.5 * error**2
                else:
                    size = kappa * (abs(error) - 0.5 * kappa)
                losses[row] += abs(fraction - (error < 0)) * size / target.shape[1]
    return losses


@few
@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans())
def test_the_quantile_loss_matches_the_paper(data: st.DataObject, n: int, m: int, kappa: float, sampled: bool) -> None:
    quantiles, target = data.draw(matrix(3, n)), data.draw(matrix(3, m))
    if sampled:
        fractions = torch.from_numpy(data.draw(arrays.arrays(np.float64, (3, n), elements=st.floats(0.01, 0.99))))
    else:
        fractions = quantile_midpoints(n).double()
    leaf, target_leaf = torch.from_numpy(quantiles).requires_grad_(), torch.from_numpy(target).requires_grad_()
    value, targets = QuantileValue(leaf, fractions, kappa), QuantileValue(target_leaf, quantile_midpoints(m))
    slow = slow_quantile_loss(quantiles, target, fractions.expand(3, n).numpy(), kappa)
    np.testing.assert_allclose(value.loss(targets).detach().numpy(), slow, atol=1e-9)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_the_loss_of_many_quantiles_equals_the_loss_over_all_pairs(kappa: float) -> None:
    quantiles, target = 3 * randn(B, 120).double(), 3 * randn(B, 90, seed=1).double()
    # Errors of zero, and at the threshold.
    target[0, :3], target[1, 0], target[1, 1] = quantiles[0, 0], quantiles[1, 0] + kappa, quantiles[1, 0] - kappa
    gradients, losses = [], []
    for of_pairs in (False, True):
        leaf = quantiles.clone().requires_grad_()
        value = QuantileValue(leaf, quantile_midpoints(120).double(), kappa)
        # If the target requires a gradient, the loss is computed over all pairs.
        loss = value.loss(QuantileValue(target.clone().requires_grad_(of_pairs), quantile_midpoints(90), kappa))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        losses.append(loss.detach())
        gradients.append(gradient)
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(gradients[0], gradients[1])
    slow = slow_quantile_loss(
        quantiles.numpy(), target.numpy(), quantile_midpoints(120).double().expand(B, 120).numpy(), kappa
    )
    np.testing.assert_allclose(losses[0].numpy(), slow, rtol=1e-6)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_the_gradient_of_the_quantile_loss_matches_finite_differences(kappa: float) -> None:
    quantiles, target = randn(B, 4).double().requires_grad_(), randn(B, 6, seed=1).double().requires_grad_()
    weight = randn(B, 1, seed=2).double()

    def loss(quantiles: Tensor, target: Tensor) -> Tensor:
        value = QuantileValue(quantiles, quantile_midpoints(4).double(), kappa)
        return weight * value.loss(QuantileValue(target, quantile_midpoints(6).double()))

    assert torch.autograd.gradcheck(loss, (quantiles, target), atol=1e-6)


def test_quantile_midpoints_are_the_centres_of_equal_intervals() -> None:
    torch.testing.assert_close(quantile_midpoints(4), torch.tensor([0.125, 0.375, 0.625, 0.875]))


# Probabilities of atoms


def slow_projection(probabilities: np.ndarray, reward: np.ndarray, discount: np.ndarray) -> np.ndarray:
    """Equation 7 of arXiv 1707.06887, atom by atom."""
    support = SUPPORT.double().numpy()
    spacing = support[1] - support[0]
    projected = np.zeros_like(probabilities)
    for row in range(len(probabilities)):
        for atom in range(ATOMS):
            for other in range(ATOMS):
                moved = np.clip(reward[row, 0] + discount[row, 0] * support[other], support[0], support[-1])
                share = np.clip(1 - abs(moved - support[atom]) / spacing, 0, 1)
                projected[row, atom] += share * probabilities[row, other]
    return projected


@few
@given(
    arrays.arrays(np.float64, (2, ATOMS), elements=st.floats(-3, 3)),
    arrays.arrays(np.float64, (2, 1), elements=st.floats(-8, 8) | st.sampled_from([-1.0, 0.0, 0.5, 2.0])),
    arrays.arrays(np.float64, (2, 1), elements=st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])),
)
def test_a_backup_projects_onto_the_support_as_the_paper_does(
    logits: np.ndarray, reward: np.ndarray, discount: np.ndarray
) -> None:
    value = CategoricalValue(DOUBLE_SUPPORT, logits=torch.from_numpy(logits))
    projected = value.backup(torch.from_numpy(reward), torch.from_numpy(discount)).probabilities
    np.testing.assert_allclose(projected.sum(1).numpy(), 1, rtol=1e-12)
    assert (projected >= 0).all()
    expected = slow_projection(value.probabilities.numpy(), reward, discount)
    np.testing.assert_allclose(projected.numpy(), expected, atol=1e-9)


def test_gradients_pass_through_a_backup() -> None:
    probabilities, reward = randn(B, ATOMS).double().softmax(1).requires_grad_(), randn(B, 1).double().requires_grad_()

    def backed_up(probabilities: Tensor, reward: Tensor) -> Tensor:
        value = CategoricalValue(DOUBLE_SUPPORT, probabilities=probabilities)
        return value.backup(reward, torch.full((B, 1), 0.9).double()).probabilities

    assert torch.autograd.gradcheck(backed_up, (probabilities, reward))


def test_the_cross_entropy_matches_numpy_and_is_minimal_at_its_target() -> None:
    logits = [randn(B, ATOMS, seed=seed).double() for seed in (0, 1)]
    value, target = (CategoricalValue(DOUBLE_SUPPORT, logits=of) for of in logits)
    q, p = (np.exp(of.numpy()) / np.exp(of.numpy()).sum(1, keepdims=True) for of in logits)
    np.testing.assert_allclose(value.loss(target).numpy(), -(p * np.log(q)).sum(1, keepdims=True))
    assert (value.loss(target) > target.loss(target)).all()


def test_a_target_with_atoms_of_probability_zero_gives_finite_losses_and_gradients() -> None:
    logits = randn(B, ATOMS).requires_grad_()
    value = CategoricalValue(SUPPORT, logits=logits)
    with torch.no_grad():
        target = value.backup(torch.full((B, 1), 1.0), torch.zeros(B, 1))
    value.loss(target).sum().backward()
    torch.testing.assert_close(logits.grad, value.probabilities.detach() - target.probabilities)
    assert target.loss(value).isfinite().all()


class ErrorOfMeans(QuantileValue):
    def error(self, target: QuantileValue) -> torch.Tensor:
        return (self.mean.detach() - target.mean).abs()


def test_priorities_have_the_errors_of_a_subclass_that_overrides_them() -> None:
    value, target = (ErrorOfMeans(randn(B, 11, seed=seed), quantile_midpoints(11)) for seed in range(2))
    loss, error = value.weighted_loss(torch.ones(B, 1), target)
    torch.testing.assert_close(loss, value.loss(target).sum())
    torch.testing.assert_close(error, (value.mean - target.mean).abs())
