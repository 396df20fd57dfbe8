"""ACER's gradients equal those of a slow numpy version; its correction removes the bias of its truncation."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ACTPROBS, MASK, OBS, OBS2, REW
from tests.support.by_hand import copies, exploring, layer_of, numeric_gradient, numpy
from tests.support.by_hand import linear as layer
from tests.support.chains import Chain
from tests.support.segments import PATHS, STEPS, backwards, linear, packed, returns_by_hand, sequences_of, weights_of

ACTIONS = 3
SPACE = spaces.Discrete(ACTIONS)


def batch_of(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    batch = sequences_of(generator.integers(0, ACTIONS, (STEPS, PATHS, 1)), seed)
    # Some actions had a probability close to 0, so that their importance weights are truncated.
    logits = 3 * generator.normal(size=(STEPS, PATHS, ACTIONS))
    batch[ACTPROBS] = torch.from_numpy(softmax(logits)).float()
    return batch


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("truncation", "trust_region"), [(1.5, 0.1), (1.5, None), (None, 0.1)])
def test_losses_errors_and_gradients_equal_those_of_a_numpy_version(
    truncation: float | None, trust_region: float | None
) -> None:
    algorithm = linear(
        prl.ACER, SPACE, truncation=truncation, trust_region=trust_region, entropy_coef=0.2, value_loss_coef=0.7
    )
    batch = batch_of()
    before = copies(batch)
    heads = algorithm.pi.head, algorithm.average.head, algorithm.q.head.numbers
    pi, average, q = (layer_of(head) for head in heads)
    obs, obs2, acted = (numpy(batch[key]) for key in (OBS, OBS2, ACTPROBS))
    action, weights = batch[ACT][..., 0].numpy(), weights_of(batch)

    probs, values = softmax(layer(pi, obs)), layer(q, obs)
    value = (probs * values).sum(-1)
    next_value = (softmax(layer(pi, obs2)) * layer(q, obs2)).sum(-1)
    taken = np.take_along_axis(values, action[..., None], -1)[..., 0]
    ratios = probs / acted
    ratio = np.take_along_axis(ratios, action[..., None], -1)[..., 0]
    returns = returns_by_hand(batch, taken, value, next_value, np.minimum(1, ratio))

    gradient = [np.zeros_like(part) for part in pi]
    cut = projected = 0
    for t, b in backwards(batch):
        p, limit = probs[t, b], np.inf if truncation is None else truncation
        score = np.eye(ACTIONS) - p  # of each action's log probability with respect to the logits
        g = min(limit, ratio[t, b]) * (returns[t, b] - value[t, b]) * score[action[t, b]]
        for a in range(ACTIONS):
            g = g + max(0, 1 - limit / ratios[t, b, a]) * p[a] * (values[t, b, a] - value[t, b]) * score[a]
            cut += ratios[t, b, a] > limit
        g = g - 0.2 * p * (np.log(p) - (p * np.log(p)).sum())
        k = p - softmax(layer(average, obs[t, b]))
        if trust_region is not None:
            projected += k @ g > trust_region
            g = g - max(0, (k @ g - trust_region) / (k @ k)) * k
        gradient[0] -= weights[t, b] * np.outer(g, obs[t, b])
        gradient[1] -= weights[t, b] * g
    assert (cut > 0) == (truncation is not None)
    assert (projected > 0) == (trust_region is not None)

    def critic_loss() -> float:
        found = np.take_along_axis(layer(q, obs), action[..., None], -1)[..., 0]
        return float((weights * 0.5 * (returns - found) ** 2).sum())

    gradients, result = algorithm.compute_gradients(batch)
    for name, expected in zip(("weight", "bias"), gradient, strict=True):
        found = numpy(gradients[f"policy_and_critic.0.head.layer.{name}"])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    for name, parameter in zip(("weight", "bias"), q, strict=True):
        expected = 0.7 * numeric_gradient(critic_loss, parameter)
        found = numpy(gradients[f"policy_and_critic.1.head.numbers.layer.{name}"])
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(result.metrics["critic_loss"], critic_loss(), rtol=1e-4)
    mask = numpy(batch[MASK])[..., 0]
    np.testing.assert_allclose(
        numpy(result.errors)[..., 0] * mask, np.abs(returns - taken) * mask, rtol=1e-3, atol=1e-5
    )
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_packed_episodes_give_the_gradients_of_padded_ones() -> None:
    algorithm, batch = linear(prl.ACER, SPACE), batch_of()
    compact, _ = packed(batch)
    one, _ = algorithm.compute_gradients(batch)
    other, _ = algorithm.compute_gradients(compact)
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient)


@pytest.mark.parametrize("logits", [[1e4, 0.0, -1e4], [-np.inf, 0.0, 1.0]])
def test_degenerate_policies_give_finite_gradients_and_weights_of_1_where_they_acted(
    logits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, batch = linear(prl.ACER, SPACE), batch_of()
    with torch.no_grad():
        algorithm.pi.head.layer.weight.zero_()
        algorithm.pi.head.layer.bias.copy_(torch.tensor(logits))
        algorithm.average.load_state_dict(algorithm.pi.state_dict())
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(algorithm, "truncated", lambda ratio: seen.append(ratio) or ratio.clamp(max=10.0))
    policy = softmax(np.array(logits))
    # The acting policy always takes the second action, and then equals the present policy.
    for acted in ([0.0, 1.0, 0.0], policy):
        batch[ACTPROBS][:] = torch.as_tensor(acted).float()
        batch[ACT].fill_(1)
        gradients, _ = algorithm.compute_gradients(batch)
        assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    # An action that neither policy takes gets no weight.
    for ratio, expected in zip(seen, (policy[1], policy[1] > 0), strict=True):
        torch.testing.assert_close(ratio, torch.full_like(ratio, expected))


def test_acting_stores_the_policys_probabilities_and_evaluation_takes_the_mode() -> None:
    algorithm = linear(prl.ACER, SPACE, entropy_coef=0.0)
    obs = torch.randn(5, 3)
    step = algorithm.acting_step(obs, None, torch.zeros(5, 1), exploring(algorithm, 5))
    policy = algorithm.pi(algorithm.actor.view(obs))
    torch.testing.assert_close(step.fields[ACTPROBS], policy.probabilities)
    evaluation = exploring(algorithm, 5, deterministic=True)
    best = algorithm.acting_step(obs, None, torch.zeros(5, 1), evaluation)
    assert torch.equal(best.action, policy.mode())
    assert not best.fields


def scheme_of(memory: Any = None, **hyper_parameters: Any) -> prl.Scheme:
    settings = {"update_every": 12, "start_steps": 30, "replay_ratio": 2.0, "mini_batch_size": 3, "test_every": 0}
    return prl.Scheme(
        prl.ACER.create_factory(**settings | hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(6,), memory=memory, memory_size=4),
        prl.PERBuffer.create_factory(size=40, alpha=0.6, beta=0.4, sequences=prl.Sequences(4, across_episodes=True)),
        prl.VecEnv.create_factory(Chain, 2),
    )


def test_an_update_phase_learns_from_the_newest_steps_and_then_from_replay() -> None:
    scheme = scheme_of()
    algorithm, seen = scheme.algorithm, []
    update = algorithm.update
    algorithm.update = lambda batch: (seen.append(batch), update(batch))[1]  # type: ignore[method-assign]
    while scheme.steps < 96:
        _, due = scheme.collect(96)
        assert due == 1
        newest = scheme.storage.get_all_buffer_data()
        scheme.set_progress(scheme.steps, 96)
        seen.clear()
        metrics = list(scheme.update())
        fresh, *replayed = seen
        assert len(metrics) == len(seen)
        # Twelve transitions of two environments.
        for key in (OBS, ACT, REW, OBS2, ACTPROBS):
            assert torch.equal(fresh[key], newest[key][-6:])
        assert all(batch[REW].shape == (4, 3, 1) for batch in replayed)
        assert scheme.steps >= 30 or not replayed
    assert algorithm.updates > 8
    scheme.close()


def test_the_number_of_replays_has_a_poisson_distribution() -> None:
    algorithm = linear(prl.ACER, SPACE, replay_ratio=3.0, update_every=13, start_steps=10, mini_batch_size=7)
    asked: list[int] = []

    def generate_batches(number: int, size: int) -> Iterator[Any]:
        assert size == 7
        asked.append(number)
        yield from range(number)

    source: Any = SimpleNamespace(num_envs=4, newest_steps=lambda steps: steps, generate_batches=generate_batches)
    assert list(algorithm.batches(source)) == [4]  # steps of 4 environments, for at least 13 transitions
    algorithm.set_progress(10, 20)
    phases = [len(list(algorithm.batches(source))) - 1 for _ in range(600)]
    assert [number for number in phases if number] == asked
    assert abs(np.mean(phases) - 3) < 4 * np.sqrt(3 / len(phases))
    assert abs(np.var(phases) - 3) < 4 * np.sqrt((3 + 2 * 9) / len(phases))
