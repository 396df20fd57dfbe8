"""Gradients of deterministic policies that are computed without autograd equal those of autograd."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import DeterministicPolicy
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import MASK, OBS, OBS2
from tests.pytorchrl.agent.algorithms.actor_critic.test_ddpg import SPACE, n_step_batch
from tests.pytorchrl.agent.algorithms.test_rows import BOX, KINDS, batch_of
from tests.support.by_hand import MORE_THAN_PLAIN, envs_with
from tests.support.toys import continuous


def algorithm_of(kind: Any = prl.DDPG, *, envs: Any = None, hyper_parameters: Any = None, **actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs or envs_with(SPACE)
    body = prl.OffPolicyActor.create_factory(**({"hidden_sizes": (7, 5)} | actor))("cpu", envs)
    algorithm = kind.create_factory(**{"lr_q": 1e-2, "lr_pi": 1e-2, **(hyper_parameters or {})})("cpu", body, envs)
    algorithm.seed(0)
    return algorithm


def pair_of(kind: Any = prl.DDPG, **chosen: Any) -> tuple[Any, Any]:
    """An algorithm, and the same one that leaves the policy's gradient to autograd."""
    ours, autograds = (algorithm_of(kind, **chosen) for _ in range(2))
    assert ours.policy_gradient._is_plain
    autograds.policy_gradient._is_plain = False
    return ours, autograds


def assert_same_gradients(pair: tuple[Any, Any], batch: dict[str, Any]) -> None:
    (ours, result), (autograds, expected) = (algorithm.compute_gradients(dict(batch)) for algorithm in pair)
    assert any(name.startswith("policy.") for name in ours)
    torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.metrics, expected.metrics, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.errors, expected.errors)


def bypasses_autograd(algorithm: Any, batch: dict[str, Any] | None = None) -> bool:
    losses = algorithm.losses_after_step(algorithm.read(n_step_batch() if batch is None else batch))
    has_gradients = not losses.gradients.keys().isdisjoint(algorithm.train_pi.parameters.values())
    assert losses.of[algorithm.train_pi].requires_grad != has_gradients
    return has_gradients


