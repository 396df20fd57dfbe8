"""PQN fits lambda returns that bootstrap on its own largest values, in epochs of batches."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, RET, REW, RHS, TRUNC2, VAL
from tests.support.by_hand import layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.toys import RandomEnds
from tests.support.value_learning import huber

NUM_ENVS, STEPS, GAMMA, TRACE = 3, 7, 0.9, 0.6


def made(memory: Any = None, **hyper_parameters: Any) -> prl.Scheme:
    scheme = prl.Scheme(
        prl.PQN.create_factory(gamma=GAMMA, test_every=0, **hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(), memory=memory, memory_size=4),
        prl.LambdaReturnBuffer.create_factory(size=STEPS, trace_lambda=TRACE),
        prl.VecEnv.create_factory(RandomEnds, NUM_ENVS),
        seed=4,
    )
    perturb(scheme.algorithm.q, 1)
    return scheme


def collected(scheme: prl.Scheme) -> dict[str, Any]:
    """A rollout as arrays (steps, environments, ...)."""
    _, due = scheme.collect(10**6)
    assert due == 1
    scheme.storage.before_gradients()
    return {key: value.double().numpy() for key, value in scheme.storage.get_all_buffer_data().items()}


def lambda_returns(stored: dict[str, Any], largest: Any) -> Any:
    """(steps, environments), from the last step to the first; ``largest`` are the largest next values."""
    returns = np.zeros((STEPS, NUM_ENVS))
    for env in range(NUM_ENVS):
        later = 0.0
        for t in reversed(range(STEPS)):
            if stored[DONE2][t, env, 0]:
                after = 0.0
            elif stored[TRUNC2][t, env, 0] or t == STEPS - 1:
                after = largest[t, env]
            else:
                after = (1 - TRACE) * largest[t, env] + TRACE * later
            later = returns[t, env] = stored[REW][t, env, 0] + GAMMA * after
    return returns


@pytest.mark.parametrize("huber_threshold", [None, 1.0])
def test_an_update_equals_the_one_computed_by_hand(huber_threshold: float | None) -> None:
    scheme = made(huber_threshold=huber_threshold, num_mini_batch=1, num_epochs=1)
    algorithm: Any = scheme.algorithm
    stored = collected(scheme)
    assert stored[DONE2].any()
    assert stored[TRUNC2].any()
    layer = layer_of(algorithm.q.head.numbers)
    returns = lambda_returns(stored, linear(layer, stored[OBS2]).max(-1))
    (batch,) = algorithm.batches(scheme.storage)
    in_order = batch[OBS].double().numpy()
    for t, env in np.ndindex(STEPS, NUM_ENVS):
        (row,) = np.flatnonzero((in_order == stored[OBS][t, env]).all(1))
        np.testing.assert_allclose(batch[RET][row, 0], returns[t, env], rtol=1e-4, atol=1e-5)

    def loss() -> float:
        of_each = [
            huber(linear(layer, stored[OBS][t, env])[int(stored[ACT][t, env, 0])] - returns[t, env], huber_threshold)
            for t, env in np.ndindex(STEPS, NUM_ENVS)
        ]
        return float(np.mean(of_each))

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss(), rtol=1e-4)
    for part, parameter in zip(("weight", "bias"), layer, strict=True):
        found = numpy(gradients[f"q.head.numbers.layer.{part}"])
        np.testing.assert_allclose(found, numeric_gradient(loss, parameter), rtol=1e-3, atol=1e-4)
    scheme.close()


def test_every_epoch_has_each_transition_once_and_the_same_returns() -> None:
    scheme = made(num_epochs=3, num_mini_batch=7)
    stored = collected(scheme)
    batches = list(scheme.algorithm.batches(scheme.storage))
    assert len(batches) == 21
    for epoch in range(3):
        returns = torch.cat([batch[RET] for batch in batches[7 * epoch : 7 * epoch + 7]])[:, 0].double().numpy()
        np.testing.assert_array_equal(np.sort(returns), np.sort(stored[RET].ravel()))
    scheme.close()


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_recurrent_value_has_the_state_with_which_the_action_was_chosen(memory: Any) -> None:
    scheme = made(memory=memory, num_mini_batch=3)
    algorithm: Any = scheme.algorithm
    stored = collected(scheme)
    body, head = algorithm.q.body, algorithm.q.head
    assert stored[RHS].shape[-1] == body.state_size, "the state is stored once"
    state = body.initial_state(NUM_ENVS)
    with torch.no_grad():
        for t in range(STEPS):
            obs, done = (torch.from_numpy(stored[key][t]).float() for key in (OBS, DONE))
            features, state = body(obs, state, done)
            np.testing.assert_allclose(stored[VAL][t], head(features).values.max(1, keepdim=True).values, rtol=1e-4)
    scheme.close()
