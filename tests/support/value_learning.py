"""Value-based algorithms of discrete actions with networks of one layer, and their update in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2, WEIGHTS
from tests.support.by_hand import copies, envs_with, layer_of, linear, numeric_gradient, numpy, perturb, replayed

NUM_ACTIONS = 3
Floats = NDArray[np.float64]


def linear_learner(cls: Any, scale: float = 1.0, **hyper_parameters: Any) -> Any:
    """An algorithm whose online and target networks are different layers with weights of a given scale."""
    envs = envs_with(spaces.Discrete(NUM_ACTIONS))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    for seed, network in enumerate(dict.fromkeys((algorithm.q, algorithm.q_target)), start=1):
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)
        perturb(network, seed, scale)
    return algorithm


def batch_of_windows(seed: int = 0, size: int = 12) -> dict[str, Any]:
    """Windows of 1 to 3 steps, some shortened by both kinds of episode ends, with different weights."""
    random = np.random.default_rng(seed + 100)
    batch = replayed(random.integers(NUM_ACTIONS, size=(size, 1)), seed)
    terminated, truncated = (np.arange(size) % 4 == 1)[:, None], (np.arange(size) % 4 == 2)[:, None]
    batch[DONE2], batch[TRUNC2] = torch.from_numpy(terminated).float(), torch.from_numpy(truncated).float()
    lengths = torch.from_numpy(random.integers(1, 4, (size, 1)))
    batch[DISCOUNT] = 0.9**lengths * (1 - batch[DONE2])
    batch[REW] = batch[REW] * lengths
    return batch


class ByHand:
    """The layers of an algorithm and the rows of a batch, in numpy."""

    def __init__(self, algorithm: Any, batch: dict[str, Any]) -> None:
        self.online, self.target = layer_of(algorithm.q.head.numbers), layer_of(algorithm.q_target.head.numbers)
        fields = {key: numpy(batch[key]) for key in (OBS, OBS2, REW, DISCOUNT, WEIGHTS)}
        self.obs, self.obs2 = fields[OBS], fields[OBS2]
        self.reward, self.discount, self.weight = (fields[key][:, 0] for key in (REW, DISCOUNT, WEIGHTS))
        self.action = batch[ACT][:, 0].numpy()
        self.rows = range(len(self.action))

    def q(self, row: int) -> Floats:
        """(actions * numbers,): outputs of the online network for the observation."""
        return np.asarray(linear(self.online, self.obs[row]))

    def next_q(self, row: int) -> Floats:
        """Outputs of the online network for the next observation."""
        return np.asarray(linear(self.online, self.obs2[row]))

    def target_q(self, row: int) -> Floats:
        """Outputs of the target network for the observation."""
        return np.asarray(linear(self.target, self.obs[row]))

    def target_next_q(self, row: int) -> Floats:
        """Outputs of the target network for the next observation."""
        return np.asarray(linear(self.target, self.obs2[row]))

    def bootstrapped(self, row: int, double: bool) -> float:
        """The target of DQN."""
        chosen = int(np.argmax(self.next_q(row) if double else self.target_next_q(row)))
        return float(self.reward[row] + self.discount[row] * self.target_next_q(row)[chosen])


def huber(error: float, threshold: float | None = 1.0) -> float:
    """Half the square, continued by a line beyond the threshold."""
    if threshold is None or abs(error) <= threshold:
        return error**2 / 2
    return threshold * (abs(error) - threshold / 2)


def check_scalar_update(
    algorithm: Any, batch: dict[str, Any], target: Callable[[ByHand, int], float], threshold: float | None = 1.0
) -> ByHand:
    """Assert that loss, errors and gradients are those of a regression of action values on a target per row."""
    by_hand = ByHand(algorithm, batch)
    targets = [target(by_hand, row) for row in by_hand.rows]

    def error(row: int) -> float:
        return float(by_hand.q(row)[by_hand.action[row]] - targets[row])

    check_update(
        algorithm,
        batch,
        by_hand,
        lambda row: huber(error(row), threshold),
        np.array([abs(error(row)) for row in by_hand.rows]),
    )
    return by_hand


def check_update(
    algorithm: Any, batch: dict[str, Any], by_hand: ByHand, loss_of: Callable[[int], float], errors: Floats
) -> None:
    """Assert that loss, errors and gradients are those of a loss per row of the outputs of the online layer."""

    def loss() -> float:
        return float(np.mean([by_hand.weight[row] * loss_of(row) for row in by_hand.rows]))

    check_gradients(algorithm, batch, loss(), errors, [numeric_gradient(loss, part) for part in by_hand.online])


def check_gradients(algorithm: Any, batch: dict[str, Any], loss: float, errors: Floats, expected: list[Floats]) -> None:
    """Assert the expected loss, errors and gradients, an unchanged batch, and a target without gradients."""
    before = copies(batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], loss, rtol=1e-4)
    np.testing.assert_allclose(numpy(result.info[ERRORS])[:, 0], errors, rtol=1e-4, atol=1e-5)
    for part, gradient in zip(("weight", "bias"), expected, strict=True):
        found = numpy(gradients[f"q.head.numbers.layer.{part}"])
        np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-4)
    assert all(torch.equal(batch[key], before[key]) for key in before)
    if algorithm.q_target is not algorithm.q:
        assert not any(parameter.requires_grad for parameter in algorithm.q_target.parameters())
