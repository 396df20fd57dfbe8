"""Distributions agree with torch.distributions, and their samples with their own densities."""

import math

import numpy as np
import pytest
import torch
import torch.distributions as td

from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    SquashedGaussian,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_categorical_has_the_probabilities_of_its_logits() -> None:
    logits = torch.randn(5, 4, generator=generator())
    ours, theirs = Categorical(logits), td.Categorical(logits=logits)
    action = torch.tensor([[0], [1], [2], [3], [0]])
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action[:, 0])[:, None])
    torch.testing.assert_close(ours.entropy(), theirs.entropy()[:, None])
    assert torch.equal(ours.mode(), logits.argmax(1, keepdim=True))


def test_categorical_samples_follow_the_probabilities() -> None:
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0])
    draws = 100_000
    sample = Categorical(logits.expand(draws, 4)).sample(generator())
    assert sample.shape == (draws, 1)
    expected = logits.softmax(0) * draws
    chi_square = ((torch.bincount(sample[:, 0], minlength=4) - expected).square() / expected).sum()
    assert chi_square < 16.3  # 0.999 quantile of 3 degrees of freedom


def test_a_diagonal_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(6, 2, 3, generator=generator()), torch.randn(2, 3, generator=generator(1))
    ours, theirs = DiagonalGaussian(mean, log_std), td.Independent(td.Normal(mean, log_std.exp()), 2)
    action = torch.randn(6, 2, 3, generator=generator(2))
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action)[:, None])
    torch.testing.assert_close(ours.entropy(), theirs.entropy()[:, None])
    assert ours.sample(generator()).shape == (6, 2, 3)
    assert torch.equal(ours.mode(), mean)


def test_gaussian_samples_have_the_mean_and_standard_deviation() -> None:
    distribution = DiagonalGaussian(torch.full((50_000, 1), 3.0), torch.tensor([math.log(0.5)]))
    sample = distribution.sample(generator())
    assert abs(sample.mean() - 3) < 0.01
    assert abs(sample.std() - 0.5) < 0.01


def test_a_squashed_gaussian_agrees_with_torch() -> None:
    mean, log_std = torch.randn(7, 2, generator=generator()), torch.randn(7, 2, generator=generator(1)) * 0.5 - 1
    ours = SquashedGaussian(mean, log_std)
    theirs = td.TransformedDistribution(
        td.Independent(td.Normal(mean.double(), log_std.double().exp()), 1), [td.TanhTransform()]
    )
    action, log_prob = ours.sample_with_log_prob(generator(3))
    assert action.abs().max() < 1
    torch.testing.assert_close(log_prob.double(), theirs.log_prob(action.double())[:, None], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours.log_prob(action), log_prob, rtol=1e-3, atol=1e-3)
    assert torch.equal(ours.mode(), mean.tanh())
    assert torch.equal(ours.sample(generator(3)), action)


def test_the_density_of_a_squashed_gaussian_integrates_to_one() -> None:
    points = torch.linspace(-0.9999, 0.9999, 20_001)[:, None]
    distribution = SquashedGaussian(torch.full_like(points, 0.3), torch.full_like(points, -0.5))
    assert abs(torch.trapezoid(distribution.log_prob(points)[:, 0].exp(), points[:, 0]) - 1) < 1e-3


def test_saturated_actions_have_finite_log_densities_and_gradients() -> None:
    mean = torch.full((1, 1), 30.0, requires_grad=True)
    _, log_prob = SquashedGaussian(mean, torch.zeros(1, 1)).sample_with_log_prob(generator())
    log_prob.sum().backward()
    assert log_prob.isfinite().all()
    assert mean.grad is not None
    assert mean.grad.isfinite().all()


def test_samples_depend_on_the_given_generator_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    for distribution in (
        Categorical(torch.zeros(4, 3)),
        DiagonalGaussian(torch.zeros(4, 3), torch.zeros(3)),
        SquashedGaussian(torch.zeros(4, 3), torch.zeros(4, 3)),
    ):
        assert torch.equal(distribution.sample(generator(1)), distribution.sample(generator(1)))
    assert torch.equal(torch.get_rng_state(), state)


def numpy_log_probabilities(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_multi_categorical_adds_log_probabilities_and_entropies_of_its_parts() -> None:
    logits = torch.randn(6, 3 + 2 + 4, generator=generator())
    ours = MultiCategorical(logits, (3, 2, 4), (3,))
    action = torch.tensor([[0, 1, 3], [2, 0, 0], [1, 1, 1], [2, 1, 2], [0, 0, 0], [1, 0, 3]])
    parts = [numpy_log_probabilities(part) for part in np.split(logits.numpy().astype(np.float64), [3, 5], axis=1)]
    log_prob = sum(part[np.arange(6), action.numpy()[:, number]] for number, part in enumerate(parts))
    entropy = -sum((np.exp(part) * part).sum(1) for part in parts)
    np.testing.assert_allclose(ours.log_prob(action).numpy()[:, 0], log_prob, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy().numpy()[:, 0], entropy, rtol=1e-5)
    np.testing.assert_array_equal(ours.mode().numpy(), np.stack([part.argmax(1) for part in parts], axis=1))


def test_multi_categorical_samples_follow_the_probabilities_of_each_part() -> None:
    draws, logits = 50_000, torch.tensor([1.0, -1.0, 0.0, 0.5, -0.5, 2.0])
    sample = MultiCategorical(logits.expand(draws, 6), (2, 2, 2), (3,)).sample(generator())
    assert sample.shape == (draws, 3)
    assert sample.dtype == torch.int64
    expected = logits.view(3, 2).softmax(1)[:, 1]
    assert (sample.double().mean(0) - expected).abs().max() < 0.01
    correlations = np.corrcoef(sample.numpy().T) - np.eye(3)
    assert np.abs(correlations).max() < 0.02


def test_bernoulli_log_probabilities_and_entropies_match_numpy() -> None:
    logits = 3 * torch.randn(7, 2, 3, generator=generator())
    ours = Bernoulli(logits)
    action = torch.randint(0, 2, (7, 2, 3), generator=generator(1), dtype=torch.int8)
    p = 1 / (1 + np.exp(-logits.numpy().astype(np.float64)))
    log_prob = np.where(action.numpy() == 1, np.log(p), np.log(1 - p)).sum((1, 2))
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).sum((1, 2))
    np.testing.assert_allclose(ours.log_prob(action).numpy()[:, 0], log_prob, rtol=1e-5)
    np.testing.assert_allclose(ours.entropy().numpy()[:, 0], entropy, rtol=1e-5)
    np.testing.assert_array_equal(ours.mode().numpy(), p > 0.5)


def test_bernoulli_samples_follow_their_probabilities_and_extreme_logits_stay_finite() -> None:
    draws, logits = 50_000, torch.tensor([0.0, 2.0, -100.0, 100.0])
    distribution = Bernoulli(logits.expand(draws, 4))
    sample = distribution.sample(generator())
    assert (sample.double().mean(0) - logits.sigmoid()).abs().max() < 0.01
    assert distribution.log_prob(sample).isfinite().all()
    assert distribution.entropy().isfinite().all()


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
