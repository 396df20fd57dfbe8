"""IMPALA's gradients are those of V-trace, also for rollouts of older weights; other storages are refused."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import ACT, DONE, DONE2, LOGP, OBS, OBS2, REW, TRUNC2, VAL
from tests.support.by_hand import (
    OBSERVATION_SIZE,
    envs_with,
    exploring,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
)
from tests.support.by_hand import (
    perturb as moved,
)
from tests.support.toys import Noise

STEPS, ENVS, GAMMA = 12, 3, 0.9
LEVELS = {"rho_bar": 1.1, "c_bar": 0.8, "trace_lambda": 0.9}


def linear_impala(actor: Any = None, **hyper_parameters: Any) -> prl.IMPALA:
    envs = envs_with(spaces.Discrete(3))
    made = prl.OnPolicyActor.create_factory(**{"hidden_sizes": ()} | (actor or {}))("cpu", envs)
    algorithm: prl.IMPALA = prl.IMPALA.create_factory(gamma=GAMMA, **hyper_parameters)("cpu", made, envs)
    moved(made, 1, 0.5)
    return algorithm


def fill(algorithm: prl.IMPALA, storage: Any) -> list[dict[str, Any]]:
    """Fill a storage; some episodes terminate, and some are truncated."""
    random, exploration = np.random.default_rng(0), exploring(algorithm, ENVS)
    draw = lambda size: random.normal(size=(ENVS, size)).astype(np.float32)  # noqa: E731
    obs, done, rhs = draw(OBSERVATION_SIZE), np.ones((ENVS, 1), bool), algorithm.actor.initial_memory(ENVS)
    inserted = []
    for _ in range(STEPS):
        begins = torch.from_numpy(done.astype(np.float32))
        step = algorithm.acting_step(torch.from_numpy(obs), rhs, begins, exploration)
        terminated, truncated = random.random((2, ENVS, 1)) < 0.15
        following = draw(OBSERVATION_SIZE)
        sample = {OBS: obs, DONE: done, ACT: step.action, REW: draw(1), OBS2: following, DONE2: terminated}
        memory = {} if rhs is None else {"RecurrentHiddenStates": rhs, "NextRecurrentHiddenStates": step.rhs}
        inserted.append(sample | {TRUNC2: truncated, **step.fields, **memory})
        storage.insert_transition(inserted[-1])
        done, rhs = terminated | truncated, step.rhs
        obs = np.where(done, draw(OBSERVATION_SIZE), following)
    return inserted


def storage_of(algorithm: prl.IMPALA) -> Any:
    storage = prl.VTraceBuffer.create_factory(size=STEPS, **LEVELS)("cpu", algorithm.actor, algorithm, None)
    storage.seed(0)
    return storage


def vtrace_by_hand(
    steps: list[dict[str, Any]], policy: list[NDArray[np.float64]], value: list[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Targets, advantages and importance weights (T, E) by equation 1 of the paper: sums of errors, not a recursion."""
    targets, advantages, all_ratios = np.zeros((3, STEPS, ENVS))
    for e in range(ENVS):
        values = [linear(value, s[OBS][e])[0] for s in steps]
        following = [0.0 if s[DONE2][e, 0] else linear(value, s[OBS2][e])[0] for s in steps]
        ratios = []
        for s in steps:
            logits = linear(policy, s[OBS][e])
            log_prob = logits[int(s[ACT][e, 0])] - np.log(np.exp(logits).sum())
            ratios.append(np.exp(log_prob - float(s[LOGP][e, 0])))
        all_ratios[:, e] = ratios
        rho, c = np.minimum(1.1, ratios), 0.9 * np.minimum(0.8, ratios)
        errors = [rho[t] * (float(steps[t][REW][e, 0]) + GAMMA * following[t] - values[t]) for t in range(STEPS)]
        ends = [bool(s[DONE2][e, 0] or s[TRUNC2][e, 0]) for s in steps]
        for t in range(STEPS):
            last = next((k for k in range(t, STEPS) if ends[k]), STEPS - 1)
            weights = [GAMMA ** (k - t) * np.prod(c[t:k]) for k in range(t, last + 1)]
            targets[t, e] = values[t] + sum(w * errors[k] for w, k in zip(weights, range(t, last + 1), strict=True))
        for t in range(STEPS):
            after = following[t] if ends[t] or t == STEPS - 1 else targets[t + 1, e]
            advantages[t, e] = rho[t] * (float(steps[t][REW][e, 0]) + GAMMA * after - values[t])
    return targets, advantages, all_ratios


@pytest.mark.parametrize("stale", [False, True])
def test_gradients_are_those_of_vtrace_in_numpy(stale: bool) -> None:
    algorithm = linear_impala(entropy_coef=0.1, value_loss_coef=0.7)
    storage = storage_of(algorithm)
    steps = fill(algorithm, storage)
    if stale:
        moved(algorithm.actor, 2, 0.7)
    storage.before_gradients()
    (batch,) = algorithm.batches(storage)
    policy, value = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)
    targets, advantages, ratios = vtrace_by_hand(steps, policy, value)
    obs = np.stack([s[OBS] for s in steps]).astype(np.float64)
    actions = np.stack([numpy(s[ACT]) for s in steps]).astype(int)
    if stale:
        assert ratios.min() < 0.8, "some weights are below both levels"
        assert ratios.max() > 1.1, "some weights are truncated at both levels"
    else:
        np.testing.assert_allclose(ratios, 1, rtol=1e-5)

    def loss() -> float:
        logits = linear(policy, obs)
        log_p = logits - np.log(np.exp(logits).sum(2, keepdims=True))
        taken = np.take_along_axis(log_p, actions, 2)[..., 0]
        value_loss = 0.5 * ((linear(value, obs)[..., 0] - targets) ** 2).mean()
        entropy = -(np.exp(log_p) * log_p).sum(2).mean()
        return float(-(taken * advantages).mean() + 0.7 * value_loss - 0.1 * entropy)

    gradients, _ = algorithm.compute_gradients(batch)
    for network, layer in ((0, policy), (1, value)):
        for part, array in zip(("weight", "bias"), layer, strict=True):
            found = numpy(gradients[f"policy_and_value.{network}.head.layer.{part}"])
            np.testing.assert_allclose(found, numeric_gradient(loss, array), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_rollouts_sent_in_slices_give_a_recurrent_learner_the_same_gradients(memory: str) -> None:
    body = {"hidden_sizes": (4,), "memory": memory, "memory_size": 3}
    worker, server = linear_impala(body), linear_impala(body)
    server.set_weights(worker.get_weights())
    of_worker, of_server, alone = storage_of(worker), storage_of(server), storage_of(server)
    steps = fill(worker, of_worker)
    moved(server.actor, 3, 0.3)
    of_server.insert_data_slice(of_worker.get_data_slice(0, STEPS))
    for step in steps:
        alone.insert_transition(step)
    gradients = []
    for storage in (of_server, alone):
        storage.before_gradients()
        (batch,) = server.batches(storage)
        gradients.append(server.compute_gradients(batch)[0])
        assert batch[VAL].shape == (STEPS, ENVS, 1)
    assert all(torch.equal(gradient, gradients[1][name]) for name, gradient in gradients[0].items())


def test_a_storage_that_does_not_correct_for_older_policies_is_refused() -> None:
    parts = prl.IMPALA.create_factory(), prl.OnPolicyActor.create_factory()
    with pytest.raises(prl.CompositionError, match="GAEBuffer does not correct; VTraceBuffer does"):
        prl.Scheme(*parts, prl.GAEBuffer.create_factory(size=8), prl.VecEnv.create_factory(Noise))
