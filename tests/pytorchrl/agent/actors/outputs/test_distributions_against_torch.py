"""Every action distribution agrees with torch.distributions, in samples, densities, gradients and detached copies."""

import math
from collections.abc import Callable
from dataclasses import dataclass

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


def test_transformed_torch_distributions_have_parameters_and_detached_copies() -> None:
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
