"""Batches of rollouts by the policy of an algorithm, for tests of one update."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, ADV, DONE, OBS, RET, REW, RHS, Batch
from tests.support.by_hand import OBSERVATION_SIZE

SPACES = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,), np.float32)}


def rollout_batch(algorithm: PolicyGradient, size: int = 8, seed: int = 0) -> Batch:
    """One step of each of ``size`` environments, with random advantages and returns."""
    generator = np.random.default_rng(seed)
    obs = tensor(generator, size, OBSERVATION_SIZE)
    batch = acted(algorithm, obs, None, torch.zeros(size, 1), seed)
    return batch | {OBS: obs, **outcomes(generator, size, 1)}


def rollout_of_sequences(algorithm: PolicyGradient, steps: int = 6, envs: int = 3, seed: int = 0) -> Batch:
    """Steps of environments by an actor with a memory; an episode of the first environment ends within them."""
    generator = np.random.default_rng(seed)
    obs = tensor(generator, steps, envs, OBSERVATION_SIZE)
    done = torch.zeros(steps, envs, 1)
    done[0], done[steps // 2, 0] = 1, 1
    rhs = first = algorithm.actor.initial_memory(envs)
    batches = []
    for step in range(steps):
        batches.append(acted(algorithm, obs[step], rhs, done[step], seed + step))
        rhs = batches[-1].pop("rhs")
    batch = {key: torch.stack([part[key] for part in batches]) for key in batches[0]}
    return batch | {OBS: obs, DONE: done, RHS: first, **outcomes(generator, steps, envs, 1)}


def acted(algorithm: PolicyGradient, obs: Any, rhs: Any, done: torch.Tensor, seed: int) -> Batch:
    """The stored fields of a step, and the memory after it if there is one."""
    exploration = Exploration(algorithm.codec, len(obs), "cpu", seed)
    step = algorithm.acting_step(obs, rhs, done, exploration)
    memory = {} if rhs is None else {"rhs": step.rhs.clone()}
    with torch.no_grad():
        view = algorithm.actor.view(obs, rhs, done)
        values = {field: algorithm.value_functions()[field](view) for field in algorithm.values_when_full}
    stored = {key: field.clone() for key, field in step.fields.items()}
    return {ACT: step.action.clone(), **stored, **values, **memory}


def outcomes(generator: np.random.Generator, *shape: int) -> Batch:
    """Random rewards, advantages and returns."""
    return {key: scale * tensor(generator, *shape) for key, scale in ((REW, 1.0), (ADV, 2.0), (RET, 1.0))}


def tensor(generator: np.random.Generator, *shape: int) -> torch.Tensor:
    """A tensor of standard normal numbers."""
    return torch.from_numpy(generator.normal(size=shape).astype(np.float32))
