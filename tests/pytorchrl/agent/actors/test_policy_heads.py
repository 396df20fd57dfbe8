"""Policy heads give their distributions within the bounds of the space and refuse spaces that they do not fit."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.heads import in_units_of_environments
from pytorchrl.agent.actors.outputs import (
    Beta,
    Categorical,
    DiagonalGaussian,
    GaussianMixture,
    Scaled,
    mellowmax_logits,
)
from tests.support.by_hand import envs_with, layer_of, linear, numpy, perturb

BOX = spaces.Box(np.array([[-3.0], [0.0]], np.float32), np.array([[1.0], [0.5]], np.float32))
CONTINUOUS = [
    prl.heads.GaussianPolicy(),
    prl.heads.GaussianPolicy("spherical"),
    prl.heads.GaussianPolicy("fixed", initial_log_std=-1.0),
    prl.heads.GaussianPolicy("state-dependent", bounded_mean=True),
    prl.heads.SquashedGaussianPolicy(),
    prl.heads.SquashedGaussianPolicy(smallest_log_std=-10.0, smooth_bounds=True),
    prl.heads.BetaPolicy(),
    prl.heads.GSDEPolicy(),
    prl.heads.GSDEPolicy(squash=True),
    prl.heads.MixturePolicy(),
    prl.heads.MixturePolicy(num_components=3, bounded_mean=True),
]
DISCRETE = [
    prl.heads.SoftmaxPolicy(),
    prl.heads.SoftmaxPolicy(temperature=0.5, min_probability=0.1),
    prl.heads.MellowmaxPolicy(omega=5.0),
]


def network(head: Any, space: Any, **actor: Any) -> Any:
    """Make a policy without hidden layers for observations (N, 3), in the units of environments."""
    torch.manual_seed(0)
    made = prl.OnPolicyActor.create_factory(hidden_sizes=(), **actor)("cpu", envs_with(space))
    policy = made.make("policy", in_units_of_environments(head))
    perturb(policy, 0, 0.7)
    return lambda obs: policy(made.view(obs)), policy


def observations(rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("head", CONTINUOUS, ids=repr)
def test_actions_have_the_shape_of_the_box_and_bounded_heads_stay_within_it(head: Any) -> None:
    policy, _ = network(head, BOX)
    distribution = policy(observations())
    many = distribution.sample(torch.Generator().manual_seed(0), 200)
    assert many.shape == (200, 6, 2, 1)
    assert many.dtype == torch.float32
    assert distribution.mode().shape == (6, 2, 1)
    assert distribution.log_prob(many).shape == (200, 6, 1)
    low, high = torch.from_numpy(BOX.low), torch.from_numpy(BOX.high)
    if head.is_bounded:
        assert ((many >= low - 1e-6) & (many <= high + 1e-6)).all()
    if head.is_scaled:
        mode = distribution.mode()
        assert ((mode >= low - 1e-6) & (mode <= high + 1e-6)).all()


@pytest.mark.parametrize("head", [*CONTINUOUS[3:6], prl.heads.GSDEPolicy(squash=True), CONTINUOUS[-1]], ids=repr)
def test_densities_over_a_box_are_corrected_for_the_scaling_of_actions(head: Any) -> None:
    policy, _ = network(head, BOX)
    distribution = policy(observations())
    assert isinstance(distribution, Scaled)
    action = distribution.sample(torch.Generator().manual_seed(0))
    scaled = ((action - torch.tensor([[-1.0], [0.25]])) / torch.tensor([[2.0], [0.25]])).flatten(1)
    torch.testing.assert_close(distribution.log_prob(action), distribution.inner.log_prob(scaled) - math.log(0.5))
    torch.testing.assert_close(distribution.entropy(), distribution.inner.entropy() + math.log(0.5))


@pytest.mark.parametrize("covariance", ["diagonal", "spherical", "fixed", "state-dependent"])
def test_each_covariance_type_gives_its_standard_deviations(covariance: Any) -> None:
    head = prl.heads.GaussianPolicy(covariance, initial_log_std=-1.0)
    policy, module = network(head, spaces.Box(-1, 1, (2,), np.float32))
    deviations = policy(observations()).log_std
    learnt = dict(module.head.named_parameters())
    if covariance == "state-dependent":
        output = linear(layer_of(module.head), numpy(observations()))
        np.testing.assert_allclose(numpy(deviations), output[:, 2:] - 1, rtol=1e-4, atol=1e-5)
        return
    assert learnt.keys() == {"layer.weight", "layer.bias"} | ({"log_std"} if covariance != "fixed" else set())
    if covariance == "fixed":
        assert (deviations == -1).all()
    else:
        assert learnt["log_std"].shape == ((1,) if covariance == "spherical" else (2,))
        assert torch.equal(deviations, learnt["log_std"].expand(6, 2))


def test_initial_log_std_of_a_head_overrides_that_of_the_actor() -> None:
    for head, expected in ((prl.heads.GaussianPolicy(), -0.7), (prl.heads.GaussianPolicy(initial_log_std=0.0), 0.0)):
        actor = prl.OnPolicyActor.create_factory(initial_log_std=-0.7)("cpu", envs_with(BOX))
        module: Any = actor.make("policy", head)
        assert torch.equal(module.head.log_std, torch.full((2, 1), expected))


@pytest.mark.parametrize("covariance", ["diagonal", "state-dependent"])
def test_the_initial_mean_of_a_gaussian_is_the_centre_of_finite_bounds(covariance: Any) -> None:
    low, high = np.array([1.0, -np.inf, -np.inf, 0.0]), np.array([3.0, 4.0, np.inf, 0.5])
    actor = prl.OnPolicyActor.create_factory()("cpu", envs_with(spaces.Box(low, high, dtype=np.float64)))
    module: Any = actor.make("policy", prl.heads.GaussianPolicy(covariance))
    means = module.head.layer.bias[:4]
    assert means.tolist() == [2.0, 0.0, 0.0, 0.25]


def test_a_bounded_mean_is_a_tanh_stretched_to_the_box() -> None:
    policy, module = network(prl.heads.GaussianPolicy(bounded_mean=True), BOX)
    output = linear(layer_of(module.head.head), numpy(observations()))
    expected = np.tanh(output) * [2.0, 0.25] + [-1.0, 0.25]
    np.testing.assert_allclose(numpy(policy(observations()).mode()).reshape(6, 2), expected, rtol=1e-4, atol=1e-5)


def test_deviations_of_a_squashed_gaussian_are_clamped_or_scaled_to_their_bounds() -> None:
    for smooth in (False, True):
        head = prl.heads.SquashedGaussianPolicy(smallest_log_std=-1.0, largest_log_std=0.5, smooth_bounds=smooth)
        policy, module = network(head, BOX)
        output = linear(layer_of(module.head.head), numpy(observations()))[:, 2:]
        expected = -1 + 0.75 * (np.tanh(output) + 1) if smooth else output.clip(-1, 0.5)
        np.testing.assert_allclose(numpy(policy(observations()).inner.log_std), expected, rtol=1e-4, atol=1e-6)


def test_beta_concentrations_are_a_softplus_plus_the_smallest_concentration() -> None:
    policy, module = network(prl.heads.BetaPolicy(smallest_concentration=0.5), BOX)
    inner = policy(observations()).inner
    assert isinstance(inner, Beta)
    output = linear(layer_of(module.head.head), numpy(observations()))
    expected = np.log1p(np.exp(output)) + 0.5
    np.testing.assert_allclose(numpy(torch.cat(inner.parameters, dim=1)), expected, rtol=1e-4)


def test_a_mixture_has_a_probability_and_a_normal_for_each_component() -> None:
    head = prl.heads.MixturePolicy(num_components=3, initial_log_std=-0.5, smallest_log_std=-0.8)
    policy, module = network(head, BOX)
    mixture = policy(observations())
    assert isinstance(mixture, GaussianMixture)
    output = linear(layer_of(module.head), numpy(observations()))
    logits, mean, log_std = output[:, :3], output[:, 3:9].reshape(6, 3, 2, 1), output[:, 9:].reshape(6, 3, 2, 1)
    assert (log_std - 0.5 < -0.8).any()
    expected = (logits, mean, (log_std - 0.5).clip(-0.8, 2.0))
    for found, numbers in zip(mixture.parameters, expected, strict=True):
        np.testing.assert_allclose(numpy(found), numbers, rtol=1e-4, atol=1e-5)


def test_gsde_noise_scales_with_features_which_get_gradients_only_on_request() -> None:
    obs = observations().requires_grad_()
    for learns in (False, True):
        policy, module = network(prl.heads.GSDEPolicy(learns_features=learns), spaces.Box(-1, 1, (2,), np.float32))
        distribution = policy(obs)
        assert isinstance(distribution, DiagonalGaussian)
        std = np.exp(numpy(module.head.log_std))
        expected = np.sqrt(numpy(obs) ** 2 @ std**2 + 1e-6)
        np.testing.assert_allclose(np.exp(numpy(distribution.log_std)), expected, rtol=1e-4)
        gradient = torch.autograd.grad(distribution.entropy().sum(), obs, allow_unused=True)[0]
        assert (gradient is not None) == learns


def test_a_softmax_policy_applies_its_temperature_and_minimum_probability() -> None:
    policy, module = network(DISCRETE[1], spaces.Discrete(4))
    output = linear(layer_of(module.head), numpy(observations()))
    weights = np.exp(2 * output)
    expected = 0.1 + 0.6 * weights / weights.sum(1, keepdims=True)
    distribution = policy(100 * observations())
    assert (distribution.probabilities >= 0.1 - 1e-6).all()
    np.testing.assert_allclose(numpy(policy(observations()).probabilities), expected, rtol=1e-4)
    distribution.log_prob(distribution.mode()).sum().backward()
    assert module.head.layer.weight.grad.isfinite().all()


def test_a_mellowmax_policy_has_the_probabilities_of_mellowmax_logits() -> None:
    policy, module = network(DISCRETE[2], spaces.Discrete(4))
    numbers = module.head.layer(observations())
    torch.testing.assert_close(
        policy(observations()).probabilities, Categorical(mellowmax_logits(numbers, 5.0)).probabilities
    )


def test_a_mellowmax_policy_of_some_actions_is_that_of_their_preferences_alone() -> None:
    policy, module = network(DISCRETE[2], spaces.Discrete(4))
    some = [0, 2, 3]
    allowed = torch.zeros(6, 4, dtype=torch.bool)
    allowed[:, some] = True
    # The last row has one action.
    allowed[-1, :3] = False
    restricted = policy(observations()).allowing(allowed)
    assert (restricted.probabilities[~allowed] == 0).all()
    assert restricted.probabilities[-1, 3] == 1
    alone = Categorical(mellowmax_logits(module.head.layer(observations())[:-1, some], 5.0))
    torch.testing.assert_close(restricted.probabilities[:-1, some], alone.probabilities)
    torch.testing.assert_close(restricted.entropy()[:-1], alone.entropy())
    found, expected = (
        torch.autograd.grad(one.log_probs[:5].gather(1, action).sum(), module.head.layer.weight)[0]
        for one, action in ((restricted, torch.full((5, 1), 2)), (alone, torch.full((5, 1), 1)))
    )
    assert found.abs().max() > 0
    torch.testing.assert_close(found, expected)
    assert not restricted.detach().logits.requires_grad
    torch.testing.assert_close(restricted.detach().probabilities, restricted.probabilities)


@pytest.mark.parametrize("head", [*CONTINUOUS, *DISCRETE], ids=repr)
def test_spaces_that_a_head_does_not_fit_are_refused(head: Any) -> None:
    name = type(head).__name__
    space = spaces.MultiBinary(2)
    with pytest.raises(prl.UnsupportedSpaceError, match=rf"{name} needs a .* space, .* heads.Policy\(\) suits every"):
        network(head, space)
    if head.is_scaled:
        with pytest.raises(prl.UnsupportedSpaceError, match=f"{name} needs finite bounds"):
            network(head, spaces.Box(-1, np.inf, (2,), np.float32))
        with pytest.raises(
            prl.UnsupportedSpaceError, match=rf"{name} scales actions .* bounds of action \[0\] are 0.5"
        ):
            network(head, spaces.Box(0.5, 0.5, (2,), np.float32))


@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (prl.heads.GaussianPolicy, {"covariance": "full"}, "GaussianPolicy: covariance must be one of"),
        (prl.heads.BetaPolicy, {"smallest_concentration": 0}, "smallest_concentration must be greater than 0"),
        (prl.heads.SoftmaxPolicy, {"temperature": 0}, "SoftmaxPolicy: temperature must be greater than 0"),
        (prl.heads.SoftmaxPolicy, {"min_probability": 1.5}, r"min_probability must lie in \[0, 1\]"),
        (prl.heads.MellowmaxPolicy, {"omega": -1}, "MellowmaxPolicy: omega must be greater than 0"),
        (prl.heads.MixturePolicy, {"num_components": 0}, "MixturePolicy: num_components must be at least 1"),
        (
            prl.heads.SquashedGaussianPolicy,
            {"smallest_log_std": 2.0},
            "SquashedGaussianPolicy: smallest_log_std must be less than largest_log_std=2, got 2",
        ),
        (prl.heads.GSDEPolicy, {"resample_every": 0}, "GSDEPolicy: resample_every must be at least 1"),
    ],
)
def test_values_out_of_range_are_refused(cls: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(**given)


def test_a_minimum_probability_that_fixes_the_policy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"min_probability must be less than 1 / 4, .* got 0.25"):
        network(prl.heads.SoftmaxPolicy(min_probability=0.25), spaces.Discrete(4))


@pytest.mark.parametrize(
    "head",
    [
        prl.heads.GaussianPolicy("state-dependent", initial_log_std=4.0),
        prl.heads.MixturePolicy(num_components=1, initial_log_std=4.0),
    ],
)
def test_large_initial_deviations_are_kept_and_have_gradients(head: Any) -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(4,))("cpu", envs_with(BOX))
    policy: Any = actor.make("policy", head)
    layer = policy.head.layer
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
    distribution = policy.head(torch.randn(6, 4))
    log_std = distribution.parameters[-1]
    assert (log_std == 4).all()
    log_std.sum().backward()
    assert layer.bias.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "head",
    [prl.heads.GaussianPolicy("state-dependent", min_log_std=3.0), prl.heads.MixturePolicy(smallest_log_std=3.0)],
)
def test_a_lower_bound_of_deviations_above_the_upper_one_is_refused(head: Any) -> None:
    actor = prl.OnPolicyActor.create_factory(initial_log_std=0.0)("cpu", envs_with(BOX))
    with pytest.raises(ValueError, match="the lower bound of the log_std, 3, must be below the upper one, 2"):
        actor.make("policy", head)


@pytest.mark.parametrize(("high", "size"), [(2_500.0, "small"), (0.01, "large")])
def test_a_gaussian_that_does_not_fit_the_bounds_is_warned_of_with_ways_out(high: float, size: str) -> None:
    space = spaces.Box(0, high, (2,), np.float32)
    with pytest.warns(RuntimeWarning, match=f"too {size} to learn well: choose .*BetaPolicy.*RescaleAction"):
        network(prl.heads.Policy(), space)
    # Whoever chooses a standard deviation knows the units.
    network(prl.heads.GaussianPolicy(initial_log_std=0.0), space)
    network(prl.heads.BetaPolicy(), space)
