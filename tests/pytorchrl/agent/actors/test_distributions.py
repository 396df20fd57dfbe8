"""Formulas of bounded, state-dependent and mellowmax policies, and distributions of users."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as td
from pytorchrl.agent.actors.outputs.distributions import (
    Beta,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    mellowmax,
    mellowmax_logits,
)
from torch import Tensor

from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    SquashedGaussian,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_saturated_actions_have_finite_log_densities_and_gradients() -> None:
    mean = torch.full((1, 1), 30.0, requires_grad=True)
    _, log_prob = SquashedGaussian(mean, torch.zeros(1, 1)).sample_with_log_prob(generator())
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert mean.grad is not None
    assert mean.grad.isfinite().all()


def test_bernoulli_samples_follow_their_probabilities_and_extreme_logits_stay_finite() -> None:
    draws, logits = 50_000, torch.tensor([0.0, 2.0, -100.0, 100.0])
    distribution = Bernoulli(logits.expand(draws, 4))
    sample = distribution.sample(generator())
    assert (sample.double().mean(0) - logits.sigmoid()).abs().max() < 0.01
    assert distribution.log_prob(sample).isfinite().all()
    assert distribution.entropy().isfinite().all()


def by_quadrature(log_prob: Callable[[Tensor], Tensor], of: Callable[[Tensor], Tensor]) -> float:
    """Integrate a density times a function over (-1, 1), with points that are denser near the bounds."""
    angles = torch.linspace(1e-4, math.pi - 1e-4, 100_001, dtype=torch.float64)[:, None]
    points = -angles.cos()
    integrand = log_prob(points).exp() * of(points) * angles.sin()
    return float(torch.trapezoid(integrand[:, 0], angles[:, 0]))


@pytest.mark.parametrize(
    ("make", "one", "other"),
    [(Beta, 0.5, 0.9), (Beta, 2.0, 0.8), (Beta, 3.0, 5.0), (SquashedGaussian, 0.5, 0.9), (SquashedGaussian, 1.0, 0.3)],
)
def test_entropies_and_kl_divergences_of_bounded_distributions_match_quadrature(
    make: Any, one: float, other: float
) -> None:
    first, second = ([torch.tensor([[number]]).double() for number in pair] for pair in ((one, other), (1.5, 1.2)))
    if make is SquashedGaussian:
        first, second = ([mean, log_std.log()] for mean, log_std in (first, second))
    ours, theirs = make(*first), make(*second)
    assert abs(by_quadrature(ours.log_prob, torch.ones_like) - 1) < 2e-3
    assert abs(by_quadrature(ours.log_prob, lambda x: -ours.log_prob(x)) - ours.entropy().item()) < 5e-3
    difference = by_quadrature(ours.log_prob, lambda x: ours.log_prob(x) - theirs.log_prob(x))
    assert abs(difference - ours.kl(theirs).item()) < 2e-2


@pytest.mark.parametrize("log_std", [-20.0, -1.0, 0.0, 2.0])
def test_the_entropy_of_a_squashed_gaussian_matches_fine_quadrature(log_std: float) -> None:
    mean = torch.tensor([[0.0], [0.5], [3.0], [12.0]]).double()
    ours = SquashedGaussian(mean, torch.full_like(mean, log_std))
    noise = torch.linspace(-9, 9, 100_001).double()
    unsquashed = mean + math.exp(log_std) * noise
    log_slope = 2 * (math.log(2) - unsquashed - torch.nn.functional.softplus(-2 * unsquashed))
    density = (-0.5 * noise**2).exp() / math.sqrt(2 * math.pi)
    exact = log_std + 0.5 * math.log(2 * math.pi * math.e) + torch.trapezoid(density * log_slope, noise)
    assert (ours.entropy()[:, 0] - exact).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("concentrations", "mode"),
    [((3.0, 2.0), 1 / 3), ((1.0, 2.0), -1.0), ((2.0, 0.5), 1.0), ((0.5, 2.0), -1.0), ((0.4, 0.6), -1.0),
     ((0.6, 0.4), 1.0), ((1.0, 1.0), 0.0), ((1.0, 0.9), 1.0)],
)  # fmt: skip
def test_the_mode_of_a_beta_distribution_is_inside_or_at_a_bound(
    concentrations: tuple[float, float], mode: float
) -> None:
    ours = Beta(*(torch.tensor([[number]]) for number in concentrations))
    assert abs(ours.mode().item() - mode) < 1e-6
    grid = torch.linspace(-0.999, 0.999, 1_999)[:, None]
    assert ours.log_prob(ours.mode()) >= ours.log_prob(grid).max()


def test_gradients_of_beta_samples_match_those_of_the_second_moment() -> None:
    high, low = (torch.tensor([[number]]).double().requires_grad_() for number in (1.5, 0.7))
    ours = Beta(high, low)
    draws = ours.rsample(generator(), 50_000)
    found = torch.autograd.grad(draws.square().mean(), (high, low))
    share = high / (high + low)
    second_moment = share * (high + 1) / (high + low + 1)
    expected = torch.autograd.grad((4 * second_moment - 4 * share + 1).sum(), (high, low))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.01)


def test_extreme_actions_of_a_beta_distribution_have_finite_densities() -> None:
    ours = Beta(torch.tensor([[1e-2, 300.0]]), torch.tensor([[1e-2, 1.0]]))
    draws = ours.sample(generator(), 2_000)
    assert (draws.abs() <= 1).all()
    assert ours.log_prob(draws).isfinite().all()
    assert ours.log_prob(torch.tensor([[1.0, -1.0]])).isfinite().all()


@pytest.mark.parametrize("concentration", [1e2, 1e4, 1e6])
def test_beta_entropies_and_divergences_are_exact_at_large_concentrations(
    concentration: float,
) -> None:
    numbers = [
        concentration * torch.tensor([[high, low]]) for high, low in ((1.0, 1.5), (1.3, 1.0), (1.01, 1.49), (1.31, 1.0))
    ]
    leaves, exact_leaves = (
        [number.to(dtype).requires_grad_() for number in numbers] for dtype in (torch.float32, torch.float64)
    )
    ours, other = Beta(*leaves[:2]), Beta(*leaves[2:])
    exact, exact_other = (td.Independent(td.Beta(*each), 1) for each in (exact_leaves[:2], exact_leaves[2:]))
    divergence, entropy = ours.kl(other), ours.entropy()
    assert divergence.dtype == entropy.dtype == torch.float32
    exact_divergence = td.kl_divergence(exact, exact_other)
    # Stretched from (0, 1) to (-1, 1), in two dimensions.
    exact_entropy = exact.entropy() + 2 * math.log(2)
    torch.testing.assert_close(divergence[:, 0].double(), exact_divergence, rtol=1e-5, atol=0)
    torch.testing.assert_close(entropy[:, 0].double(), exact_entropy, rtol=1e-6, atol=0)
    gradients = torch.autograd.grad((divergence + entropy).sum(), leaves)
    exact_gradients = torch.autograd.grad((exact_divergence + exact_entropy).sum(), exact_leaves)
    for one, another in zip(gradients, exact_gradients, strict=True):
        torch.testing.assert_close(one.double(), another, rtol=1e-4, atol=0)


@pytest.mark.parametrize("concentration", [1e2, 1e4, 1e6])
def test_log_densities_of_beta_distributions_are_exact_at_large_concentrations(concentration: float) -> None:
    leaves = [concentration * torch.tensor([[number, 1.0]]) for number in (1.0, 1.5)]
    ours = Beta(*(leaf.requires_grad_() for leaf in leaves))
    exact_leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    actions = ours.sample(generator(), 50)
    found = ours.log_prob(actions)
    # Stretched from (0, 1) to (-1, 1), in two dimensions.
    exact = td.Beta(*exact_leaves).log_prob(0.5 + 0.5 * actions.double()).sum(-1, keepdim=True) - 2 * math.log(2)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6)
    gradients, exact_gradients = (
        torch.autograd.grad(found.sum(), leaves),
        torch.autograd.grad(exact.sum(), exact_leaves),
    )
    for one, another in zip(gradients, exact_gradients, strict=True):
        torch.testing.assert_close(one.double(), another, rtol=1e-5, atol=1e-10)


def state_dependent_parameters() -> tuple[Tensor, Tensor, Tensor]:
    mean, features, log_std = (
        torch.randn(shape, generator=generator(seed)).double() for seed, shape in enumerate([(3, 2), (3, 5), (5, 2)])
    )
    return mean, features, 0.3 * log_std - 1.5


def test_equal_noise_matrices_give_equal_actions_and_many_give_the_marginal_moments() -> None:
    ours = StateDependentGaussian(*state_dependent_parameters())
    noise = torch.randn(20_000, 3, 5, 2, generator=generator(), dtype=torch.float64)
    assert ours.noise_shape == noise.shape[1:]
    drawn = torch.stack([ours.under(one) for one in noise[:4_000]])
    assert torch.equal(ours.under(noise[0]), drawn[0])
    mean, features, log_std = state_dependent_parameters()
    log_std = 0.5 * (((features[:, :, None] * log_std.exp()) ** 2).sum(1) + 1e-6).log()
    assert (drawn.mean(0) - mean).abs().max() < 5 * log_std.exp().max() / math.sqrt(4_000)
    torch.testing.assert_close(drawn.std(0), log_std.exp().detach(), rtol=0.05, atol=0)
    squashed_by = SquashedStateDependentGaussian(*state_dependent_parameters()).under(noise[0])
    torch.testing.assert_close(squashed_by, drawn[0].tanh())


def mellowmax_policy(values: np.ndarray, omega: float) -> tuple[float, np.ndarray]:
    """Return the inverse temperature, the root of the paper's equation by bisection, and the probabilities."""
    advantage = values - np.log(np.exp(omega * values).mean()) / omega
    low, high = 0.0, 50.0
    for _ in range(60):
        beta = (low + high) / 2
        if (np.exp(beta * advantage) * advantage).sum() < 0:
            low = beta
        else:
            high = beta
    weights = np.exp(beta * advantage)
    return beta, weights / weights.sum()


