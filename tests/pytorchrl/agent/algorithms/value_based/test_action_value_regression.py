"""Gradients of action values that are computed without autograd equal those of autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS, OBS2, REW
from tests.support.by_hand import MORE_THAN_PLAIN, envs_with, replayed

ACTIONS = np.array([[0], [2], [1], [1], [0]])


def algorithm_of(kind: Any = prl.DQN, *, envs: Any = None, **actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs or envs_with(spaces.Discrete(3))
    body = prl.OffPolicyActor.create_factory(**({"hidden_sizes": (7, 5)} | actor))("cpu", envs)
    algorithm = kind.create_factory(lr=1e-2)("cpu", body, envs)
    algorithm.seed(0)
    return algorithm


def by_autograd(kind: Any = prl.DQN, **chosen: Any) -> Any:
    """The same algorithm, with gradients from autograd."""
    algorithm = algorithm_of(kind, **chosen)
    algorithm.regression._network = None
    return algorithm


def batch_of(number: int = 0) -> dict[str, Any]:
    batch: dict[str, Any] = replayed(ACTIONS, number)
    batch[REW] = 4 * batch[REW]  # so that some errors are beyond Huber's threshold
    return batch


def bypasses_autograd(algorithm: Any) -> bool:
    losses = algorithm.losses(algorithm.read(batch_of()))
    assert losses.of[algorithm.trained].requires_grad == (not losses.gradients)
    return bool(losses.gradients)


class Squared(prl.DQN):
    """The squared loss."""

    def head(self) -> Any:
        return Values(huber_threshold=None)


class SmallThreshold(prl.DQN):
    """The Huber loss with a threshold of 0.1."""

    def head(self) -> Any:
        return Values(huber_threshold=0.1)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("hidden_sizes", [(), (7,), (7, 5), (5, 5, 5), (40, 24)], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", [prl.DQN, prl.MunchausenDQN, Squared, SmallThreshold])
def test_updates_are_those_of_autograd(kind: Any, activation: str, hidden_sizes: tuple[int, ...]) -> None:
    chosen = {"hidden_sizes": hidden_sizes, "activation": activation}
    ours, autograds = algorithm_of(kind, **chosen), by_autograd(kind, **chosen)
    assert bypasses_autograd(ours)
    for number in range(4):
        result, expected = (algorithm.update(batch_of(number)) for algorithm in (ours, autograds))
        torch.testing.assert_close(result.metrics, expected.metrics)
        torch.testing.assert_close(result.errors, expected.errors)
    torch.testing.assert_close(ours.get_weights(), autograds.get_weights())


@pytest.mark.parametrize(
    "actor",
    [*MORE_THAN_PLAIN, {"dueling": True}],
    ids=str,
)
def test_other_layers_and_activations_are_left_to_autograd(actor: dict[str, Any]) -> None:
    assert not bypasses_autograd(algorithm_of(**actor))


@pytest.mark.parametrize("kind", [prl.QRDQN, prl.ResidualDQN, prl.DiscreteCQL])
def test_other_kinds_of_values_and_losses_are_left_to_autograd(kind: Any) -> None:
    assert not bypasses_autograd(algorithm_of(kind))


@pytest.mark.parametrize("part", [lambda q: q, lambda q: q.body.hidden, lambda q: q.head, lambda q: q.head.numbers])
def test_hooks_are_called(part: Any) -> None:
    algorithm = algorithm_of()
    called = []
    handle = part(algorithm.q).register_forward_hook(lambda *_: called.append(1))
    assert not bypasses_autograd(algorithm)
    assert called
    handle.remove()
    assert bypasses_autograd(algorithm)


class OtherLosses(prl.DQN):
    """Overrides the loss."""

    def losses(self, rows: Rows) -> Losses:
        return Losses({self.trained: 3 * super().losses(rows).of[self.trained]})


class OtherLossesOfValues(prl.DQN):
    """Overrides the loss of the values of all actions."""

    def losses_of(self, values: Any, rows: Rows, target: Any) -> Losses:
        return Losses({self.trained: 3 * super().losses_of(values, rows, target).of[self.trained]})


@pytest.mark.parametrize("kind", [OtherLosses, OtherLossesOfValues])
def test_an_overridden_loss_determines_the_gradients(kind: Any) -> None:
    theirs, _ = algorithm_of(kind).compute_gradients(batch_of())
    plain, _ = algorithm_of().compute_gradients(batch_of())
    for name, gradient in plain.items():
        torch.testing.assert_close(theirs[name], 3 * gradient)


def test_gradients_are_those_of_autograd_for_dict_observations() -> None:
    envs = envs_with(spaces.Discrete(3))
    envs.observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(3)})
    gradients = []
    for algorithm in (algorithm_of(envs=envs), by_autograd(envs=envs)):
        batch = batch_of()
        for key in (OBS, OBS2):
            batch[key] = {"a": batch[key][:, :2], "b": torch.tensor([[0], [2], [1], [1], [0]])}
        gradients.append(algorithm.compute_gradients(batch)[0])
    torch.testing.assert_close(*gradients)
