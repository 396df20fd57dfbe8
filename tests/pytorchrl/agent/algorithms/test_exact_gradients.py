"""On a problem of two states whose policy gradient is known in closed form, algorithms estimate that gradient.

An algorithm is added by a line in ``CASES``: its factory, its storage, the quantity that is measured with a full
storage, and the expected mean of that quantity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.by_hand import numeric_gradient, numpy

Array = NDArray[np.float64]

GAMMA = 1.0
"""With a discount, the weights of states would differ from their visits."""
ENVS = SimpleNamespace(
    observation_space=spaces.Box(0, 1, (2,), np.float32), action_space=spaces.Discrete(2), num_envs=None
)
START = np.array([0.7, 0.3])
FOLLOWING = np.array([[[0.5, 0.2], [0.1, 0.6]], [[0.3, 0.1], [0.2, 0.5]]])
"""(state, action, next state): probabilities; with the remaining probability, the episode terminates."""
REWARDS = np.array([[1.0, -0.5], [0.3, 2.0]])
"""(state, action)."""


@dataclass(frozen=True)
class Exact:
    """Exact quantities of a policy.

    Args:
        policy: (state, action), probabilities.
    """

    policy: Array

    @property
    def values(self) -> Array:
        """(state): expected sum of rewards."""
        return np.linalg.solve(np.eye(2) - self._following, (self.policy * REWARDS).sum(1))

    @property
    def action_values(self) -> Array:
        """(state, action)."""
        return REWARDS + FOLLOWING @ self.values

    @property
    def worth(self) -> float:
        """Expected return of an episode."""
        return float(START @ self.values)

    @property
    def visits(self) -> Array:
        """(state): expected number of steps of an episode in the state."""
        return np.linalg.solve(np.eye(2) - self._following.T, START)

    @property
    def share(self) -> Array:
        """(state): share of all steps."""
        return self.visits / self.visits.sum()

    @property
    def gradient_of_logits(self) -> Array:
        """(state, action): gradient of :attr:`worth` by the policy gradient theorem, per step of an episode."""
        advantage = self.action_values - self.values[:, None]
        return self.share[:, None] * self.policy * advantage

    @property
    def gradient(self) -> Array:
        """(6,): like :attr:`gradient_of_logits`, for the weights of :func:`weights_of`."""
        return OF_WEIGHTS.T @ self.gradient_of_logits.ravel()

    @property
    def fisher(self) -> Array:
        """(6, 6): Fisher information of the weights, a mean over the states by their share."""
        of_logits = np.zeros((4, 4))
        for state, p in enumerate(self.policy):
            here = slice(2 * state, 2 * state + 2)
            of_logits[here, here] = self.share[state] * (np.diag(p) - np.outer(p, p))
        return OF_WEIGHTS.T @ of_logits @ OF_WEIGHTS

    @property
    def _following(self) -> Array:
        return np.einsum("sa,sat->st", self.policy, FOLLOWING)


def _of_weights() -> Array:
    """(4, 6): the derivatives of the logits (state, action) in a linear policy's weights and biases."""
    derivatives = np.zeros((2, 2, 6))
    for state in range(2):
        for action in range(2):
            derivatives[state, action, 2 * action + state] = 1
            derivatives[state, action, 4 + action] = 1
    return derivatives.reshape(4, 6)


OF_WEIGHTS = _of_weights()


def exact(logits: Array) -> Exact:
    """Exact quantities of the policy of logits (state, action)."""
    powers = np.exp(logits)
    return Exact(powers / powers.sum(1, keepdims=True))


def weights_of(policy: Any) -> Array:
    """(6,): weights and biases of a linear policy of one-hot states."""
    layer = policy.head.layer
    return torch.cat([layer.weight.ravel(), layer.bias]).detach().double().numpy()


def set_up(algorithm: Any) -> Exact:
    """Give a linear policy some weights, and linear values of states or actions, if any, the exact ones."""
    with torch.no_grad():
        layer = algorithm.pi.head.layer
        layer.weight.copy_(torch.tensor([[0.4, -0.3], [-0.2, 0.5]]))
        layer.bias.copy_(torch.tensor([0.1, -0.1]))
        known = exact((OF_WEIGHTS @ weights_of(algorithm.pi)).reshape(2, 2))
        if "value" in algorithm.actor.networks:
            of_values = algorithm.value.head.layer
            of_values.weight.copy_(torch.from_numpy(known.values)[None])
            of_values.bias.zero_()
        if "q" in algorithm.actor.networks:
            of_actions = algorithm.q.head.numbers.layer
            of_actions.weight.copy_(torch.from_numpy(known.action_values.T))
            of_actions.bias.zero_()
    return known


class Walk:
    """Acts in many copies of the problem, which begin with the average distribution of states.

    Args:
        algorithm: the algorithm that acts.
        known: the exact quantities of its policy.
        num_envs: E, the number of copies.
        seed: seed of the transitions and of the actions.
    """

    def __init__(self, algorithm: Any, known: Exact, num_envs: int, seed: int) -> None:
        self._algorithm, self._num_envs = algorithm, num_envs
        self._random = np.random.default_rng(seed)
        self._exploration = Exploration(algorithm.codec, num_envs, "cpu", seed)
        self._state = (self._random.random(num_envs) < known.share[1]).astype(np.int64)
        self._done = np.ones((num_envs, 1), np.float32)

    def fill(self, storage: Any, steps: int) -> None:
        """Insert steps into a storage."""
        for _ in range(steps):
            storage.insert_transition(self.step())

    def step(self) -> dict[str, Any]:
        """A transition of each copy."""
        obs = _observed(self._state)
        step = self._algorithm.acting_step(torch.from_numpy(obs), None, torch.from_numpy(self._done), self._exploration)
        action = step.action.numpy()[:, 0]
        drawn = self._random.random(self._num_envs)
        thresholds = FOLLOWING[self._state, action].cumsum(1)
        following = (drawn[:, None] >= thresholds).sum(1)
        terminated = following == 2
        sample = {
            OBS: obs,
            DONE: self._done,
            ACT: step.action,
            REW: REWARDS[self._state, action].astype(np.float32)[:, None],
            # The last observation of an episode has no value.
            OBS2: _observed(np.minimum(following, 1)),
            DONE2: terminated[:, None],
            TRUNC2: np.zeros((self._num_envs, 1), np.bool_),
            **step.fields,
        }
        begin = (self._random.random(self._num_envs) < START[1]).astype(np.int64)
        self._state = np.where(terminated, begin, following)
        self._done = terminated.astype(np.float32)[:, None]
        return sample


def _observed(state: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.eye(2, dtype=np.float32)[state]


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
