"""On a problem of two states whose policy gradient is known in closed form, algorithms estimate that gradient.

An algorithm is added by a line in ``CASES``: its factory, its storage, the quantity that is measured with a full
storage, and the expected mean of that quantity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from tests.support.by_hand import numeric_gradient, numpy
from tests.support.two_states import ENVS, GAMMA, OF_WEIGHTS, Array, Exact, Walk, exact, set_up, weights_of

BLOCKS, STEPS, COPIES = 20, 20, 500
"""200,000 samples in all; the deviation between blocks gives the standard error of their mean."""
DAMPING = 1e-3


def gradient(algorithm: Any, storage: Any) -> Array:
    """Gradient of the objective in the policy's weights, over the whole storage."""
    storage.before_gradients()
    (batch,) = storage.generate_batches(1, None)
    return gradient_of(batch, algorithm, "policy_and_value")


def gradient_of_newest(algorithm: Any, storage: Any) -> Array:
    """As :func:`gradient`, of the newest steps of a storage that replays."""
    return gradient_of(storage.newest_steps(STEPS), algorithm, "policy_and_critic")


def gradient_of(batch: Any, algorithm: Any, group: str) -> Array:
    """Gradient of the objective in the weights of the policy, the first network of a group."""
    gradients, _ = algorithm.compute_gradients(batch)
    parts = [numpy(gradients[f"{group}.0.head.layer.{part}"]).ravel() for part in ("weight", "bias")]
    return -np.concatenate(parts)


def direction(algorithm: Any, storage: Any) -> Array:
    """Direction of the policy's first step."""
    storage.before_gradients()
    (batch,) = storage.generate_batches(1, None)
    before, weights = weights_of(algorithm.pi), algorithm.get_weights()
    assert algorithm.update(batch).metrics["step_fraction"] > 0
    move = weights_of(algorithm.pi) - before
    algorithm.set_weights(weights)
    return move / np.linalg.norm(move)


def natural_direction(known: Exact) -> Array:
    """Direction of the natural gradient."""
    step = np.linalg.solve(known.fisher + DAMPING * np.eye(6), known.gradient)
    return step / np.linalg.norm(step)


@dataclass(frozen=True)
class Case:
    algorithm: Any
    storage: Any
    measured: Callable[[Any, Any], Array] = gradient
    expected: Callable[[Exact], Array] = lambda known: known.gradient


PLAIN = {"gamma": GAMMA, "normalize_advantages": False, "num_mini_batch": 1, "test_every": 0}
ROLLOUT = prl.VanillaOnPolicyBuffer.create_factory(size=STEPS)
GAE = prl.GAEBuffer.create_factory(size=STEPS, gae_lambda=0.9)
CASES = {
    "REINFORCE": Case(prl.REINFORCE.create_factory(**PLAIN, baseline=False), ROLLOUT),
    "REINFORCE with a baseline": Case(prl.REINFORCE.create_factory(**PLAIN), ROLLOUT),
    "A2C": Case(prl.A2C.create_factory(**PLAIN, entropy_coef=0.0), ROLLOUT),
    "A2C by GAE": Case(prl.A2C.create_factory(**PLAIN, entropy_coef=0.0), GAE),
    "IMPALA": Case(prl.IMPALA.create_factory(**PLAIN, entropy_coef=0.0), prl.VTraceBuffer.create_factory(size=STEPS)),
    "PPO's first step": Case(prl.PPO.create_factory(**PLAIN), GAE),
    "ACER, on-policy and without truncation": Case(
        prl.ACER.create_factory(gamma=GAMMA, entropy_coef=0.0, truncation=None, test_every=0),
        prl.ReplayBuffer.create_factory(size=STEPS, sequences=prl.Sequences(STEPS)),
        gradient_of_newest,
    ),
    "TRPO's direction": Case(
        prl.TRPO.create_factory(**PLAIN, damping=DAMPING, max_kl=1e-3, value_epochs=1),
        GAE,
        direction,
        natural_direction,
    ),
}


QUICK = ("A2C", "PPO's first step")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_the_mean_estimate_is_the_exact_gradient(name: str) -> None:
    case = CASES[name]
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", ENVS)
    algorithm = case.algorithm("cpu", actor, ENVS)
    known = set_up(algorithm)
    storage = case.storage("cpu", actor, algorithm, ENVS)
    storage.seed(0)
    walk, blocks = Walk(algorithm, known, COPIES, seed=0), []
    for _ in range(BLOCKS):
        storage.reset()
        walk.fill(storage, STEPS)
        blocks.append(case.measured(algorithm, storage))
    expected = case.expected(known)
    standard_error = np.std(blocks, axis=0, ddof=1) / np.sqrt(BLOCKS)
    assert (np.abs(np.mean(blocks, axis=0) - expected) <= 4 * standard_error + 1e-6).all()
    assert 4 * standard_error.max() < 0.05 * np.abs(expected).max(), (
        "the standard error is small relative to the expected value"
    )


def test_the_closed_form_is_the_gradient_of_the_expected_return() -> None:
    logits = np.array([[0.5, -0.3], [-0.2, 0.4]])
    known = exact(logits)
    differences = numeric_gradient(lambda: exact(logits).worth, logits)
    np.testing.assert_allclose(differences / known.visits.sum(), known.gradient_of_logits, rtol=1e-6)
    # The expected outer product of scores, with states weighted by their shares.
    fisher: Any = np.zeros((4, 4))
    for state in range(2):
        for action in range(2):
            score = np.zeros(4)
            score[2 * state : 2 * state + 2] = np.eye(2)[action] - known.policy[state]
            fisher += known.share[state] * known.policy[state, action] * np.outer(score, score)
    np.testing.assert_allclose(known.fisher, OF_WEIGHTS.T @ fisher @ OF_WEIGHTS, atol=1e-12)


def test_a_walk_visits_states_with_the_frequencies_of_the_closed_form() -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", ENVS)
    algorithm = prl.A2C.create_factory()("cpu", actor, ENVS)
    known = set_up(algorithm)
    walk = Walk(algorithm, known, 2_000, seed=1)
    seen = np.mean([walk.step()["Observation"][:, 1] for _ in range(50)])
    assert seen == pytest.approx(known.share[1], abs=0.01)
    values = algorithm.value(actor.view(torch.eye(2)))
    np.testing.assert_allclose(numpy(values)[:, 0], known.values, rtol=1e-6)
