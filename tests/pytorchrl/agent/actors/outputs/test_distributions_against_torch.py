"""Every action distribution agrees with torch.distributions, in samples, densities, gradients and detached copies."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributions as td
from torch import Tensor

from pytorchrl.agent.actors.outputs import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalGaussian,
    Distribution,
    GaussianMixture,
    MultiCategorical,
    Scaled,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    StateDependentGaussian,
    TorchDistribution,
    mellowmax,
    mellowmax_logits,
)

BATCH = 3


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, generator=generator(seed), dtype=torch.float64)).requires_grad_()


class JointCategorical:
    """Independent categorical variables, each a distribution of torch."""

    def __init__(self, logits: Tensor) -> None:
        self.parts = [td.Categorical(logits=part) for part in logits.split([3, 2, 4, 2], dim=-1)]

    def log_prob(self, action: Tensor) -> Tensor:
        return sum(part.log_prob(action.flatten(-2)[..., i]) for i, part in enumerate(self.parts))

    def entropy(self) -> Tensor:
        return sum(part.entropy() for part in self.parts)

    def kl(self, other: "JointCategorical") -> Tensor:
        return sum(td.kl_divergence(*pair) for pair in zip(self.parts, other.parts, strict=True))


def independent_normals(mean: Tensor, log_std: Tensor) -> td.Distribution:
    return td.Independent(td.Normal(mean, log_std.exp()), mean.ndim - 1)


def squashed(mean: Tensor, log_std: Tensor) -> td.Distribution:
    return td.TransformedDistribution(independent_normals(mean, log_std), [td.TanhTransform()])


def gammas(seed: int) -> td.Distribution:
    concentration, rate = two_tensors((BATCH, 2), seed)
    return td.Gamma(concentration.exp(), rate.exp())


def mixture(logits: Tensor, mean: Tensor, log_std: Tensor) -> td.Distribution:
    components = td.Independent(td.Normal(mean, log_std.exp()), mean.ndim - 2)
    return td.MixtureSameFamily(td.Categorical(logits=logits), components)


@dataclass
class Kind:
    """One of our distributions and the equivalent one of torch."""

    ours: Callable[[int], Distribution]
    torch: Callable[[int], object]
    shape: tuple[int, ...]
    exact: bool = True  # whether entropy and KL divergence are exact instead of upper bounds

    def __str__(self) -> str:
        return type(self.ours(0)).__name__


def choice_logits(seed: int) -> Tensor:
    return normal(BATCH, 11, seed=seed)


def two_tensors(shape: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    return normal(*shape, seed=seed), normal(*shape, seed=100 + seed, scale=0.3)


def mixture_parameters(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    return normal(BATCH, 4, seed=200 + seed), *two_tensors((BATCH, 4, 2, 2), seed)


MIDDLE, HALF_RANGE = torch.tensor([0.5, -1.0]).double(), torch.tensor([2.0, 0.25]).double()


def concentrations(seed: int) -> tuple[Tensor, Tensor]:
    one, other = two_tensors((BATCH, 2), seed)
    return 0.3 + one.exp(), 0.3 + other.exp()


def betas(seed: int) -> td.Distribution:
    stretch = td.AffineTransform(-1.0, 2.0, event_dim=1)
    return td.TransformedDistribution(td.Independent(td.Beta(*concentrations(seed)), 1), [stretch])


def stretched(distribution: td.Distribution) -> td.Distribution:
    return td.TransformedDistribution(distribution, [td.AffineTransform(MIDDLE, HALF_RANGE, event_dim=1)])


def state_dependent_parameters(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    log_std = normal(5, 2, seed=99 + seed, scale=0.3) - 1.5
    return normal(BATCH, 2, seed=seed), normal(BATCH, 5, seed=50 + seed), log_std


def marginal(seed: int) -> tuple[Tensor, Tensor]:
    mean, features, log_std = state_dependent_parameters(seed)
    return mean, 0.5 * (((features[:, :, None] * log_std.exp()) ** 2).sum(1) + 1e-6).log()


KINDS = [
    Kind(
        lambda seed: Categorical(normal(BATCH, 5, seed=seed)),
        lambda seed: td.Categorical(logits=normal(BATCH, 5, seed=seed)),
        (1,),
    ),
    Kind(
        lambda seed: MultiCategorical(choice_logits(seed), (3, 2, 4, 2), (2, 2)),
        lambda seed: JointCategorical(choice_logits(seed)),
        (2, 2),
    ),
    Kind(
        lambda seed: Bernoulli(normal(BATCH, 2, 3, seed=seed)),
        lambda seed: td.Independent(td.Bernoulli(logits=normal(BATCH, 2, 3, seed=seed)), 2),
        (2, 3),
    ),
    Kind(
        lambda seed: DiagonalGaussian(*two_tensors((BATCH, 2, 3), seed)),
        lambda seed: independent_normals(*two_tensors((BATCH, 2, 3), seed)),
        (2, 3),
    ),
    Kind(
        lambda seed: SquashedGaussian(*two_tensors((BATCH, 2), seed)),
        lambda seed: squashed(*two_tensors((BATCH, 2), seed)),
        (2,),
        exact=False,
    ),
    Kind(lambda seed: Beta(*concentrations(seed)), betas, (2,), exact=False),
    Kind(
        lambda seed: Scaled(DiagonalGaussian(*two_tensors((BATCH, 2), seed)), MIDDLE, HALF_RANGE),
        lambda seed: stretched(independent_normals(*two_tensors((BATCH, 2), seed))),
        (2,),
        exact=False,
    ),
    Kind(
        lambda seed: StateDependentGaussian(*state_dependent_parameters(seed)),
        lambda seed: independent_normals(*marginal(seed)),
        (2,),
    ),
    Kind(
        lambda seed: SquashedStateDependentGaussian(*state_dependent_parameters(seed)),
        lambda seed: squashed(*marginal(seed)),
        (2,),
        exact=False,
    ),
    Kind(
        lambda seed: GaussianMixture(*mixture_parameters(seed)),
        lambda seed: mixture(*mixture_parameters(seed)),
        (2, 2),
        exact=False,
    ),
    Kind(
        lambda seed: TorchDistribution(gammas(seed)),
        lambda seed: td.Independent(gammas(seed), 1),
        (2,),
    ),
]


STATE_DEPENDENT = "StateDependentGaussian", "SquashedStateDependentGaussian"


def kinds_without(*names: str) -> list[Kind]:
    return [kind for kind in KINDS if str(kind) not in names]


every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def torch_log_prob(kind: Kind, action: Tensor) -> Tensor:
    value = action[..., 0] if kind.shape == (1,) else action.double()
    return kind.torch(0).log_prob(value)[..., None]


@every_kind
def test_log_probabilities_match_torch_for_one_sample_and_for_many(kind: Kind) -> None:
    ours = kind.ours(0)
    one, many = ours.sample(generator()), ours.sample(generator(), 7)
    assert one.shape == (BATCH, *kind.shape)
    assert many.shape == (7, BATCH, *kind.shape)
    assert one.dtype == many.dtype
    assert ours.log_prob(one).shape == (BATCH, 1)
    torch.testing.assert_close(ours.log_prob(one), torch_log_prob(kind, one))
    torch.testing.assert_close(ours.log_prob(many), torch_log_prob(kind, many))
    torch.testing.assert_close(ours.log_prob(many)[4], ours.log_prob(many[4]))


@every_kind
def test_entropies_and_kl_divergences_match_torch_or_are_upper_bounds(kind: Kind) -> None:
    ours, other = kind.ours(0), kind.ours(1)
    entropy, kl = ours.entropy(), ours.kl(other)
    assert entropy.shape == kl.shape == (BATCH, 1)
    if kind.exact:
        theirs, theirs_other = kind.torch(0), kind.torch(1)
        torch.testing.assert_close(entropy, theirs.entropy()[:, None])
        exact = (
            theirs.kl(theirs_other) if isinstance(theirs, JointCategorical) else td.kl_divergence(theirs, theirs_other)
        )
        torch.testing.assert_close(kl, exact[:, None])
    many = ours.sample(generator(), 20_000)
    log_prob = ours.log_prob(many)
    estimates = -log_prob, log_prob - other.log_prob(many)
    for bound, estimate in zip((entropy, kl), estimates, strict=True):
        assert (bound > estimate.mean(0) - 4 * estimate.std(0) / math.sqrt(20_000)).all()
    torch.testing.assert_close(ours.kl(kind.ours(0)), torch.zeros(BATCH, 1, dtype=torch.float64))


def test_the_kl_divergence_of_squashed_gaussians_matches_torch() -> None:
    ours = [SquashedGaussian(*two_tensors((BATCH, 2), seed)) for seed in (0, 1)]
    theirs = [squashed(*two_tensors((BATCH, 2), seed)) for seed in (0, 1)]
    torch.testing.assert_close(ours[0].kl(ours[1]), td.kl_divergence(*theirs)[:, None])


@every_kind
def test_first_and_second_moments_of_samples_match_torch(kind: Kind) -> None:
    count = 20_000
    ours, theirs = kind.ours(0), kind.torch(0)
    many = ours.sample(generator(), count).double()
    assert not many.requires_grad
    torch.manual_seed(1)
    if isinstance(theirs, JointCategorical):
        drawn = torch.stack([part.sample((count,)) for part in theirs.parts], -1).view(count, BATCH, 2, 2).double()
    else:
        drawn = theirs.sample((count,)).view(count, BATCH, *kind.shape).double()
    for moment in (lambda x: x, torch.square):
        ours_of, theirs_of = moment(many), moment(drawn)
        error = (ours_of.var(0) / count + theirs_of.var(0) / count).sqrt()
        assert ((ours_of.mean(0) - theirs_of.mean(0)).abs() < 4.5 * error).all()


@every_kind
def test_samples_depend_on_the_given_generator_alone(kind: Kind) -> None:
    ours, state = kind.ours(0), torch.get_rng_state()
    first, second = generator(1), generator(1)
    draws = [ours.sample(first), ours.sample(first), ours.sample(first, 4), ours.sample_with_log_prob(first)[0]]
    again = [ours.sample(second), ours.sample(second), ours.sample(second, 4), ours.sample_with_log_prob(second)[0]]
    assert all(torch.equal(*pair) for pair in zip(draws, again, strict=True))
    assert torch.equal(first.get_state(), second.get_state())
    assert not torch.equal(ours.sample(first, 50), ours.sample(first, 50))
    assert torch.equal(torch.get_rng_state(), state)


@every_kind
def test_a_sample_comes_with_its_log_probability(kind: Kind) -> None:
    ours = kind.ours(0)
    action, log_prob = ours.sample_with_log_prob(generator(2))
    torch.testing.assert_close(log_prob, ours.log_prob(action))
    assert log_prob.requires_grad
    assert action.requires_grad == ours.has_rsample
    if not isinstance(ours, GaussianMixture):
        assert torch.equal(action, ours.sample(generator(2)))


@every_kind
def test_the_score_of_a_sample_is_the_gradient_of_its_log_probability(kind: Kind) -> None:
    ours = kind.ours(0)
    action, log_prob = ours.sample_with_score(generator(2))
    assert not action.requires_grad
    expected = ours.log_prob(action)
    torch.testing.assert_close(log_prob, expected)
    for one, other in zip(
        torch.autograd.grad(log_prob.sum(), ours.parameters, retain_graph=True),
        torch.autograd.grad(expected.sum(), ours.parameters),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@every_kind
def test_parameters_get_gradients_and_detached_distributions_do_not(kind: Kind) -> None:
    ours = kind.ours(0)
    action = ours.sample(generator())
    gradients = torch.autograd.grad(ours.log_prob(action).sum(), ours.parameters, allow_unused=True)
    assert gradients[0] is not None
    assert gradients[0].abs().sum() > 0
    detached = ours.detach()
    assert type(detached) is type(ours)
    assert ours.log_prob(action).requires_grad
    for tensor in (*detached.parameters, detached.log_prob(action), detached.entropy(), detached.mode()):
        assert not tensor.requires_grad
    torch.testing.assert_close(detached.log_prob(action), ours.log_prob(action))
    assert torch.equal(detached.sample(generator(1)), ours.sample(generator(1)))


@pytest.mark.parametrize(
    "kind", kinds_without("SquashedGaussian", "TorchDistribution", "Beta", "SquashedStateDependentGaussian"), ids=str
)
def test_the_mode_is_at_least_as_likely_as_samples(kind: Kind) -> None:
    ours = kind.ours(0)
    mode = ours.mode()
    assert mode.shape == (BATCH, *kind.shape)
    # The mode of a mixture is the mean of one component, which only lies close to the peak of the density.
    slack = 0.1 if isinstance(ours, GaussianMixture) else 0.0
    assert (ours.log_prob(mode) >= ours.log_prob(ours.sample(generator(), 1_000)) - slack).all()


@every_kind
def test_rsample_is_refused_by_distributions_without_reparameterised_samples(kind: Kind) -> None:
    ours = kind.ours(0)
    if ours.has_rsample:
        assert ours.rsample(generator(), 3).shape == (3, BATCH, *kind.shape)
        assert torch.equal(ours.rsample(generator()), ours.sample(generator()))
        return
    with pytest.raises(NotImplementedError, match=rf"{type(ours).__name__}.rsample: .* draw with sample\(\)"):
        ours.rsample(generator())


def test_gradients_of_reparameterised_samples_match_the_formula() -> None:
    mean, log_std = two_tensors((BATCH, 2), 0)
    draw = DiagonalGaussian(mean, log_std).rsample(generator(), 5)
    of_mean, of_log_std = torch.autograd.grad(draw.sum(), (mean, log_std))
    torch.testing.assert_close(of_mean, torch.full_like(mean, 5))
    torch.testing.assert_close(of_log_std, (draw - mean).sum(0))

    squashed_draw = SquashedGaussian(mean, log_std).rsample(generator(), 5)
    torch.testing.assert_close(squashed_draw, draw.tanh())
    (of_mean,) = torch.autograd.grad(squashed_draw.sum(), mean)
    torch.testing.assert_close(of_mean, (1 - draw.tanh().square()).sum(0))


def test_a_standard_deviation_shared_by_all_observations_gets_their_summed_gradient() -> None:
    log_std = torch.zeros(2, requires_grad=True)
    policy = DiagonalGaussian(torch.zeros(BATCH, 2), log_std)
    policy.entropy().sum().backward()
    torch.testing.assert_close(log_std.grad, torch.full((2,), float(BATCH)))


@pytest.mark.parametrize(
    "kind", kinds_without("GaussianMixture", "TorchDistribution", "Scaled", *STATE_DEPENDENT), ids=str
)
def test_the_curvature_of_the_kl_divergence_is_the_fisher_information(kind: Kind) -> None:
    # The Fisher information is E[score score^T]; trust regions need its products with vectors.
    ours = kind.ours(0)
    parameters = ours.parameters
    gradients = torch.autograd.grad(ours.kl(ours.detach()).sum(), parameters, create_graph=True)
    assert all(gradient.abs().max() < 1e-12 for gradient in gradients)
    direction = [normal(*parameter.shape, seed=7).detach() for parameter in parameters]
    along = sum((gradient * vector).sum() for gradient, vector in zip(gradients, direction, strict=True))
    curvature = torch.autograd.grad(along, parameters)
    quadratic = sum((vector * c).sum() for vector, c in zip(direction, curvature, strict=True))

    count = 20_000
    actions = ours.sample(generator(), count).flatten(0, 1)
    leaves = [of.detach().expand(count, *of.shape).flatten(0, 1).requires_grad_() for of in parameters]
    many = type(ours)(*leaves, (3, 2, 4, 2), (2, 2)) if isinstance(ours, MultiCategorical) else type(ours)(*leaves)
    scores = torch.autograd.grad(many.log_prob(actions).sum(), leaves)
    projected = sum(
        (score.view(count, *vector.shape) * vector).flatten(2).sum(2)
        for score, vector in zip(scores, direction, strict=True)
    )
    torch.testing.assert_close(projected.square().mean(0).sum(), quadratic, rtol=0.05, atol=0.01)


def test_actions_of_probability_zero_leave_entropy_and_kl_divergence_finite() -> None:
    logits = torch.tensor([[0.3, -torch.inf, 1.0]], requires_grad=True)
    ours, theirs = Categorical(logits), td.Categorical(logits=torch.tensor([[0.3, 1.0]]))
    torch.testing.assert_close(ours.entropy(), theirs.entropy()[:, None])
    even = td.Categorical(logits=torch.zeros(1, 2))
    torch.testing.assert_close(
        ours.kl(Categorical(torch.tensor([[0.0, -torch.inf, 0.0]]))), td.kl_divergence(theirs, even)[:, None]
    )
    torch.testing.assert_close(ours.kl(ours.detach()), torch.zeros(1, 1))
    (ours.entropy() + ours.kl(ours.detach())).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (ours.sample(generator(), 1_000) != 1).all()


def test_small_kl_divergences_are_accurate_in_single_precision() -> None:
    mean, log_std = torch.zeros(1, 1), torch.zeros(1, 1)
    kl = DiagonalGaussian(mean, log_std).kl(DiagonalGaussian(mean + 1e-4, log_std))
    torch.testing.assert_close(kl.item(), 0.5e-8, rtol=1e-3, atol=0)


def test_a_mixture_of_one_component_is_that_component() -> None:
    mean, log_std = two_tensors((BATCH, 2), 0)
    one = GaussianMixture(torch.zeros(BATCH, 1).double(), mean[:, None], log_std[:, None])
    alone = DiagonalGaussian(mean, log_std)
    action = alone.sample(generator(), 3)
    other = DiagonalGaussian(*two_tensors((BATCH, 2), 1))
    mixed_other = GaussianMixture(torch.zeros(BATCH, 1).double(), other.mean[:, None], other.log_std[:, None])
    for of_one, of_alone in (
        (one.log_prob(action), alone.log_prob(action)),
        (one.entropy(), alone.entropy()),
        (one.mode(), alone.mode()),
        (one.mean, alone.mean),
        (one.kl(mixed_other), alone.kl(other)),
    ):
        torch.testing.assert_close(of_one, of_alone)


def test_the_mean_matches_torch() -> None:
    for kind in KINDS:
        if hasattr(ours := kind.ours(0), "mean") and not isinstance(kind.torch(0), td.TransformedDistribution):
            torch.testing.assert_close(ours.mean, kind.torch(0).mean)


def test_scalar_torch_distributions_have_actions_with_a_trailing_axis() -> None:
    logits = normal(BATCH, 4, seed=0)
    ours, theirs = TorchDistribution(td.Categorical(logits=logits)), Categorical(logits)
    action = ours.sample(generator())
    assert action.shape == (BATCH, 1)
    assert ours.sample(generator(), 5).shape == (5, BATCH, 1)
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action))
    assert torch.equal(ours.mode(), theirs.mode())
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    torch.testing.assert_close(
        ours.kl(TorchDistribution(td.Categorical(logits=torch.zeros(BATCH, 4).double()))),
        theirs.kl(Categorical(torch.zeros(BATCH, 4).double())),
    )


def test_transformed_and_nested_torch_distributions_have_parameters_and_detached_copies() -> None:
    mean, log_std = two_tensors((BATCH, 2), 0)
    scale = torch.ones(2).double().requires_grad_()
    transforms = [td.TanhTransform(), td.AffineTransform(-0.5, scale, event_dim=1).inv]
    ours = TorchDistribution(td.TransformedDistribution(independent_normals(mean, log_std), transforms))
    torch.testing.assert_close(ours.mode(), mean.tanh() + 0.5)
    squashed = td.TransformedDistribution(td.Normal(mean, log_std.exp()), [td.TanhTransform()])
    torch.testing.assert_close(TorchDistribution(td.Independent(squashed, 1)).mode(), mean.tanh())
    assert len(ours.parameters) == 2
    action, log_prob = ours.sample_with_log_prob(generator())
    assert log_prob.shape == (BATCH, 1)
    detached = ours.detach()
    assert not detached.log_prob(action.detach()).requires_grad
    assert ours.log_prob(action).requires_grad
    torch.testing.assert_close(detached.log_prob(action), log_prob)
    with pytest.raises(NotImplementedError):
        ours.entropy()

    nested = TorchDistribution(mixture(*mixture_parameters(0)))
    assert not nested.has_rsample
    assert not nested.detach().log_prob(nested.sample(generator())).requires_grad
    assert len(nested.parameters) == 3


def test_an_error_while_sampling_leaves_the_global_generator_as_it_was() -> None:
    state = torch.get_rng_state()
    with pytest.raises(NotImplementedError):
        TorchDistribution(td.Categorical(logits=torch.zeros(BATCH, 2))).rsample(generator())
    assert torch.equal(torch.get_rng_state(), state)


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
def test_entropies_and_divergences_of_beta_distributions_are_exact_at_large_concentrations(
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


def test_equal_noise_matrices_give_equal_actions_and_many_give_the_marginal_moments() -> None:
    ours = StateDependentGaussian(*state_dependent_parameters(0))
    noise = torch.randn(20_000, BATCH, 5, 2, generator=generator(), dtype=torch.float64)
    assert ours.noise_shape == noise.shape[1:]
    drawn = torch.stack([ours.under(one) for one in noise[:4_000]])
    assert torch.equal(ours.under(noise[0]), drawn[0])
    mean, log_std = marginal(0)
    assert (drawn.mean(0) - mean).abs().max() < 5 * log_std.exp().max() / math.sqrt(4_000)
    torch.testing.assert_close(drawn.std(0), log_std.exp().detach(), rtol=0.05, atol=0)
    squashed_by = SquashedStateDependentGaussian(*state_dependent_parameters(0)).under(noise[0])
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
