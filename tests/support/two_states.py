"""A problem of two states whose policy gradient and Fisher information are known in closed form."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2

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
