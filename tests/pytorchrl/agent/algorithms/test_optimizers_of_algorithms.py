"""Algorithms use the optimiser that the user chooses, and refuse optimisers that they cannot use."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.optimizers import SGD, AdamW, RMSprop, TorchOptimizer
from tests.support.by_hand import envs_with, numpy, replayed
from tests.support.comparison import assert_equal
from tests.support.toys import continuous
from tests.support.training import saved_and_loaded

ACTIONS = np.array([[0], [1], [1], [0]])
BOX_ACTIONS = np.linspace(-1, 1, 4, dtype=np.float32)[:, None]
OPTIMIZERS: dict[str, Any] = {
    "AdamW": AdamW(weight_decay=0.1),
    "SGD": SGD(momentum=0.9),
    "RMSprop": RMSprop(),
    "Adagrad": TorchOptimizer("Adagrad"),
}


def made(cls: Any, **hyper_parameters: Any) -> Any:
    envs = envs_with(continuous() if cls in (prl.SAC, prl.TD3, prl.BCQ) else spaces.Discrete(2))
    torch.manual_seed(0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,))("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    return algorithm


def batch_for(algorithm: Any, seed: int = 0) -> Any:
    return replayed(ACTIONS if algorithm.actions == "discrete" else BOX_ACTIONS, seed)


def test_sgd_subtracts_the_gradient_times_the_learning_rate() -> None:
    algorithm = made(prl.DQN, optimizer=SGD(), lr=0.1, max_grad_norm=None)
    before = {name: numpy(parameter).copy() for name, parameter in algorithm.q.named_parameters()}
    gradients, _ = algorithm.compute_gradients(batch_for(algorithm))
    algorithm.update(batch_for(algorithm))
    for name, parameter in algorithm.q.named_parameters():
        np.testing.assert_allclose(numpy(parameter), before[name] - 0.1 * numpy(gradients[f"q.{name}"]), atol=1e-6)


def test_nature_dqns_rmsprop_has_its_epsilon_inside_the_root() -> None:
    setting = RMSprop(alpha=0.95, eps=0.01, centered=True, eps_inside_root=True)
    algorithm = made(prl.DQN, optimizer=setting, lr=0.1, max_grad_norm=None)
    before = numpy(algorithm.q.head.numbers.layer.bias).copy()
    gradients, _ = algorithm.compute_gradients(batch_for(algorithm))
    gradient = numpy(gradients["q.head.numbers.layer.bias"])
    algorithm.update(batch_for(algorithm))
    mean, square = 0.05 * gradient, 0.05 * gradient**2
    expected = before - 0.1 * gradient / np.sqrt(square - mean**2 + 0.01)
    np.testing.assert_allclose(numpy(algorithm.q.head.numbers.layer.bias), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("cls", "optimizer"),
    [(prl.DQN, "AdamW"), (prl.QRDQN, "SGD"), (prl.SAC, "RMSprop"), (prl.TD3, "Adagrad"), (prl.BCQ, "SGD")],
)
def test_algorithms_learn_and_resume_with_every_optimiser(cls: Any, optimizer: str) -> None:
    whole, resumed = (made(cls, optimizer=OPTIMIZERS[optimizer]) for _ in range(2))
    weights = whole.get_weights()
    for seed in range(3):
        whole.update(batch_for(whole, seed))
    moved = [name for name, weight in whole.get_weights().items() if not torch.equal(weight, weights[name])]
    assert moved
    resumed.load_state_dict(saved_and_loaded(whole.state_dict()))
    for algorithm in (whole, resumed):
        algorithm.update(batch_for(algorithm, 3))
    assert_equal(resumed.state_dict(), whole.state_dict())


@pytest.mark.parametrize("setting", [prl.LBFGS(), TorchOptimizer("LBFGS"), TorchOptimizer(torch.optim.LBFGS)])
def test_lbfgs_is_refused_by_dqn_and_accepted_by_trpo(setting: Any) -> None:
    message = r"DQN: \w+\(.*\) evaluates its loss several times a step, but 'q' is stepped .* optimizer=Adam\(\)"
    with pytest.raises(ValueError, match=message):
        made(prl.DQN, optimizer=setting)
    assert isinstance(made(prl.TRPO, optimizer=setting), prl.TRPO), (
        "TRPO can evaluate the loss of its value function again"
    )


def test_the_optimiser_of_an_algorithm_cannot_be_changed() -> None:
    for cls in (prl.DQN, prl.QRDQN, prl.SAC, prl.TD3, prl.BCQ, prl.PPO):
        algorithm = made(cls)
        with pytest.raises(ValueError, match=f"{cls.__name__}: optimizer is fixed once the object is made"):
            algorithm.update_algorithm_parameter("optimizer", SGD())