@pytest.mark.parametrize("omega", [0.1, 1.0, 20.0])
def test_the_mellowmax_policy_has_the_expectation_and_temperature_of_its_paper(omega: float) -> None:
    values = 2 * torch.randn(6, 4, generator=generator()).double()
    logits = mellowmax_logits(values, omega)
    probabilities = logits.softmax(-1)
    torch.testing.assert_close((probabilities * values).sum(-1, keepdim=True), mellowmax(values, omega))
    for row, found in zip(values.numpy(), probabilities.numpy(), strict=True):
        np.testing.assert_allclose(found, mellowmax_policy(row, omega)[1], rtol=1e-5, atol=1e-9)


def test_gradients_of_the_mellowmax_policy_pass_through_its_temperature() -> None:
    values = torch.randn(3, 4, generator=generator()).double().requires_grad_()
    (found,) = torch.autograd.grad(Categorical(mellowmax_logits(values, 3.0)).log_probs[:, 1].sum(), values)
    expected = np.zeros((3, 4))
    for row, column in np.ndindex(3, 4):
        moved = values.detach().numpy()[row].copy()
        log_probs = []
        for step in (1e-5, -2e-5):
            moved[column] += step
            log_probs.append(np.log(mellowmax_policy(moved, 3.0)[1][1]))
        expected[row, column] = (log_probs[0] - log_probs[1]) / 2e-5
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_equal_and_far_apart_values_have_finite_mellowmax_policies() -> None:
    for numbers in ([0.0, 0.0, 0.0], [1e4, -1e4, 0.0], [1.0, 1.0 + 1e-7, 1.0]):
        values = torch.tensor([numbers], requires_grad=True)
        policy = Categorical(mellowmax_logits(values, 5.0))
        policy.log_probs[:, 0].sum().backward()
        assert policy.probabilities.isfinite().all()
        assert values.grad is not None
        assert values.grad.isfinite().all()


