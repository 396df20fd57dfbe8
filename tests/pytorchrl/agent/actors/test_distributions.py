"""Distributions agree with torch.distributions, and their samples with their own densities."""

import pytest
import torch

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
