"""TD3BC's policy loss and gradients equal those of numpy loops; all else is TD3's."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, OBS
from tests.support.by_hand import copies, layer_of, linear, numeric_gradient, numpy
from tests.support.comparison import assert_equal
from tests.support.soft_critics import made, n_step_batch


def policy_loss(policy: Any, critic: Any, batch: Any, alpha: float, scale: float | None = None) -> float:
    """Computed row by row; a scale that is passed is a constant for the policy's gradient."""
    rows = len(batch[OBS])
    actions = [np.tanh(linear(policy, batch[OBS][row])) for row in range(rows)]
    values = [linear(critic, np.hstack([batch[OBS][row], actions[row]]))[0] for row in range(rows)]
    if scale is None:
        scale = alpha / (sum(abs(value) for value in values) / rows)
    total = 0.0
    for row in range(rows):
        # The Box is [-3, 1]: middle -1, half range 2.
        distance = sum(((taken + 1) / 2 - ours) ** 2 for taken, ours in zip(batch[ACT][row], actions[row], strict=True))
        total += distance / 2 - scale * values[row]
    return float(total / rows)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 2.5])
def test_the_policys_loss_and_gradients_equal_those_of_numpy_loops(alpha: float) -> None:
    algorithm = made(prl.TD3BC, alpha=alpha, policy_delay=1)
    batch = n_step_batch()
    policy, critic = layer_of(algorithm.pi.head), layer_of(algorithm.critics[0].head)
    of_numpy = {key: numpy(value) for key, value in batch.items()}
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(
        result.metrics["policy_loss"], policy_loss(policy, critic, of_numpy, alpha), rtol=1e-4, atol=1e-6
    )
    actions = np.tanh(linear(policy, of_numpy[OBS]))
    scale = alpha / np.abs(linear(critic, np.hstack([of_numpy[OBS], actions]))).mean()
    for part, name in zip(policy, ("weight", "bias"), strict=True):
        gradient = numeric_gradient(lambda: policy_loss(policy, critic, of_numpy, alpha, scale), part)
        np.testing.assert_allclose(numpy(gradients[f"policy.head.layer.{name}"]), gradient, rtol=1e-3, atol=1e-5)


def test_critics_and_targets_learn_as_td3s() -> None:
    # Policies that do not learn stay equal.
    td3, ours = (made(cls, lr_pi=0.0, lr_q=3e-3) for cls in (prl.TD3, prl.TD3BC))
    targets = copies(td3.target_critics.state_dict())
    for _ in range(4):
        expected, result = (one.update(n_step_batch()) for one in (td3, ours))
        assert_equal([result.metrics["critic_loss"], result.errors], [expected.metrics["critic_loss"], expected.errors])
    assert_equal(ours.state_dict()["actor"], td3.state_dict()["actor"])
    assert_equal(ours.target_critics.state_dict(), td3.target_critics.state_dict())
    assert not any(torch.equal(weight, targets[name]) for name, weight in ours.target_critics.state_dict().items())


def test_if_all_values_are_zero_the_policys_gradients_are_those_of_cloning() -> None:
    algorithm, cloning = made(prl.TD3BC, policy_delay=1), made(prl.TD3BC, policy_delay=1, alpha=0.0)
    with torch.no_grad():
        for parameter in algorithm.critics.parameters():
            parameter.zero_()
    gradients, expected = (one.compute_gradients(n_step_batch())[0] for one in (algorithm, cloning))
    for name in ("policy.head.layer.weight", "policy.head.layer.bias"):
        assert expected[name].all()
        torch.testing.assert_close(gradients[name], expected[name])
