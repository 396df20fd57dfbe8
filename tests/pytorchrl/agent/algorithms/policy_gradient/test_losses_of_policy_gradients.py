"""Losses of policy gradients are ordinary functions of the policy that acts, and their gradients are those of torch."""

import copy
from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ADV, IADV, IRET, LOGP, OBS, OBS2
from tests.support.by_hand import envs_with
from tests.support.rollout_batches import rollout_batch

ON_A_LOSS = (prl.A2C, prl.PPO, prl.REINFORCE, prl.IMPALA, prl.RND)


def algorithm_of(kind: Any, *, hyper_parameters: Any = None, envs: Any = None, **actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs or envs_with(spaces.Discrete(3))
    chosen = {"hidden_sizes": (7, 5), "activation": "tanh"} | actor
    body = prl.OnPolicyActor.create_factory(**chosen)("cpu", envs)
    algorithm = kind.create_factory(**(hyper_parameters or {}))("cpu", body, envs)
    algorithm.seed(0)
    return algorithm


def batch_for(algorithm: Any, number: int = 0, size: int = 8) -> dict[str, Any]:
    batch: dict[str, Any] = rollout_batch(algorithm, size, seed=number)
    random = torch.Generator().manual_seed(number)
    if isinstance(algorithm, prl.RND):
        batch |= {key: torch.randn(size, 1, generator=random) for key in (IRET, IADV)}
        batch[OBS2] = torch.randn(batch[OBS].shape, generator=random)
    return batch


# One policy


def tempered(kind: Any) -> Any:
    """A subclass whose policy is flatter than that of its network."""

    def policy(self: Any, view: Any, exploration: Any) -> prl.outputs.Categorical:
        return prl.outputs.Categorical(super(cls, self).policy(view, exploration).logits / 3)

    cls = type(f"Tempered{kind.__name__}", (kind,), {"policy": policy})
    return cls


def scheme_of(kind: Any, storage: Any) -> prl.Scheme:
    return prl.Scheme(
        kind.create_factory(test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        storage,
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=1,
    )


def sharpen(algorithm: Any) -> None:
    """Make the actions of the policy's network so likely that a temperature matters."""
    with torch.no_grad():
        algorithm.pi.head.layer.weight.mul_(50)


@pytest.mark.parametrize("kind", [prl.PPO, prl.RND])
def test_an_overridden_policy_is_that_of_the_losses_too(kind: Any) -> None:
    scheme = scheme_of(tempered(kind), prl.GAEBuffer.create_factory(size=16))
    sharpen(scheme.algorithm)
    scheme.collect(10_000)
    metrics = next(iter(scheme.update()))
    assert abs(float(metrics["kl"])) < 1e-6
    assert metrics["clip_fraction"] == 0
    scheme.close()


@pytest.mark.parametrize("kind", [prl.A2C, prl.REINFORCE, prl.TRPO])
def test_losses_depend_on_an_overridden_policy_and_not_on_that_of_the_network(kind: Any) -> None:
    algorithms = [algorithm_of(each) for each in (kind, tempered(kind))]
    for algorithm in algorithms:
        sharpen(algorithm)
    batch = batch_for(algorithms[1])
    ours, own = (algorithm.update(copy.deepcopy(batch)).metrics for algorithm in algorithms)
    assert own["entropy"] > ours["entropy"] + 0.01
    assert own["policy_loss"] != ours["policy_loss"]


def test_the_surrogate_of_trpo_begins_as_the_mean_advantage_of_an_overridden_policy() -> None:
    algorithm = algorithm_of(tempered(prl.TRPO), hyper_parameters={"normalize_advantages": False})
    sharpen(algorithm)
    batch = batch_for(algorithm)
    _, surrogate = algorithm.surrogate(batch)
    torch.testing.assert_close(surrogate.detach(), batch[ADV].mean())


def test_importance_ratios_of_storages_are_those_of_an_overridden_policy() -> None:
    scheme = scheme_of(tempered(prl.IMPALA), prl.VTraceBuffer.create_factory(size=16))
    sharpen(scheme.algorithm)
    scheme.collect(10_000)
    actor: Any = scheme.actor
    stored = scheme.storage.get_all_buffer_data()
    log_prob, _ = actor.evaluate_actions(stored[OBS], None, torch.zeros(16, 2, 1), stored["Action"])
    torch.testing.assert_close(log_prob, stored[LOGP])
    scheme.close()


# Gradients


@pytest.mark.parametrize("kind", ON_A_LOSS)
def test_the_loss_is_the_sum_of_its_metrics_which_have_no_graph(kind: Any) -> None:
    algorithm = algorithm_of(kind, hyper_parameters={"entropy_coef": 0.1, "value_loss_coef": 0.3})
    losses = algorithm.losses(algorithm.read(batch_for(algorithm)))
    metrics = losses.metrics
    expected = metrics["policy_loss"] + 0.3 * metrics["value_loss"] - 0.1 * metrics["entropy"]
    torch.testing.assert_close(losses.of[algorithm.trained].detach(), expected)
    assert all(loss.requires_grad for loss in losses.of.values())
    assert not any(metric.requires_grad for metric in metrics.values())


@pytest.mark.parametrize("optimizer", [prl.TorchOptimizer(torch.optim.SGD), prl.LBFGS()], ids=["SGD", "LBFGS"])
def test_trpos_value_function_is_fitted_by_other_optimisers(optimizer: Any) -> None:
    algorithm = algorithm_of(prl.TRPO, hyper_parameters={"optimizer": optimizer, "lr_value": 0.1, "value_epochs": 1})
    batch = batch_for(algorithm)
    losses = [float(algorithm.update(batch).metrics["value_loss"]) for _ in range(3)]
    assert losses[2] < losses[1] < losses[0]
