"""Gradients of critics that are computed without autograd equal those of autograd."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS, WEIGHTS
from tests.pytorchrl.agent.algorithms.actor_critic.test_ddpg import ACTIONS, SPACE, n_step_batch
from tests.support.by_hand import MORE_THAN_PLAIN, envs_with, replayed


def algorithm_of(kind: Any = prl.TD3, **actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs_with(SPACE)
    body = prl.OffPolicyActor.create_factory(**({"hidden_sizes": (7, 5)} | actor))("cpu", envs)
    algorithm = kind.create_factory(lr_q=1e-2, lr_pi=1e-2)("cpu", body, envs)
    algorithm.seed(0)
    return algorithm


def by_autograd(kind: Any = prl.TD3, **actor: Any) -> Any:
    """The same algorithm, with the critics' gradients from autograd."""
    algorithm = algorithm_of(kind, **actor)
    algorithm.regression._sweep = None
    return algorithm


@pytest.mark.quick_share(0.12, long=0.5)
@pytest.mark.parametrize("hidden_sizes", [(), (7,), (7, 5), (5, 5, 5), (40, 24)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(
    "kind", [prl.TD3, prl.TD3BC, prl.DDPG, prl.IQL, prl.XQL, prl.CRR, prl.SAC, prl.SACWithValue, prl.REDQ]
)
def test_updates_are_those_of_autograd(kind: Any, activation: str, hidden_sizes: tuple[int, ...]) -> None:
    actor = {"hidden_sizes": hidden_sizes, "activation": activation}
    ours, autograds = (make(kind, **actor) for make in (algorithm_of, by_autograd))
    batches = [n_step_batch(seed) for seed in range(4)]
    for number, batch in enumerate(batches):
        batch[WEIGHTS] = torch.rand((5, 1), generator=torch.Generator().manual_seed(number))
        result, expected = (algorithm.update(dict(batch)) for algorithm in (ours, autograds))
        torch.testing.assert_close(result.metrics, expected.metrics)
        torch.testing.assert_close(result.errors, expected.errors)
    torch.testing.assert_close(ours.get_weights(), autograds.get_weights())


def test_no_autograd_graph_is_built_for_plain_critics() -> None:
    algorithm = algorithm_of()
    losses = algorithm.losses(algorithm.read(n_step_batch()))
    assert not losses.of[algorithm.train_critics].requires_grad
    assert losses.gradients.keys() == set(algorithm.train_critics.parameters.values())


def test_returned_gradients_are_not_changed_by_the_next_computation() -> None:
    algorithm = algorithm_of()
    gradients, _ = algorithm.compute_gradients(n_step_batch())
    before = {name: gradient.clone() for name, gradient in gradients.items()}
    algorithm.compute_gradients(n_step_batch(1))
    torch.testing.assert_close(gradients, before, rtol=0, atol=0)


def test_updates_are_those_of_autograd_if_the_batch_size_changes() -> None:
    ours, autograds = algorithm_of(), by_autograd()
    whole = n_step_batch()
    for rows in (3, 5, 2):
        batch = {key: value[:rows] for key, value in whole.items()}
        for algorithm in (ours, autograds):
            algorithm.update(dict(batch))
    torch.testing.assert_close(ours.get_weights(), autograds.get_weights())


@pytest.mark.parametrize(
    "actor",
    [*MORE_THAN_PLAIN, {"late_action": 1}],
    ids=str,
)
def test_other_layers_and_activations_are_left_to_autograd(actor: dict[str, Any]) -> None:
    algorithm = algorithm_of(**actor)
    losses = algorithm.losses(algorithm.read(n_step_batch()))
    assert losses.of[algorithm.train_critics].requires_grad
    assert not losses.gradients


def test_hooks_of_a_critic_are_called() -> None:
    algorithm = algorithm_of()
    called = []
    algorithm.critics[1].register_forward_hook(lambda *_: called.append(1))
    algorithm.update(n_step_batch())
    assert called


class WithWeightPenalty(prl.TD3):
    """Scales the critics' loss and adds a penalty on their weights."""

    def losses(self, rows: Rows) -> Losses:
        losses = super().losses(rows)
        size = sum(parameter.square().sum() for parameter in self.train_critics.parameters.values())
        return Losses({**losses.of, self.train_critics: 3 * losses.of[self.train_critics] + size})


def test_an_overridden_loss_of_td3s_critics_determines_their_gradients() -> None:
    algorithm, plain = algorithm_of(WithWeightPenalty), by_autograd()
    gradients, _ = algorithm.compute_gradients(n_step_batch())
    of_errors, _ = plain.compute_gradients(n_step_batch())
    for name, parameter in algorithm.train_critics.parameters.items():
        expected = 3 * of_errors[f"critics.{name}"] + 2 * parameter.detach()
        torch.testing.assert_close(gradients[f"critics.{name}"], expected)


def test_updates_are_those_of_autograd_for_observations_in_double_precision() -> None:
    ours, autograds = algorithm_of(), by_autograd()
    batch = replayed(ACTIONS, 0)
    batch[OBS] = batch[OBS].double()
    assert isinstance(ours.actor.observation_space, spaces.Box)
    for algorithm in (ours, autograds):
        algorithm.update(dict(batch))
    torch.testing.assert_close(ours.get_weights(), autograds.get_weights())


class OtherLosses(prl.SAC):
    """Overrides the losses of critics and policy."""

    def losses(self, rows: Rows) -> Losses:
        losses = super().losses(rows)
        return Losses({**losses.of, self.train_critics: 3 * losses.of[self.train_critics]})


class OtherCriticLosses(prl.SAC):
    """Overrides the loss of the critics."""

    def critic_losses(self, outputs: Sequence[Value], target: Value, rows: Rows) -> Losses:
        losses = super().critic_losses(outputs, target, rows)
        return Losses({self.train_critics: 3 * losses.of[self.train_critics]})


class OtherValues(prl.SAC):
    """Overrides which values enter the critics' loss."""

    def values_of_taken(self, outputs: Sequence[Value], rows: Rows) -> Sequence[Value]:
        return [*outputs, *outputs, *outputs]


@pytest.mark.parametrize("kind", [OtherLosses, OtherCriticLosses, OtherValues])
def test_an_overridden_loss_of_sacs_critics_determines_their_gradients(kind: Any) -> None:
    theirs, _ = algorithm_of(kind).compute_gradients(n_step_batch())
    plain, _ = algorithm_of(prl.SAC).compute_gradients(n_step_batch())
    for name, gradient in plain.items():
        times = 3 if name.startswith("critics.") else 1
        torch.testing.assert_close(theirs[name], times * gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [prl.TQC, prl.QRSAC, prl.SACDecomposed, prl.CQL, prl.EDAC, prl.DroQ])
def test_critics_with_other_losses_or_layers_are_left_to_autograd(kind: Any) -> None:
    algorithm = algorithm_of(kind)
    assert algorithm.losses(algorithm.read(n_step_batch())).of[algorithm.train_critics].requires_grad
