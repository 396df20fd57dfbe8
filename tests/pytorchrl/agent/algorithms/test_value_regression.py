"""Gradients of value functions that are computed beside the loss are those of autograd."""

from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.policy_gradient.value_regression import ValueRegression
from storages.transition import IADV, IRET, OBS, OBS2
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


def regressions_of(algorithm: Any) -> list[ValueRegression]:
    return [part for part in vars(algorithm).values() if isinstance(part, ValueRegression)]


def pair_of(kind: Any, **chosen: Any) -> tuple[Any, Any]:
    """An algorithm, and the same one that leaves value functions to autograd."""
    ours, autograds = (algorithm_of(kind, **chosen) for _ in range(2))
    assert all(regression._network is not None for regression in regressions_of(ours))
    for regression in regressions_of(autograds):
        regression._network = None
    return ours, autograds


def batch_for(algorithm: Any, number: int = 0) -> dict[str, Any]:
    batch: dict[str, Any] = rollout_batch(algorithm, seed=number)
    random = torch.Generator().manual_seed(number)
    if isinstance(algorithm, prl.RND):
        batch |= {key: torch.randn(len(batch[OBS]), 1, generator=random) for key in (IRET, IADV)}
        batch[OBS2] = torch.randn(batch[OBS].shape, generator=random)
    return batch


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
def test_gradients_are_weighted_and_the_loss_that_is_logged_is_not(kind: Any, value_loss_coef: float) -> None:
    pair = pair_of(kind, hyper_parameters={"value_loss_coef": value_loss_coef})
    (ours, result), (autograds, expected) = (algorithm.compute_gradients(batch_for(algorithm)) for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.metrics, expected.metrics, rtol=1e-4, atol=1e-6)


def test_no_graph_is_built_for_a_plain_value_function() -> None:
    algorithm = algorithm_of(prl.A2C)
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    assert losses.gradients.keys() == set(algorithm.value.parameters())
    # The policy's gradient is autograd's.
    assert losses.of[algorithm.trained].requires_grad


@pytest.mark.parametrize(
    "actor",
    [*MORE_THAN_PLAIN, {"shared_body": True}],
    ids=str,
)
def test_what_is_more_than_layers_of_its_own_is_left_to_autograd(actor: dict[str, Any]) -> None:
    algorithm = algorithm_of(prl.PPO, **actor)
    assert not algorithm.losses(algorithm.read(batch_for(algorithm))).gradients


def test_clipped_losses_are_left_to_autograd() -> None:
    algorithm = algorithm_of(prl.PPO, hyper_parameters={"use_clipped_value_loss": True})
    assert not algorithm.losses(algorithm.read(batch_for(algorithm))).gradients


@pytest.mark.parametrize("part", [lambda value: value, lambda value: value.body.hidden, lambda value: value.head])
def test_hooks_are_called(part: Any) -> None:
    algorithm = algorithm_of(prl.PPO)
    called = []
    handle = part(algorithm.value).register_forward_hook(lambda *_: called.append(1))
    algorithm.update(batch_for(algorithm))
    assert called
    handle.remove()
    assert algorithm.losses(algorithm.read(batch_for(algorithm))).gradients


def test_observations_of_several_parts_are_learnt_from() -> None:
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


def test_observations_are_normalised() -> None:
    pair = pair_of(prl.PPO, normalize_observations=True)
    gradients = []
    for algorithm in pair:
        batch = batch_for(algorithm)
        algorithm.actor.normalization.add(3 * batch[OBS] + 1)
        algorithm.actor.normalization.use_newest()
        gradients.append(algorithm.compute_gradients(batch)[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", [prl.TorchOptimizer(torch.optim.SGD), prl.LBFGS()], ids=["SGD", "LBFGS"])
def test_trpos_values_are_learnt_by_any_optimiser(optimizer: Any) -> None:
    pair = pair_of(prl.TRPO, hyper_parameters={"optimizer": optimizer, "value_epochs": 3})
    for algorithm in pair:
        algorithm.update(batch_for(algorithm))
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-3, atol=1e-5)