# Distributions of users


class MostlyLast(Categorical):
    """Takes the last action with a probability of a half, independent of the logits."""

    @property
    def _mixed(self) -> Categorical:
        last = torch.zeros_like(self.logits)
        last[:, -1] = 1.0
        return Categorical((0.5 * self.logits.softmax(1) + 0.5 * last).log())

    def sample(self, generator: torch.Generator, n: int | None = None) -> torch.Tensor:
        return self._mixed.sample(generator, n)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        return self._mixed.log_prob(action)


class Clipped(SquashedGaussian):
    """Never leaves half of the bounds, where its density is not that of the Gaussian."""

    def rsample(self, generator: torch.Generator, n: int | None = None) -> torch.Tensor:
        return super().rsample(generator, n).clamp(-0.5, 0.5)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        return super().log_prob(action) + 1.0


class CertainAboutDiagonal(DiagonalGaussian):
    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        return 0.0 * super().log_prob(action)


def own_distributions() -> list[Distribution]:
    logits = torch.randn(200, 3, generator=generator())
    return [MostlyLast(logits), Clipped(logits, 0 * logits), CertainAboutDiagonal(logits, 0 * logits)]


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("method", ["sample_with_log_prob", "sample_with_score"])
def test_a_subclass_that_overrides_sampling_or_densities_draws_by_them(number: int, method: str) -> None:
    # As while acting.
    with torch.inference_mode():
        distribution = own_distributions()[number]
        action, log_prob = getattr(distribution, method)(generator(1))
        assert torch.equal(action, distribution.sample(generator(1)))
        assert torch.equal(log_prob, distribution.log_prob(action))


def test_actions_are_evaluated_by_the_methods_of_a_subclass_that_overrides_them() -> None:
    distribution = own_distributions()[0]
    action = torch.zeros(200, 1, dtype=torch.int64)
    with torch.no_grad():
        log_prob, entropy = distribution.evaluate(action)
    assert torch.equal(log_prob, distribution.log_prob(action))
    torch.testing.assert_close(entropy, distribution.entropy())
