"""Gradients of value functions and policies that are computed without autograd equal those of autograd."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.policy_gradient.parts.policy_likelihood import PolicyLikelihood
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueRegression
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ADV, IADV, IRET, LOGP, OBS, OBS2, RET
from tests.support.by_hand import MORE_THAN_PLAIN, envs_with
from tests.support.rollout_batches import rollout_batch

KINDS: list[Any] = [prl.A2C, prl.PPO, prl.REINFORCE, prl.IMPALA, prl.RND, prl.TRPO]


def algorithm_of(kind: Any, *, hyper_parameters: Any = None, envs: Any = None, **actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs or envs_with(spaces.Discrete(3))
    chosen = {"hidden_sizes": (7, 5), "activation": "tanh"} | actor
    body = prl.OnPolicyActor.create_factory(**chosen)("cpu", envs)
    algorithm = kind.create_factory(**(hyper_parameters or {}))("cpu", body, envs)
    algorithm.seed(0)
    return algorithm


def parts_of(algorithm: Any) -> list[ValueRegression | PolicyLikelihood]:
    for made_when_used in ("value_regression", "likelihood"):
        getattr(algorithm, made_when_used, None)
    parts = [part for part in vars(algorithm).values() if isinstance(part, ValueRegression | PolicyLikelihood)]
    assert parts
    return parts


def pair_of(kind: Any, **chosen: Any) -> tuple[Any, Any]:
    """An algorithm, and the same one that leaves value functions and policies to autograd."""
    ours, autograds = (algorithm_of(kind, **chosen) for _ in range(2))
    assert all(part._network is not None for part in parts_of(ours))
    for part in parts_of(autograds):
        part._network = None
    return ours, autograds


def batch_for(algorithm: Any, number: int = 0) -> dict[str, Any]:
    batch: dict[str, Any] = rollout_batch(algorithm, seed=number)
    random = torch.Generator().manual_seed(number)
    if isinstance(algorithm, prl.RND):
        batch |= {key: torch.randn(len(batch[OBS]), 1, generator=random) for key in (IRET, IADV)}
        batch[OBS2] = torch.randn(batch[OBS].shape, generator=random)
    return batch


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("hidden_sizes", [(), (7,), (7, 5), (5, 5, 5), (40, 24)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_updates_are_those_of_autograd(kind: Any, activation: str, hidden_sizes: tuple[int, ...]) -> None:
    pair = pair_of(kind, activation=activation, hidden_sizes=hidden_sizes)
    for number in range(4):
        ours, autograds = (algorithm.update(batch_for(algorithm, number)) for algorithm in pair)
        torch.testing.assert_close(ours.metrics, autograds.metrics, rtol=1e-4, atol=1e-5)
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("value_loss_coef", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("kind", [prl.A2C, prl.RND])
def test_gradients_and_metrics_are_those_of_autograd_for_every_value_loss_coef(
    kind: Any, value_loss_coef: float
) -> None:
    pair = pair_of(kind, hyper_parameters={"value_loss_coef": value_loss_coef})
    (ours, result), (autograds, expected) = (algorithm.compute_gradients(batch_for(algorithm)) for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.metrics, expected.metrics, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2, 2))], ids=["discrete", "box"])
def test_no_autograd_graph_is_built_for_plain_networks(space: Any) -> None:
    algorithm = algorithm_of(prl.A2C, envs=envs_with(space))
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    assert losses.gradients.keys() == {*algorithm.value.parameters(), *algorithm.pi.parameters()}
    assert not losses.of[algorithm.trained].requires_grad


def test_a_policy_of_multidiscrete_actions_is_left_to_autograd() -> None:
    algorithm = algorithm_of(prl.A2C, envs=envs_with(spaces.MultiDiscrete([2, 3])))
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    assert losses.gradients.keys() == set(algorithm.value.parameters())
    assert losses.of[algorithm.trained].requires_grad


@pytest.mark.parametrize(
    "actor",
    [*MORE_THAN_PLAIN, {"shared_body": True}],
    ids=str,
)
def test_other_layers_activations_and_shared_bodies_are_left_to_autograd(actor: dict[str, Any]) -> None:
    algorithm = algorithm_of(prl.PPO, **actor)
    assert not algorithm.losses(algorithm.read(batch_for(algorithm))).gradients


def test_clipped_value_losses_are_left_to_autograd() -> None:
    algorithm = algorithm_of(prl.PPO, hyper_parameters={"use_clipped_value_loss": True})
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    assert losses.gradients.keys() == set(algorithm.pi.parameters())
    pair = pair_of(prl.PPO, hyper_parameters={"use_clipped_value_loss": True})
    ours, autograds = (one.compute_gradients(batch_for(one))[0] for one in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", ["value", "pi"])
@pytest.mark.parametrize(
    "part",
    [
        lambda network: network,
        lambda network: network.body.hidden,
        lambda network: network.body.hidden.layers[0],
        lambda network: network.head,
        lambda network: network.head.layer,
    ],
)
def test_hooks_are_called(part: Any, network: str) -> None:
    algorithm = algorithm_of(prl.PPO)
    called = []
    batch = batch_for(algorithm)
    handle = part(getattr(algorithm, network)).register_forward_hook(lambda *_: called.append(1))
    algorithm.update(batch)
    assert called
    handle.remove()
    losses = algorithm.losses(algorithm.read(batch))
    assert losses.gradients.keys() >= set(getattr(algorithm, network).parameters())


def test_gradients_are_those_of_autograd_for_dict_observations() -> None:
    envs = envs_with(spaces.Discrete(3))
    parts = {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)}
    envs.observation_space = spaces.Dict(parts)
    pair = pair_of(prl.PPO, envs=envs)
    gradients = []
    for algorithm in pair:
        batch = batch_for(algorithm_of(prl.PPO))
        batch[OBS] = {"a": batch[OBS][:, :2], "b": torch.arange(len(batch[OBS]))[:, None] % 3}
        gradients.append(algorithm.compute_gradients(batch)[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_gradients_are_those_of_autograd_for_normalised_observations() -> None:
    pair = pair_of(prl.PPO, normalize_observations=True)
    gradients = []
    for algorithm in pair:
        batch = batch_for(algorithm)
        algorithm.actor.normalization.add(3 * batch[OBS] + 1)
        algorithm.actor.normalization.use_newest()
        gradients.append(algorithm.compute_gradients(batch)[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", [prl.TorchOptimizer(torch.optim.SGD), prl.LBFGS()], ids=["SGD", "LBFGS"])
def test_trpos_value_function_is_fitted_by_other_optimisers(optimizer: Any) -> None:
    pair = pair_of(prl.TRPO, hyper_parameters={"optimizer": optimizer, "value_epochs": 3})
    for algorithm in pair:
        algorithm.update(batch_for(algorithm))
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-3, atol=1e-5)


# Losses of users


class Scaled(prl.PPO):
    """Multiplies the loss."""

    def losses(self, rows: Rows) -> prl.Losses:
        losses = super().losses(rows)
        return replace(losses, of={self.trained: 3.0 * losses.of[self.trained]})


class Added(prl.A2C):
    """Returns new losses, with a term that has no gradient."""

    def losses(self, rows: Rows) -> prl.Losses:
        losses = super().losses(rows)
        return prl.Losses({self.trained: losses.of[self.trained] + 0.0 * self.value(rows.now).mean()}, losses.metrics)


class ScaledSum(prl.REINFORCE):
    """Multiplies the loss where it is summed."""

    def summed(self, *arguments: Any, **metrics: Any) -> prl.Losses:
        losses = super().summed(*arguments, **metrics)
        return replace(losses, of={self.trained: 3.0 * losses.of[self.trained]})


@pytest.mark.parametrize(
    ("own", "of_us", "factor"), [(Scaled, prl.PPO, 3), (Added, prl.A2C, 1), (ScaledSum, prl.REINFORCE, 3)]
)
def test_gradients_are_those_of_the_loss_that_a_subclass_returns(own: Any, of_us: Any, factor: float) -> None:
    ours, changed = (algorithm_of(kind) for kind in (of_us, own))
    expected, found = (algorithm.compute_gradients(batch_for(algorithm))[0] for algorithm in (ours, changed))
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], factor * gradient, rtol=1e-4, atol=1e-6)


# Policies


DISTRIBUTIONS: dict[str, Any] = {
    "diagonal": prl.heads.GaussianPolicy(),
    "spherical": prl.heads.GaussianPolicy(covariance="spherical", initial_log_std=0.3),
    "fixed": prl.heads.GaussianPolicy(covariance="fixed", initial_log_std=-0.5),
}


@pytest.mark.quick_share(0.4, long=0.7)
@pytest.mark.parametrize("shape", [(2,), (2, 3), ()], ids=str)
@pytest.mark.parametrize("entropy_coef", [0.0, 0.05])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", [prl.PPO, prl.A2C])
def test_gradients_of_gaussian_policies_are_those_of_autograd(
    kind: Any, distribution: str, entropy_coef: float, shape: tuple[int, ...]
) -> None:
    chosen = {"distribution": DISTRIBUTIONS[distribution], "entropy_coef": entropy_coef}
    pair = pair_of(kind, hyper_parameters=chosen, envs=envs_with(spaces.Box(-1, 1, shape)))
    for number in range(5):
        ours, autograds = (algorithm.update(batch_for(algorithm, number)).metrics for algorithm in pair)
        torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-5)
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "distribution",
    [prl.heads.GaussianPolicy(bounded_mean=True), prl.heads.GaussianPolicy(min_log_std=-1.0), prl.heads.BetaPolicy()],
    ids=repr,
)
def test_other_distributions_are_left_to_autograd(distribution: Any) -> None:
    algorithm = algorithm_of(
        prl.PPO, hyper_parameters={"distribution": distribution}, envs=envs_with(spaces.Box(-1, 1, (2,)))
    )
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    assert losses.gradients.keys() == set(algorithm.value.parameters())


@pytest.mark.parametrize(
    "options", [{}, {"dual_clip": 1.5}, {"clip_param": 0.1}, {"dual_clip": 1.01, "clip_param": 0.3}], ids=str
)
@pytest.mark.parametrize("kind", ["plain", "shared body"])
def test_gradients_of_ppo_are_those_of_its_objective(options: dict[str, Any], kind: str) -> None:
    """Some ratios of the batch are far beyond the clip, on both sides and for advantages of both signs."""
    algorithm = algorithm_of(
        prl.PPO,
        hyper_parameters={"entropy_coef": 0.03, "normalize_advantages": False} | options,
        shared_body=kind == "shared body",
    )
    batch = rollout_batch(algorithm, size=64)
    batch[LOGP] = batch[LOGP] + 0.5 * torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    rows = algorithm.read(batch)
    policy, clip = algorithm.pi(rows.now), algorithm.clip_param
    ratio = (policy.log_prob(rows.action) - batch[LOGP]).exp()
    gain = torch.minimum(ratio * batch[ADV], ratio.clamp(1 - clip, 1 + clip) * batch[ADV])
    if algorithm.dual_clip is not None:
        gain = torch.where(batch[ADV] < 0, torch.maximum(gain, algorithm.dual_clip * batch[ADV]), gain)
    values = 0.5 * (algorithm.value(rows.now) - batch[RET]).square()
    loss = -gain.mean() + 0.5 * values.mean() - 0.03 * policy.entropy().mean()
    expected = torch.autograd.grad(loss, list(algorithm.trained.parameters.values()))
    gradients, result = algorithm.compute_gradients(batch)
    assert 0 < result.metrics["clip_fraction"] < 1
    for found, wanted in zip(gradients.values(), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_loss_equals_the_sum_of_its_metrics_with_and_without_autograd() -> None:
    for algorithm in pair_of(prl.PPO, hyper_parameters={"entropy_coef": 0.1}):
        losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
        metrics = losses.metrics
        expected = metrics["policy_loss"] + 0.5 * metrics["value_loss"] - 0.1 * metrics["entropy"]
        torch.testing.assert_close(losses.of[algorithm.trained].detach(), expected)


def test_a_gradient_cannot_be_computed_after_another_evaluation_or_twice() -> None:
    algorithm = algorithm_of(prl.A2C)
    rows = algorithm.read(batch_for(algorithm))
    first, second = algorithm.likelihood(rows), algorithm.likelihood(rows)
    with pytest.raises(RuntimeError, match="evaluate the batch again"):
        first.step(torch.ones(8, 1), None)
    second.step(torch.ones(8, 1), None)
    with pytest.raises(RuntimeError, match="evaluate the batch again"):
        second.step(torch.ones(8, 1), None)


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=["discrete", "box"])
@pytest.mark.parametrize("kind", [prl.PPO, prl.A2C])
def test_a_copy_learns_like_the_original_and_independently_of_it(kind: Any, space: Any) -> None:
    original = algorithm_of(kind, envs=envs_with(space))
    original.update(batch_for(original))
    copied, before = copy.deepcopy(original), copy.deepcopy(original.get_weights())
    for number in range(1, 4):
        copied.update(batch_for(copied, number))
    torch.testing.assert_close(original.get_weights(), before, rtol=0, atol=0)
    for number in range(1, 4):
        original.update(batch_for(original, number))
    torch.testing.assert_close(copied.get_weights(), original.get_weights(), rtol=0, atol=0)
