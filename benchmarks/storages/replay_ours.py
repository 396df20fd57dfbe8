"""Our storages behind the calls that ``beside_peers.py`` times, and the interface of every library."""

from collections.abc import Callable, Mapping
from itertools import cycle
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from benchmarks.storages.replay_content import GAMMA, Content, Rollout
from storages import GAEBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Storage
from storages.core.kernels.returns import generalized_advantages
from storages.transition import (
    ACT,
    DONE,
    DONE2,
    ERRORS,
    INDICES,
    OBS,
    OBS2,
    REW,
    TRUNC2,
    VAL,
    WEIGHTS,
)

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Sampling: TypeAlias = Callable[[], Tensors]
"""Gives a batch's observations, actions, rewards, next observations and ends, a row for each transition."""
Work: TypeAlias = Callable[[], object]

ALPHA, BETA, GAE_LAMBDA = 0.6, 0.4, 0.95


class Library(Protocol):
    """The calls of a library that are timed; None where it lacks one. Filling is not timed."""

    name: str

    def uniform(self, content: Content, batch_size: int) -> Sampling | None:
        """Draw a batch uniformly."""

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling | None:
        """Draw a batch of n-step transitions."""

    def prioritized(self, content: Content, batch_size: int) -> Sampling | None:
        """Draw a batch by priority, with importance weights, and update the priorities of its transitions."""

    def insertion(self, content: Content) -> Work | None:
        """Store the next step of all environments in a full storage."""

    def advantages(self, rollout: Rollout) -> Work | None:
        """Compute generalized advantages and returns."""


def error_batches(batch_size: int) -> "cycle[torch.Tensor]":
    """Return TD errors (batch_size,) as an update gives them, different for each batch."""
    generator = torch.Generator().manual_seed(1)
    return cycle(torch.randn(64, batch_size, generator=generator).abs().unbind())


def first_errors(transitions: int) -> torch.Tensor:
    """Return the initial TD errors (transitions,) of all transitions."""
    return torch.randn(transitions, generator=torch.Generator().manual_seed(2)).abs()


class Ours:
    """The package ``storages``."""

    name = "storages"

    def uniform(self, content: Content, batch_size: int) -> Sampling:
        """From a :class:`ReplayBuffer`, which keeps each frame of stacks once."""
        return _sampling(_filled(ReplayBuffer, content), batch_size)

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling:
        """From a :class:`NStepReplayBuffer`, which sums when it samples."""
        return _sampling(_filled(NStepReplayBuffer, content, n_step=n), batch_size)

    def prioritized(self, content: Content, batch_size: int) -> Sampling:
        """From a :class:`PERBuffer`; computing the metrics of ``after_gradients`` is included."""
        storage = _filled(PERBuffer, content, alpha=ALPHA, beta=BETA)
        next(iter(storage.generate_batches(1, 1)))
        numbers, errors = torch.arange(content.transitions)[:, None], first_errors(content.transitions)[:, None]
        for rows in torch.arange(content.transitions).split(100_000):
            batch = {INDICES: numbers[rows], WEIGHTS: torch.ones(len(rows), 1)}
            storage.after_gradients(batch, {ERRORS: errors[rows]})
        later_errors = error_batches(batch_size)

        def call() -> Tensors:
            batch = next(iter(storage.generate_batches(1, batch_size)))
            storage.after_gradients(batch, {ERRORS: next(later_errors)[:, None]})
            return _tensors(batch)

        return call

    def insertion(self, content: Content) -> Work:
        """Into a :class:`ReplayBuffer`."""
        storage = _filled(ReplayBuffer, content)
        samples, following = samples_of(content), content.steps % len(content.observation)
        steps = cycle(samples[following:] + samples[:following])
        return lambda: storage.insert_transition(next(steps))

    def advantages(self, rollout: Rollout) -> Work:
        """The kernel beneath :class:`GAEBuffer`."""
        advantages, returns = np.empty_like(rollout.values), np.empty_like(rollout.values)

        def call() -> None:
            generalized_advantages(
                rollout.rewards,
                rollout.values,
                rollout.next_values,
                rollout.ends,
                GAMMA,
                GAE_LAMBDA,
                advantages,
            )
            np.add(advantages, rollout.values, out=returns)

        return call

    def whole_update_phase(self, rollout: Rollout) -> Work:
        """All of a :class:`GAEBuffer`'s ``before_gradients``, with an actor that takes no time."""
        actor = SimpleNamespace(value=lambda obs, rhs, done: torch.zeros(len(obs), 1))
        steps, environments = rollout.rewards.shape
        storage = GAEBuffer.create_factory(size=steps, gae_lambda=GAE_LAMBDA)("cpu", actor, ALGORITHM, None)
        observation = np.zeros((environments, 1), np.float32)
        ends = rollout.ends[..., None]
        for step in range(steps):
            storage.insert_transition(
                {
                    OBS: observation,
                    DONE: ends[step - 1],
                    ACT: observation,
                    REW: rollout.rewards[step, :, None],
                    OBS2: observation,
                    DONE2: ends[step],
                    VAL: rollout.values[step, :, None],
                }
            )
        return storage.before_gradients


ALGORITHM = SimpleNamespace(gamma=GAMMA)


def _filled(storage_class: type[Storage], content: Content, **hyper_parameters: Any) -> Storage:
    envs = SimpleNamespace(num_envs=content.environments, stacked_frames=content.stacked_frames)
    storage = storage_class.create_factory(size=content.steps, **hyper_parameters)("cpu", None, ALGORITHM, envs)
    for _, sample in zip(range(content.steps), cycle(samples_of(content)), strict=False):
        storage.insert_transition(sample)
    return storage


def samples_of(content: Content) -> list[Mapping[str, np.ndarray]]:
    """Return the samples that are inserted into our storages, one for each step of the cycle."""
    fields = _fields_of(content)
    return [{key: array[step] for key, array in fields.items()} for step in range(len(content.observation))]


def slices_of(content: Content, steps: int) -> list[Mapping[str, np.ndarray]]:
    """Return the same in slices of a number of steps."""
    fields, firsts = _fields_of(content), range(0, len(content.observation), steps)
    return [{key: array[first : first + steps] for key, array in fields.items()} for first in firsts]


def _fields_of(content: Content) -> Mapping[str, np.ndarray]:
    return {
        OBS: content.observation,
        DONE: content.starts,
        ACT: content.action,
        REW: content.reward,
        OBS2: content.next_observation,
        DONE2: content.terminated,
        TRUNC2: content.truncated,
    }


def _sampling(storage: Storage, batch_size: int) -> Sampling:
    return lambda: _tensors(next(iter(storage.generate_batches(1, batch_size))))


def _tensors(batch: Mapping[str, torch.Tensor]) -> Tensors:
    return batch[OBS], batch[ACT], batch[REW], batch[OBS2], batch[DONE2]
