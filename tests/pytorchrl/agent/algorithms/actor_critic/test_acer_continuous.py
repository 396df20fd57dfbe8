"""The gradients of ACER for continuous actions equal those of a slow numpy version."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ACTPROBS, OBS, OBS2
from tests.support.by_hand import exploring, layer_of, numpy
from tests.support.by_hand import linear as layer
from tests.support.segments import PATHS, STEPS, backwards, linear, returns_by_hand, sequences_of, weights_of

SIZE, SAMPLES = 2, 3
SPACE = spaces.Box(-1, 1, (SIZE,), np.float32)


def batch_of(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    batch = sequences_of(generator.normal(size=(STEPS, PATHS, SIZE)).astype(np.float32), seed)
    acted = generator.normal(size=(STEPS, PATHS, 2 * SIZE))
    # The acting policy's means lie near the actions taken, so that some actions are less likely now.
    acted[..., :SIZE] = 0.5 * numpy(batch[ACT]) + 0.5 * acted[..., :SIZE]
    acted[..., SIZE:] = 0.3 * acted[..., SIZE:] - 0.2
    batch[ACTPROBS] = torch.from_numpy(acted).float()
    return batch


def log_density(action: Any, mean: Any, log_std: Any) -> Any:
    return (-0.5 * ((action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)


@pytest.mark.parametrize(("truncation", "trust_region"), [(0.7, 0.05), (0.7, None), (None, 0.05)])
def test_losses_errors_and_gradients_equal_those_of_a_numpy_version(
    truncation: float | None, trust_region: float | None
) -> None:
    algorithm = linear(
        prl.ACERContinuous,
        SPACE,
        truncation=truncation,
        trust_region=trust_region,
        entropy_coef=0.2,
        value_loss_coef=0.7,
        num_advantage_samples=SAMPLES,
    )
    batch = batch_of()
    pi, average, value_layer, advantage_layer = (
        layer_of(network.head) for network in (algorithm.pi, algorithm.average, algorithm.value, algorithm.advantage)
    )
    log_std, average_log_std = numpy(algorithm.pi.head.log_std), numpy(algorithm.average.head.log_std)
    obs, obs2, acted, action = (numpy(batch[key]) for key in (OBS, OBS2, ACTPROBS, ACT))
    generator = torch.Generator()
    generator.set_state(algorithm.generator.get_state())
    noise = torch.empty((SAMPLES + 1, STEPS * PATHS, SIZE)).normal_(generator=generator)

    mean = layer(pi, obs)
    drawn = mean + np.exp(log_std) * numpy(noise).reshape(SAMPLES + 1, STEPS, PATHS, SIZE)

    def advantage(taken: Any) -> Any:
        return layer(advantage_layer, np.concatenate([obs, taken], -1))[..., 0]

    value, next_value = layer(value_layer, obs)[..., 0], layer(value_layer, obs2)[..., 0]
    mean_advantage = np.mean([advantage(one) for one in drawn[1:]], 0)
    taken, other = (value + advantage(one) - mean_advantage for one in (action, drawn[0]))
    log_ratio, log_ratio_of_other = (
        log_density(one, mean, log_std) - log_density(one, acted[..., :SIZE], acted[..., SIZE:])
        for one in (action, drawn[0])
    )
    ratio = np.exp(log_ratio)
    assert min(ratio[1:, 0]) < 0.9 < 1 < max(ratio[1:, 0]), "the batch has ratios on both sides of 1"
    returns = returns_by_hand(batch, taken, value, next_value, np.minimum(1, ratio ** (1 / SIZE)))
    opc = returns_by_hand(batch, taken, value, next_value, np.ones_like(ratio))
    weights, limit = weights_of(batch), np.inf if truncation is None else truncation

    expected = dict.fromkeys(("pi", "pi_bias", "log_std", "value", "value_bias", "advantage"), 0.0)
    loss, cut, projected = 0.0, 0, 0
    for t, b in backwards(batch):

        def score(one: Any, t: int = t, b: int = b) -> Any:
            z = (one[t, b] - mean[t, b]) / np.exp(log_std)
            return np.concatenate([z / np.exp(log_std), z**2 - 1])

        g = min(limit, ratio[t, b]) * (opc[t, b] - value[t, b]) * score(action)
        share = max(0, 1 - limit / np.exp(log_ratio_of_other[t, b]))
        g = g + share * (other[t, b] - value[t, b]) * score(drawn[0])
        g[SIZE:] += 0.2
        apart = mean[t, b] - layer(average, obs[t, b])
        variance = np.exp(2 * log_std)
        k = np.concatenate([apart / variance, 1 - (np.exp(2 * average_log_std) + apart**2) / variance])
        if trust_region is not None:
            projected += k @ g > trust_region
            g = g - max(0, (k @ g - trust_region) / (k @ k)) * k
        cut += share > 0 or ratio[t, b] > limit
        error, w = returns[t, b] - taken[t, b], weights[t, b]
        loss += w * (0.5 * error**2 + 0.5 * (min(1, ratio[t, b]) * error) ** 2)
        of_value = -0.7 * w * (error + min(1, ratio[t, b]) * error)
        inputs = action[t, b] - drawn[1:, t, b].mean(0)
        expected["pi"] -= w * np.outer(g[:SIZE], obs[t, b])
        expected["pi_bias"] -= w * g[:SIZE]
        expected["log_std"] -= w * g[SIZE:]
        expected["value"] += of_value * obs[t, b]
        expected["value_bias"] += of_value
        expected["advantage"] += -0.7 * w * error * np.concatenate([np.zeros(3), inputs])
    assert (cut > 0) == (truncation is not None)
    assert (projected > 0) == (trust_region is not None)

    gradients, result = algorithm.compute_gradients(batch)
    names = {
        "pi": "0.head.layer.weight",
        "pi_bias": "0.head.layer.bias",
        "log_std": "0.head.log_std",
        "value": "1.head.layer.weight",
        "value_bias": "1.head.layer.bias",
        "advantage": "2.head.layer.weight",
    }
    for name, found in names.items():
        gradient = numpy(gradients[f"policy_and_critic.{found}"])
        np.testing.assert_allclose(gradient.squeeze(), np.squeeze(expected[name]), rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(result.metrics["critic_loss"], loss, rtol=1e-4)
    errors = numpy(result.errors)[..., 0]
    for place in backwards(batch):
        np.testing.assert_allclose(errors[place], abs(returns[place] - taken[place]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("now", "then"), [(-12.0, -12.0), (-12.0, 3.0), (3.0, -12.0), (-15.0, 3.0)])
def test_degenerate_policies_give_finite_gradients(now: float, then: float) -> None:
    algorithm, batch = linear(prl.ACERContinuous, SPACE), batch_of()
    with torch.no_grad():
        algorithm.pi.head.log_std.fill_(now)
    batch[ACTPROBS][..., SIZE:] = then
    for _ in range(2):
        gradients, _ = algorithm.compute_gradients(batch)
        assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
        # Next, an average that equals the present policy: the gradient of the divergence is 0.
        algorithm.average.load_state_dict(algorithm.pi.state_dict())


def test_the_acting_distribution_is_stored_and_stored_actions_are_not_clipped() -> None:
    algorithm = linear(prl.ACERContinuous, SPACE)
    obs = torch.randn(200, 3)
    step = algorithm.acting_step(obs, None, torch.zeros(200, 1), exploring(algorithm, 200))
    mean, log_std = algorithm.pi(algorithm.actor.view(obs)).parameters
    assert torch.equal(step.fields[ACTPROBS], torch.cat([mean, log_std], 1))
    assert step.action.abs().max() > 1
    assert torch.equal(step.env_action, step.action.clamp(-1, 1))
