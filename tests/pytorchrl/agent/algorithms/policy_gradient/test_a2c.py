"""A2C's gradients equal those of numpy, and can be computed by one copy and applied by another, as A3C does."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ADV, OBS, RET
from tests.support.by_hand import copies, envs_with, layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.rollout_batches import rollout_batch


def linear_a2c(**hyper_parameters: Any) -> prl.A2C:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs_with(spaces.Discrete(3)))
    algorithm: prl.A2C = prl.A2C.create_factory(**hyper_parameters)("cpu", actor, envs_with(spaces.Discrete(3)))
    algorithm.seed(0)
    perturb(actor, 1, 0.5)
    return algorithm


def test_gradients_are_those_of_a_numpy_version() -> None:
    algorithm = linear_a2c(entropy_coef=0.1, value_loss_coef=0.7)
    batch = rollout_batch(algorithm)
    before = copies(batch)
    fields = {key: numpy(value) for key, value in batch.items()}
    policy, value = layer_of(algorithm.pi.head), layer_of(algorithm.value.head)

    def loss() -> float:
        total = 0.0
        for row, obs in enumerate(fields[OBS]):
            logits = linear(policy, obs)
            log_p = logits - np.log(np.exp(logits).sum())
            total -= log_p[int(fields[ACT][row, 0])] * fields[ADV][row, 0]
            total += 0.7 * 0.5 * (linear(value, obs)[0] - fields[RET][row, 0]) ** 2
            total += 0.1 * (np.exp(log_p) * log_p).sum()
        return float(total / len(fields[OBS]))

    gradients, _ = algorithm.compute_gradients(batch)
    for network, layer in ((0, policy), (1, value)):
        for part, array in zip(("weight", "bias"), layer, strict=True):
            found = numpy(gradients[f"policy_and_value.{network}.head.layer.{part}"])
            np.testing.assert_allclose(found, numeric_gradient(loss, array), rtol=1e-3, atol=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_asynchronous_workers_share_the_weights_and_the_statistics_of_rmsprop() -> None:
    """A3C: workers compute gradients with their own weights, and apply them to weights that others have changed."""
    settings = {
        "lr": 0.01,
        "max_grad_norm": None,
        "optimizer": prl.RMSprop(alpha=0.9, eps=1e-3, centered=False, eps_inside_root=False),
    }
    server, *workers = (linear_a2c(**settings) for _ in range(3))
    expected = {name: numpy(value) for name, value in server.training.groups["policy_and_value"].parameters.items()}
    expected = {name: value.copy() for name, value in expected.items()}
    squares = {name: np.zeros_like(value) for name, value in expected.items()}
    for turn in range(4):
        # Both begin with the same weights; the second worker's gradients are stale when they are applied.
        for worker in workers:
            worker.set_weights(server.get_weights())
        computed = [
            worker.compute_gradients(rollout_batch(worker, seed=2 * turn + number))[0]
            for number, worker in enumerate(workers)
        ]
        for gradients in computed:
            server.apply_gradients(gradients)
            for name, value in expected.items():
                gradient = numpy(gradients[f"policy_and_value.{name}"])
                squares[name] = 0.9 * squares[name] + 0.1 * gradient**2
                value -= 0.01 * gradient / (np.sqrt(squares[name]) + 1e-3)
    for name, value in server.training.groups["policy_and_value"].parameters.items():
        np.testing.assert_allclose(numpy(value), expected[name], rtol=1e-4, atol=1e-6)
    assert server.updates == 8
