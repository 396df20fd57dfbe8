"""PCL's inconsistencies and gradients equal those of a slow numpy version; the softmax policy is consistent."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW
from tests.support.by_hand import envs_with, layer_of, numeric_gradient, numpy
from tests.support.by_hand import linear as layer
from tests.support.segments import PATHS, STEPS, backwards, continuing, linear, packed, sequences_of, weights_of

TAU = 0.3
SPACES = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}


def batch_of(kind: str, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    discrete = generator.integers(0, 3, (STEPS, PATHS, 1))
    real = generator.normal(size=(STEPS, PATHS, 2)).astype(np.float32)
    return sequences_of(discrete if kind == "discrete" else real, seed)


def inconsistencies(
    batch: dict[str, torch.Tensor], log_prob: Any, value: Any, next_value: Any, length: int
) -> NDArray[np.float64]:
    """(T, B), by the definition: ``-V(s) + gamma**d V(s') + sum gamma**i (r - tau log pi)``."""
    reward, discount = (numpy(batch[key])[..., 0] for key in (REW, DISCOUNT))
    found = np.zeros((STEPS, PATHS))
    for t, b in backwards(batch):
        total, power, step = -value[t, b], 1.0, t
        for taken in range(length):
            total += power * (reward[step, b] - TAU * log_prob[step, b])
            power *= discount[step, b]
            if taken + 1 == length or not continuing(batch, step, b):
                break
            step += 1
        found[t, b] = total + power * (value[step + 1, b] if continuing(batch, step, b) else next_value[step, b])
    return found


@pytest.mark.parametrize("length", [1, 2, 10])
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("together", [False, True])
def test_losses_errors_and_gradients_equal_those_of_a_numpy_version(kind: str, length: int, together: bool) -> None:
    algorithm = linear(prl.PCL, SPACES[kind], tau=TAU, path_length=length, together=together, value_loss_coef=0.7)
    batch = batch_of(kind)
    pi, values = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)
    log_std = None if kind == "discrete" else numpy(algorithm.pi.head.log_std)
    obs, obs2, action, weights = (*(numpy(batch[key]) for key in (OBS, OBS2, ACT)), weights_of(batch))

    def errors() -> NDArray[np.float64]:
        output = layer(pi, obs)
        if log_std is None:
            log_probs = output - np.log(np.exp(output).sum(-1, keepdims=True))
            log_prob = np.take_along_axis(log_probs, action.astype(int), -1)[..., 0]
        else:
            z = (action - output) / np.exp(log_std)
            log_prob = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
        return inconsistencies(batch, log_prob, layer(values, obs)[..., 0], layer(values, obs2)[..., 0], length)

    def loss() -> float:
        return float((weights * 0.5 * errors() ** 2).sum())

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["inconsistency"], loss(), rtol=1e-4)
    for place in backwards(batch):
        np.testing.assert_allclose(numpy(result.errors)[..., 0][place], abs(errors()[place]), rtol=1e-3, atol=1e-5)
    names = ["policy_and_value.0", "policy_and_value.1"] if together else ["policy", "value"]
    # Gradients of the squared inconsistency, the policy's divided by tau; equations of section 5.
    expected = {
        f"{names[0]}.head.layer.weight": (pi[0], 1 / TAU),
        f"{names[0]}.head.layer.bias": (pi[1], 1 / TAU),
        f"{names[1]}.head.layer.weight": (values[0], 0.7 if together else 1.0),
        f"{names[1]}.head.layer.bias": (values[1], 0.7 if together else 1.0),
    }
    if log_std is not None:
        expected[f"{names[0]}.head.log_std"] = log_std, 1 / TAU
    assert gradients.keys() == expected.keys()
    for name, (parameter, scale) in expected.items():
        theirs = scale * numeric_gradient(loss, parameter)
        np.testing.assert_allclose(numpy(gradients[name]), theirs, rtol=2e-3, atol=1e-4, err_msg=name)


def test_unified_pcl_adds_the_gradients_of_policy_and_values() -> None:
    algorithm = linear(prl.UnifiedPCL, SPACES["discrete"], tau=TAU, path_length=2, value_loss_coef=0.7)
    batch = batch_of("discrete")
    q = layer_of(algorithm.q.head.numbers)
    obs, obs2, action, weights = (*(numpy(batch[key]) for key in (OBS, OBS2, ACT)), weights_of(batch))

    def outputs(q: Any) -> tuple[Any, Any, Any]:
        now, after = layer(q, obs), layer(q, obs2)
        value, next_value = (TAU * np.log(np.exp(each / TAU).sum(-1)) for each in (now, after))
        return (np.take_along_axis(now, action.astype(int), -1)[..., 0] - value) / TAU, value, next_value

    fixed = outputs([part.copy() for part in q])

    def loss_by_policy() -> float:
        return float((weights * 0.5 * inconsistencies(batch, outputs(q)[0], *fixed[1:], 2) ** 2).sum())

    def loss_by_values() -> float:
        return float((weights * 0.5 * inconsistencies(batch, fixed[0], *outputs(q)[1:], 2) ** 2).sum())

    gradients, _ = algorithm.compute_gradients(batch)
    for name, parameter in zip(("weight", "bias"), q, strict=True):
        theirs = numeric_gradient(loss_by_policy, parameter) + 0.7 * numeric_gradient(loss_by_values, parameter)
        found = numpy(gradients[f"q.head.numbers.layer.{name}"])
        np.testing.assert_allclose(found, theirs, rtol=2e-3, atol=1e-4)


def test_the_softmax_policy_and_the_smooth_maximum_are_consistent() -> None:
    """For one-step episodes with rewards r, ``V = tau log sum exp(r / tau)`` and ``pi = exp((r - V) / tau)``."""
    rewards = np.array([1.0, -0.5, 0.2])
    algorithm, batch = linear(prl.UnifiedPCL, SPACES["discrete"], tau=TAU), batch_of("discrete")
    with torch.no_grad():
        algorithm.q.head.numbers.layer.weight.zero_()
        algorithm.q.head.numbers.layer.bias.copy_(torch.from_numpy(rewards))
    batch[DISCOUNT].zero_()
    batch[REW] = torch.from_numpy(rewards).float()[batch[ACT][..., 0]][..., None]
    gradients, result = algorithm.compute_gradients(batch)
    assert result.errors.max() < 1e-6
    assert all(gradient.abs().max() < 1e-5 for gradient in gradients.values())


def test_packed_episodes_give_the_gradients_of_padded_ones() -> None:
    algorithm, batch = linear(prl.PCL, SPACES["discrete"], path_length=3), batch_of("discrete")
    one, _ = algorithm.compute_gradients(batch)
    other, _ = algorithm.compute_gradients(packed(batch)[0])
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient)


def test_a_shared_body_is_refused_unless_policy_and_value_are_trained_together() -> None:
    envs = envs_with(SPACES["discrete"])
    shared = prl.OnPolicyActor.create_factory(hidden_sizes=(4,), shared_body=True)
    with pytest.raises(ValueError, match="share parameters"):
        prl.PCL.create_factory()("cpu", shared("cpu", envs), envs)
    algorithm = prl.PCL.create_factory(together=True)("cpu", shared("cpu", envs), envs)
    algorithm.update(batch_of("discrete"))
    assert algorithm.updates == 1
