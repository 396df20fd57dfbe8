"""Helpers of the tests of algorithms: batches, linear actors, Adam in numpy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from storages.transition import (
    ACT,
    ACT2,
    DISCOUNT,
    DONE,
    DONE2,
    INDICES,
    OBS,
    OBS2,
    REW,
    TAKEN2,
    TRUNC2,
    WEIGHTS,
)

OBSERVATION_SIZE = 3
MORE_THAN_PLAIN: list[dict[str, Any]] = [
    {"activation": "elu"},
    {"layer_norm": True},
    {"dropout": 0.1},
    {"noisy": True},
]
"""Settings of actors whose layers are differentiated by autograd."""


def envs_with(action_space: Any) -> Any:
    return SimpleNamespace(
        observation_space=spaces.Box(-np.inf, np.inf, (OBSERVATION_SIZE,), np.float32), action_space=action_space
    )


def replayed(action: NDArray[Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch like those of ReplayBuffer, with one terminated row and different weights."""
    size = len(action)
    generator = np.random.default_rng(seed)
    terminated = (np.arange(size) == 1).astype(np.float32)[:, None]
    fields = {
        OBS: generator.normal(size=(size, OBSERVATION_SIZE)).astype(np.float32),
        OBS2: generator.normal(size=(size, OBSERVATION_SIZE)).astype(np.float32),
        ACT: action,
        REW: generator.normal(size=(size, 1)).astype(np.float32),
        DONE: np.zeros((size, 1), np.float32),
        DONE2: terminated,
        TRUNC2: np.zeros((size, 1), np.float32),
        DISCOUNT: 0.9 * (1 - terminated),
        WEIGHTS: generator.uniform(0.5, 1.5, (size, 1)).astype(np.float32),
        INDICES: np.arange(size)[:, None],
    }
    return {key: torch.from_numpy(value.copy()) for key, value in fields.items()}


def n_step_batch(action: NDArray[Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch of which rows sum up 1, 2 or 3 rewards: one ends in a terminal state, one is cut by a time limit."""
    batch = replayed(action, seed)
    steps = torch.tensor([[1.0], [3], [2], [3], [1], [2]])[: len(action)]
    batch[DISCOUNT] = 0.9**steps * (1 - batch[DONE2])
    return batch


def with_next_actions(batch: dict[str, torch.Tensor], seed: int = 0) -> dict[str, torch.Tensor]:
    """A batch with next actions, unknown where the episode terminated and in the last row, the newest step."""
    taken = 1 - batch[DONE2]
    taken[-1] = 0
    order = torch.randperm(len(taken), generator=torch.Generator().manual_seed(seed))
    return batch | {ACT2: torch.where(taken > 0, batch[ACT][order], batch[ACT]), TAKEN2: taken}


def linear_values(cls: Any, num_actions: int = 3, actor: Any = None, **hyper_parameters: Any) -> Any:
    """An algorithm of discrete actions, whose values and targets of one layer differ."""
    envs = envs_with(spaces.Discrete(num_actions))
    body = prl.OffPolicyActor.create_factory(**({"hidden_sizes": ()} | (actor or {})))("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", body, envs)
    algorithm.seed(0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (*algorithm.q.parameters(), *algorithm.q_target.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return algorithm


def numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    return tensor.detach().double().numpy()


def first_adam_step(gradient: NDArray[np.float64], lr: float, eps: float = 1e-8) -> NDArray[np.float64]:
    """The first step of Adam for a parameter: its moments are the gradient and its square."""
    return -lr * gradient / (np.abs(gradient) + eps)


def layer_of(module: Any) -> list[NDArray[np.float64]]:
    """Weight and bias of a head's layer."""
    return [numpy(module.layer.weight), numpy(module.layer.bias)]


def linear(layer: list[NDArray[np.float64]], features: Any) -> Any:
    """The output of a layer, given by :func:`layer_of`, for features (B, n)."""
    weight, bias = layer
    return features @ weight.T + bias


def perturb(network: torch.nn.Module, seed: int, scale: float = 1.0) -> None:
    """Add normal noise to all parameters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def exploring(algorithm: Algorithm, num_envs: int, seed: int = 0, *, deterministic: bool = False) -> Exploration:
    """The exploration of an algorithm that acts in a number of environments."""
    return Exploration(algorithm.codec, num_envs, algorithm.device, seed, deterministic)


def copies(batch: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() for key, value in batch.items()}


def numeric_gradient(loss: Any, parameter: NDArray[np.float64], step: float = 1e-6) -> NDArray[np.float64]:
    """Central differences of a numpy loss in each number of a parameter, which is changed and restored."""
    gradient = np.zeros_like(parameter)
    for position in np.ndindex(*parameter.shape):
        kept = parameter[position]
        parameter[position] = kept + step
        above = loss()
        parameter[position] = kept - step
        below = loss()
        parameter[position] = kept
        gradient[position] = (above - below) / (2 * step)
    return gradient