@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize("hidden_sizes", [(), (7,), (7, 5), (5, 5, 5), (40, 24)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("policy_delay", [1, 2])
@pytest.mark.parametrize("kind", [prl.DDPG, prl.TD3])
def test_updates_are_those_of_autograd(
    kind: Any, policy_delay: int, activation: str, hidden_sizes: tuple[int, ...]
) -> None:
    actor = {"hidden_sizes": hidden_sizes, "activation": activation}
    pair = pair_of(kind, hyper_parameters={"policy_delay": policy_delay}, **actor)
    for number in range(5):
        batch = n_step_batch(number)
        ours, autograds = (algorithm.update(dict(batch)) for algorithm in pair)
        assert ("policy_loss" in ours.metrics) == ((number + 1) % policy_delay == 0)
        torch.testing.assert_close(ours.metrics, autograds.metrics, rtol=1e-4, atol=1e-5)
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds, rtol=1e-3, atol=1e-5)


def test_gradients_can_be_computed_and_applied_separately() -> None:
    pair = pair_of()
    assert_same_gradients(pair, n_step_batch())
    ours, autograds = pair
    for number in range(3):
        gradients, _ = ours.compute_gradients(n_step_batch(number))
        before = {name: gradient.clone() for name, gradient in gradients.items()}
        # Gradients of another batch, computed in between, do not change them.
        ours.compute_gradients(n_step_batch(number + 10))
        torch.testing.assert_close(gradients, before, rtol=0, atol=0)
        ours.apply_gradients(gradients)
        autograds.apply_gradients(autograds.compute_gradients(n_step_batch(number))[0])
    torch.testing.assert_close(ours.get_weights(), autograds.get_weights(), rtol=1e-3, atol=1e-5)


def test_gradients_are_those_of_autograd_if_the_batch_size_changes() -> None:
    pair = pair_of()
    for rows in (3, 5, 2):
        assert_same_gradients(pair, {key: value[:rows] for key, value in n_step_batch().items()})


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd_for_every_kind_of_batch(kind: str) -> None:
    envs = envs_with(BOX)
    envs.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert_same_gradients(pair_of(envs=envs), batch_of(kind))


@pytest.mark.parametrize("kind", ["sequences", "burn-in", "padded"])
def test_observations_of_padding_do_not_affect_the_policys_gradients(kind: str) -> None:
    envs = envs_with(BOX)
    envs.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    algorithm, batch = algorithm_of(envs=envs), batch_of(kind)
    padding = batch[MASK] == 0
    assert padding.any()
    assert bypasses_autograd(algorithm, batch)
    gradients, changed = (
        algorithm.compute_gradients(batch | {OBS: batch[OBS].masked_fill(padding, number)})[0] for number in (3.0, 90.0)
    )
    for name in algorithm.train_pi.gradients():
        torch.testing.assert_close(changed[name], gradients[name])


def test_gradients_are_those_of_autograd_for_dict_observations() -> None:
    envs = envs_with(SPACE)
    envs.observation_space = spaces.Dict({"a": continuous(size=2), "b": spaces.Discrete(3)})
    batch: dict[str, Any] = n_step_batch()
    for key in (OBS, OBS2):
        batch[key] = {"a": batch[key][:, :2], "b": torch.tensor([[0], [2], [1], [1], [0]])}
    assert_same_gradients(pair_of(envs=envs), batch)


def test_gradients_are_those_of_autograd_for_normalised_observations() -> None:
    pair = pair_of(normalize_observations=True)
    for algorithm in pair:
        algorithm.actor.normalization.add(3 * n_step_batch(7)[OBS] + 1)
        algorithm.actor.normalization.use_newest()
    assert_same_gradients(pair, n_step_batch())


class SmallActions(prl.DDPG):
    """Takes actions within (-0.3, 0.3)."""

    def policy_head(self) -> Head:
        return DeterministicPolicy(0.3)


class UnboundedActions(prl.DDPG):
    """Takes unbounded actions."""

    def policy_head(self) -> Head:
        return DeterministicPolicy(squash=False)


def test_gradients_are_those_of_autograd_for_scaled_actions() -> None:
    assert_same_gradients(pair_of(SmallActions), n_step_batch())


class Scaled(nn.Module):
    """A feature extractor with a parameter."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.output_size = space.shape[0]
        self.scale = nn.Parameter(torch.ones(self.output_size))

    def forward(self, observation: Tensor) -> Tensor:
        return self.scale * observation


@pytest.mark.parametrize(
    "actor",
    [*MORE_THAN_PLAIN, {"batch_norm": True}, {"late_action": 1}, {"feature_extractor": Scaled}],
    ids=str,
)
def test_other_layers_and_activations_are_left_to_autograd(actor: dict[str, Any]) -> None:
    assert not bypasses_autograd(algorithm_of(**actor))


def test_a_policy_without_a_tanh_is_left_to_autograd() -> None:
    assert bypasses_autograd(algorithm_of(SmallActions))
    assert not bypasses_autograd(algorithm_of(UnboundedActions))


def test_recurrent_networks_are_left_to_autograd() -> None:
    envs = envs_with(BOX)
    envs.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert bypasses_autograd(algorithm_of(envs=envs), batch_of("sequences"))
    assert not bypasses_autograd(algorithm_of(envs=envs, memory="gru"), batch_of("sequences"))


@pytest.mark.parametrize(
    "part",
    [
        lambda algorithm: algorithm.pi,
        lambda algorithm: algorithm.pi.body.hidden,
        lambda algorithm: algorithm.pi.head,
        lambda algorithm: algorithm.critics[0],
        lambda algorithm: algorithm.critics[0].joint,
    ],
    ids=["policy", "policy: hidden layers", "policy: head", "critic", "critic: hidden layers"],
)
def test_hooks_are_called(part: Callable[[Any], nn.Module]) -> None:
    algorithm = algorithm_of()
    assert bypasses_autograd(algorithm)
    called = []
    handle = part(algorithm).register_forward_hook(lambda *_: called.append(1))
    assert not bypasses_autograd(algorithm)
    assert called
    handle.remove()
    assert bypasses_autograd(algorithm)


class OtherLoss(prl.TD3):
    """Overrides the policy's loss."""

    def policy_loss(self, rows: Rows) -> Tensor:
        return 3 * super().policy_loss(rows)


class OtherDelayedLosses(prl.TD3):
    """Overrides the losses of updates in which the policy learns."""

    def delayed_losses(self, rows: Rows) -> Losses:
        return Losses({self.train_pi: 3 * super().delayed_losses(rows).of[self.train_pi]})


class OtherPolicyLosses(prl.TD3):
    """Overrides the losses of the policy in all updates."""

    def policy_losses(self, rows: Rows) -> Losses:
        return Losses({group: 3 * loss for group, loss in super().policy_losses(rows).of.items()})


class OtherLaterLosses(prl.TD3):
    """Overrides the losses that are computed after the critics' step."""

    def losses_after_step(self, rows: Rows) -> Losses:
        return Losses({self.train_pi: 3 * super().losses_after_step(rows).of[self.train_pi]})


@pytest.mark.parametrize("kind", [OtherLoss, OtherDelayedLosses, OtherPolicyLosses, OtherLaterLosses])
def test_an_overridden_policy_loss_determines_the_gradients(kind: Any) -> None:
    delay = {"policy_delay": 1}
    theirs, _ = algorithm_of(kind, hyper_parameters=delay).compute_gradients(n_step_batch())
    plain, _ = algorithm_of(prl.TD3, hyper_parameters=delay).compute_gradients(n_step_batch())
    for name, gradient in plain.items():
        times = 3 if name.startswith("policy.") else 1
        torch.testing.assert_close(theirs[name], times * gradient, rtol=1e-4, atol=1e-6)


def test_td3bcs_policy_loss_is_left_to_autograd() -> None:
    assert not bypasses_autograd(algorithm_of(prl.TD3BC, hyper_parameters={"policy_delay": 1}))


def test_a_torch_optimizer_updates_the_policy_as_with_autograd() -> None:
    pair = pair_of(hyper_parameters={"optimizer": prl.TorchOptimizer(torch.optim.SGD)})
    for algorithm in pair:
        algorithm.update(n_step_batch())
    ours, autograds = (algorithm.get_weights() for algorithm in pair)
    torch.testing.assert_close(ours, autograds)
