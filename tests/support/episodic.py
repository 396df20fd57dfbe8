"""A simple reference model of a storage of whole episodes, and buffers with equal operations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from storages import PersistentEpisodicBuffer
from storages.transition import DISCOUNT, DONE, DONE2, ERRORS, INDICES, OBS, OBS2, REW, RHS, RHS2, TRUNC2, WEIGHTS
from tests.support.model import ALGORITHM, Model, Stream, all_leaves, assert_row_equal, environments, equal, map_leaves
from tests.support.windows_model import Episodic

Transition = tuple[dict[str, Any], int]
"""A step and the number of the environment in it."""


def buffer(directory: Path, kind: str = "vector", num_envs: int = 2, size: int | None = 40, **given: Any) -> Any:
    factory = PersistentEpisodicBuffer.create_factory(size, directory, **given)
    return factory("cpu", None, ALGORITHM, environments(kind, num_envs))


@dataclass
class EpisodesModel:
    """Finished episodes in the order of their ends; each is a list of complete transitions."""

    size: int
    longest: int | None = None
    finished: list[list[Transition]] = field(default_factory=list)
    running: dict[int, list[Transition]] = field(default_factory=dict)
    gone: int = 0

    def insert(self, sample: dict[str, Any]) -> None:
        envs = range(len(sample[DONE]))
        for env in envs:
            running = self.running.setdefault(env, [])
            if running and (sample[DONE][env, 0] or not self._continues(running[-1], sample, env)):
                self._finish(env)
        ended = sample[DONE2] | sample[TRUNC2]
        for env in envs:
            self.running[env].append((sample, env))
            if ended[env, 0]:
                self._finish(env)
        for env in envs:
            if len(self.running[env]) == (self.longest or self.size):
                self._finish(env)

    def end_episode(self, envs: Iterable[int]) -> None:
        for env in envs:
            if self.running.get(env):
                sample, _ = self.running[env][-1]
                self.running[env][-1] = (sample | {TRUNC2: sample[TRUNC2] | True}, env)
                self._finish(env)

    def _continues(self, before: Transition, sample: dict[str, Any], env: int) -> bool:
        pairs = [(OBS2, OBS)] + ([(RHS2, RHS)] if RHS in sample else [])
        return all(
            led_to[env].tobytes() == begins[env].tobytes()
            for one, other in pairs
            for led_to, begins in zip(all_leaves(before[0][one]), all_leaves(sample[other]), strict=True)
        )

    def _finish(self, env: int) -> None:
        self.finished.append(self.running[env])
        self.running[env] = []
        while sum(map(len, self.finished)) > self.size:
            self.gone += len(self.finished.pop(0))

    @property
    def transitions(self) -> list[Transition]:
        return [transition for episode in self.finished for transition in episode]

    def windows(self) -> Episodic:
        """The model of batches of windows, sequences and episodes, as of one environment."""
        model = Model(self.size, next_step=self.gone + len(self.transitions))
        for number, (sample, env) in enumerate(self.transitions, self.gone):
            model.steps[number] = map_leaves(sample, lambda leaf, env=env: np.array(leaf[env : env + 1]))
        runs, first = [], self.gone
        for episode in self.finished:
            runs.append(list(range(first, first + len(episode))))
            first += len(episode)
        return Episodic(model, 1, [runs])

    def assert_holds(self, storage: Any) -> None:
        """Assert that a storage, completely in memory, has these transitions in this order, and draws them."""
        transitions = self.transitions
        assert len(storage) == len(transitions)
        data = storage.get_all_buffer_data()
        rows = {key: _without_environments(value) for key, value in data.items()}
        for row, (sample, env) in enumerate(transitions):
            assert_row_equal(rows, row, sample, env)
        if transitions and storage.sequences is None and storage.n_step == 1:
            for batch in storage.generate_batches(1, 6):
                own = {key: value for key, value in batch.items() if key not in (DISCOUNT, WEIGHTS, INDICES)}
                for row, number in enumerate(batch[INDICES][:, 0].tolist()):
                    sample, env = transitions[number - self.gone]
                    assert_row_equal(own, row, sample, env)
                    assert batch[DISCOUNT][row, 0] == np.float32(0 if sample[DONE2][env, 0] else ALGORITHM.gamma)
        episodes = list(storage.episodes())
        assert [len(episode) for episode in episodes] == [len(episode) for episode in self.finished]
        for episode, expected in zip(episodes, self.finished, strict=True):
            (first, env), (last, _) = expected[0], expected[-1]
            observations = [sample[OBS] for sample, _ in expected] + [last[OBS2]]
            for number, observation in enumerate(observations):
                for found, wanted in zip(all_leaves(episode.observations), all_leaves(observation), strict=True):
                    assert found[number].tobytes() == wanted[env].tobytes()
                    assert found.dtype == wanted.dtype
            assert episode.terminated == bool(last[DONE2][env, 0])
            assert episode.truncated == bool(last[TRUNC2][env, 0])
            assert first[DONE].shape[1:] == (1,)


def _without_environments(value: Any) -> Any:
    return {name: leaf[:, 0] for name, leaf in value.items()} if isinstance(value, dict) else value[:, 0]


def updated(storage: Any, seed: int) -> dict[int, Any]:
    """Draw batches and update their errors, as given by the seed."""
    random, batches = np.random.default_rng(seed), {}
    for number, batch in enumerate(storage.generate_batches(3, 7)):
        shape = batch[REW].shape
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=shape))})
        batches[number] = batch
    return batches


class Twins:
    """Two buffers with equal operations, of which one is closed and reopened.

    Args:
        directory: folder of both buffers.
        kind: kind of observation.
        num_envs: number of environments.
        given: hyper-parameters.
    """

    def __init__(self, directory: Path, kind: str = "vector", num_envs: int = 2, seed: int = 0, **given: Any) -> None:
        self._directory, self._kind, self._num_envs, self._given = directory, kind, num_envs, given
        self.stream = Stream(num_envs, kind, True, np.random.default_rng(seed))
        self.one, self.two = (buffer(directory / name, kind, num_envs, **given) for name in ("one", "two"))
        for storage in (self.one, self.two):
            storage.seed(seed)
        self._updates = 0

    def insert(self, steps: int) -> None:
        for _ in range(steps):
            sample = self.stream.step()
            self.one.insert_transition(sample)
            self.two.insert_transition(sample)

    def update(self) -> None:
        self._updates += 1
        if len(self.two):
            assert equal(updated(self.one, self._updates), updated(self.two, self._updates))

    def reopen(self) -> None:
        self.one.close()
        self.two.flush()
        self.one = self.opened()

    def opened(self) -> Any:
        return buffer(self._directory / "one", self._kind, self._num_envs, **self._given)

    def close(self) -> None:
        self.one.close()
        self.two.close()


def with_a_pinned_position(directory: Path, **given: Any) -> tuple[Any, Any, EpisodesModel]:
    """Return a buffer that went on after a position, the position, and what it held there."""
    storage, stream = buffer(directory, **given), Stream(2, "vector", False, np.random.default_rng(0))
    model = EpisodesModel(40)
    for _ in range(60):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    storage.flush()
    position = storage.position
    storage.pin(position)
    for _ in range(200):
        storage.insert_transition(stream.step())
    storage.flush()
    return storage, position, model
