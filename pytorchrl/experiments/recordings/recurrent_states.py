"""Recurrent states of an actor in episodes that were played by another agent."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from pytorchrl.scheme.collector import to_device
from storages.episode import Episode, Observations
from storages.transition import ACT, RHS, RHS2


def with_memory(episodes: Iterable[Episode], algorithm: Algorithm) -> Iterator[Episode]:
    """Return an iterator over the episodes with the current actor's recurrent states before and after each step.

    A storage for a recurrent actor is filled with these ("stored state" of Kapturowski et al., "Recurrent Experience
    Replay in Distributed Reinforcement Learning", 2019).

    Args:
        episodes: read lazily.
        algorithm: has the actor; its random generators are not used.

    Raises:
        ValueError: the actor is not recurrent.
    """
    if algorithm.actor.initial_memory(1) is None:
        raise ValueError(f"with_memory: {type(algorithm.actor).__name__} has no memory; fill the storage without it")
    return (replace(one, fields={**one.fields, **_memory(one, algorithm)}) for one in episodes)


def _memory(episode: Episode, algorithm: Algorithm) -> dict[str, Any]:
    rhs = algorithm.actor.initial_memory(1)
    assert rhs is not None
    exploration = Exploration(algorithm.codec, 1, algorithm.device, seed=0, deterministic=True)
    remembered = [rhs]
    taken = to_device(np.ascontiguousarray(episode.fields[ACT]), algorithm.device)
    actions = algorithm.codec.from_storage(taken)
    for step in range(len(episode)):
        exploration.taken = actions[step : step + 1]
        obs = _seen(episode.observations, step)
        done = torch.full((1, 1), float(step == 0), device=algorithm.device)
        rhs = algorithm.acting_step(to_device(obs, algorithm.device), rhs, done, exploration).rhs
        remembered.append(rhs)
    rows = np.concatenate([one.detach().cpu().numpy() for one in remembered])
    return {RHS: rows[:-1], RHS2: rows[1:]}


def _seen(observations: Observations, step: int) -> Any:
    """Return the observation of a step, (1, *obs), or a dict of such."""
    if isinstance(observations, Mapping):
        return {name: part[step : step + 1] for name, part in observations.items()}
    return observations[step : step + 1]
