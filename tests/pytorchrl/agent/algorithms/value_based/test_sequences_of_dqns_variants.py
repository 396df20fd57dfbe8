"""Updates of DQN's variants from sequences equal those of a reference that goes through them step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, OBS2, REW, WEIGHTS, WINDOW
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand


def gap(values: Tensor, action: int) -> Tensor:
    return values[action] - values.max()


def pal(now: Tensor, following: Tensor, action: int, reward: Tensor, discount: Tensor) -> Tensor:
    advantage = gap(now, action) if discount == 0 else gap(now, action).maximum(gap(following, action))
    return reward + discount * following.max() + 0.9 * advantage


def dpp(now: Tensor, following: Tensor, action: int, reward: Tensor, discount: Tensor) -> Tensor:
    mean_now, mean_next = ((torch.softmax(values, 0) * values).sum() for values in (now, following))
    return now[action] + reward + discount * mean_next - mean_now


def residual(now: Tensor, following: Tensor, action: int, reward: Tensor, discount: Tensor) -> Tensor:
    return reward + discount * following.max()


VARIANTS: dict[str, tuple[type[prl.DQN], Callable[..., Tensor]]] = {
    "PAL": (prl.PAL, pal),
    "DPP": (prl.DPP, dpp),
    "ResidualDQN": (prl.ResidualDQN, residual),
}


@pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES if "burn" not in name)],
)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_update_equals_that_of_a_step_by_step_reference(name: str, sequences: str) -> None:
    cls, target_of = VARIANTS[name]
    scheme = off_policy_scheme(cls, "gru", *SEQUENCES[sequences])
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.DQN)
    network, target_network, learns = algorithm.q, algorithm.q_target, algorithm.q is algorithm.q_target
    if not learns:
        perturb(target_network, 1, 0.1)
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    for b in range(6):
        features, _ = states_by_hand(network.body, batch, b, stored=True)
        target_features, states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            action = int(batch[ACT][t, b, 0])
            following = next_features_with_gradient(target_network.body, batch, b, t, states, learns)
            values: list[Any] = [target_network.head(each).values[0] for each in (target_features[t], following)]
            target = target_of(*values, action, batch[REW][t, b, 0], batch[DISCOUNT][t, b, 0])
            error = network.head(features[t]).values[0, action] - (target if learns else target.detach())
            errors[t, b] = error.detach().abs()
            loss = loss + batch[MASK][t, b, 0] * batch[WEIGHTS][b, 0] * F.huber_loss(error, torch.zeros(()))
    loss = loss / batch[MASK].sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["loss"], loss.detach())
    torch.testing.assert_close(result.info[ERRORS], errors)
    for key, gradient in zip(dict(network.named_parameters()), expected, strict=True):
        torch.testing.assert_close(gradients[f"q.{key}"], gradient, atol=1e-5, rtol=1e-4)
    scheme.close()


def next_features_with_gradient(body: Any, batch: Any, b: int, t: int, states: list[Any], learns: bool) -> Any:
    """Features of the next observation; gradients, if any, pass through it and not through the steps before it."""
    if not learns:
        return next_features(body, batch, b, t, states)
    features, _ = body(batch[OBS2][t, b : b + 1], states[t + int(batch[WINDOW][t, b]) - 1], torch.zeros(1, 1))
    return features
