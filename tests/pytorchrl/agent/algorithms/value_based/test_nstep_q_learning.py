"""n-step Q-learning follows algorithm S2 of the paper; its target network is updated at an interval of steps."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, RET, REW, RHS, RHS2, TRUNC2, VAL
from tests.support.by_hand import layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.toys import RandomEnds
from tests.support.value_learning import huber

NUM_ENVS, STEPS, GAMMA = 3, 7, 0.9
ROLLOUTS = {
    "returns": prl.VanillaOnPolicyBuffer.create_factory(size=STEPS),
    "lambda of 1": prl.GAEBuffer.create_factory(size=STEPS, gae_lambda=1.0),
}


def made(storage: Any = ROLLOUTS["returns"], memory: Any = None, **hyper_parameters: Any) -> prl.Scheme:
    scheme = prl.Scheme(
        prl.NStepQLearning.create_factory(gamma=GAMMA, test_every=0, **hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(), memory=memory, memory_size=4),
        storage,
        prl.VecEnv.create_factory(RandomEnds, NUM_ENVS),
        seed=4,
    )
    for seed, network in enumerate((scheme.algorithm.q, scheme.algorithm.q_target), start=1):
        perturb(network, seed)
    return scheme


def rollout_of(scheme: prl.Scheme) -> tuple[dict[str, Any], Any]:
    """A rollout as arrays (steps, environments, ...), and the batch that is made of it."""
    _, due = scheme.collect(10**6)
    assert due == 1
    scheme.storage.before_gradients()
    stored = {key: value.double().numpy() for key, value in scheme.storage.get_all_buffer_data().items()}
    (batch,) = scheme.algorithm.batches(scheme.storage)
    return stored, batch


def returns_of(stored: dict[str, Any], largest: Any) -> Any:
    """(steps, environments): algorithm S2, from the last step of a segment to its first.

    Args:
        stored: the rollout.
        largest: (steps, environments), the target network's largest values of the next observations.
    """
    returns = np.zeros((STEPS, NUM_ENVS))
    for env in range(NUM_ENVS):
        value = 0.0
        for t in reversed(range(STEPS)):
            if stored[DONE2][t, env, 0]:
                value = 0.0
            elif stored[TRUNC2][t, env, 0] or t == STEPS - 1:
                value = largest[t, env]
            value = returns[t, env] = stored[REW][t, env, 0] + GAMMA * value
    return returns


@pytest.mark.parametrize("huber_threshold", [None, 1.0])
@pytest.mark.parametrize("storage", ROLLOUTS)
def test_an_update_equals_the_one_computed_by_hand(storage: str, huber_threshold: float | None) -> None:
    scheme = made(ROLLOUTS[storage], huber_threshold=huber_threshold)
    algorithm: Any = scheme.algorithm
    stored, batch = rollout_of(scheme)
    assert stored[DONE2].any()
    assert stored[TRUNC2].any()
    online, target = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
    returns = returns_of(stored, linear(target, stored[OBS2]).max(-1))
    in_order = batch[OBS].double().numpy()
    for t, env in np.ndindex(STEPS, NUM_ENVS):
        (row,) = np.flatnonzero((in_order == stored[OBS][t, env]).all(1))
        np.testing.assert_allclose(batch[RET][row, 0], returns[t, env], rtol=1e-4, atol=1e-5)

    def loss() -> float:
        return sum(
            huber(linear(online, stored[OBS][t, env])[int(stored[ACT][t, env, 0])] - returns[t, env], huber_threshold)
            for t, env in np.ndindex(STEPS, NUM_ENVS)
        )

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss(), rtol=1e-4)
    assert result.errors is None
    for part, parameter in zip(("weight", "bias"), online, strict=True):
        found = numpy(gradients[f"q.head.numbers.layer.{part}"])
        np.testing.assert_allclose(found, numeric_gradient(loss, parameter), rtol=1e-3, atol=1e-3)
    assert not any(parameter.requires_grad for parameter in algorithm.q_target.parameters())
    scheme.close()


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_target_network_keeps_its_own_recurrent_states(memory: Any) -> None:
    scheme = made(memory=memory)
    algorithm: Any = scheme.algorithm
    stored, _ = rollout_of(scheme)
    body, head = algorithm.q_target.body, algorithm.q_target.head
    assert body.stored_at != algorithm.q.body.stored_at
    largest = np.zeros((STEPS, NUM_ENVS))
    state = body.initial_state(NUM_ENVS)
    tensors = {key: torch.from_numpy(stored[key]).float() for key in (OBS, OBS2, DONE, RHS, RHS2)}
    with torch.no_grad():
        for t in range(STEPS):
            state = state * (1 - tensors[DONE][t])
            torch.testing.assert_close(tensors[RHS][t][:, body.stored_at] * (1 - tensors[DONE][t]), state)
            features, state = body(tensors[OBS][t], state, tensors[DONE][t])
            np.testing.assert_allclose(stored[VAL][t], head(features).best().mean, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(tensors[RHS2][t][:, body.stored_at], state)
            following, _ = body(tensors[OBS2][t], state, torch.zeros(NUM_ENVS, 1))
            largest[t] = head(following).best().mean[:, 0].numpy()
    np.testing.assert_allclose(stored[RET][..., 0], returns_of(stored, largest), rtol=1e-4, atol=1e-4)
    scheme.close()


def test_the_target_network_is_copied_at_an_interval_of_steps_of_all_environments() -> None:
    scheme = made(target_update_interval_steps=50)
    algorithm: Any = scheme.algorithm
    copied_at = []
    for _ in range(12):
        _, due = scheme.collect(10**6)
        assert due
        scheme.set_progress(scheme.steps, 10**6)
        list(scheme.update())
        if torch.equal(algorithm.q_target.head.numbers.layer.weight, algorithm.q.head.numbers.layer.weight):
            copied_at.append(scheme.steps)
    # 21 transitions between updates: those after 50, 100, ... transitions.
    assert copied_at == [63, 105, 168, 210, 252]
    other = made(target_update_interval_steps=50)
    other.algorithm.load_state_dict(algorithm.state_dict())
    assert other.algorithm.training.counters == {"updates": 12, "steps": 252}
    scheme.close()
    other.close()


def test_copied_weights_include_the_target_network() -> None:
    source, destination = made(), made()
    list(source.algorithm.update_phase({"main": _full(source)}))
    destination.algorithm.set_weights(source.algorithm.get_weights())
    obs = torch.randn(4, 3)
    one, other = (s.algorithm.actor.value(obs, None, torch.zeros(4, 1)) for s in (source, destination))
    assert torch.equal(one, other)
    algorithm: Any = source.algorithm
    target = algorithm.q_target(algorithm.actor.view(obs)).best().mean
    torch.testing.assert_close(one, target)
    source.close()
    destination.close()


def _full(scheme: prl.Scheme) -> Any:
    scheme.collect(10**6)
    return scheme.storage


def test_each_environment_explores_independently() -> None:
    scheme = made(epsilon=0.5)
    exploration = prl.Exploration(scheme.algorithm.codec, 4_000, "cpu", seed=0)
    obs, done = torch.ones(4_000, 3), torch.zeros(4_000, 1)
    action = scheme.algorithm.acting_step(obs, None, done, exploration).action
    best = scheme.algorithm.q(scheme.algorithm.actor.view(obs[:1])).greedy()  # type: ignore[attr-defined]
    assert abs((action != best).float().mean() - 0.5 * 2 / 3) < 0.03
    scheme.close()


def test_unsupported_storages_and_hyper_parameters_are_refused() -> None:
    with pytest.raises(prl.CompositionError, match=r"VTraceBuffer needs log-probabilities .* NStepQL"):
        made(prl.VTraceBuffer.create_factory(size=5))
    with pytest.raises(prl.CompositionError, match="NStepQLearning learns on-policy, but ReplayBuffer"):
        made(prl.ReplayBuffer.create_factory(size=5))
    with pytest.raises(ValueError, match="NStepQLearning: target_update_interval_steps must be at least 1, got 0"):
        made(target_update_interval_steps=0)
    with pytest.raises(TypeError, match="NStepQLearning: unknown hyper-parameter 'start_steps'"):
        made(start_steps=10)
