"""Shards in the process of the test that can be filled, fall silent and die on request."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from storages import PERBuffer, ReplayBuffer
from storages.component.factory import Factory
from storages.sharded import LocalShards, Pending, ReplayShard, ShardLostError
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.model import ALGORITHM

PRIORITISED = PERBuffer.create_factory(size=64, alpha=0.7, beta=0.5, epsilon=0.01)


def slice_of(random: np.random.Generator, steps: int, num_envs: int = 2, first: int = 0) -> dict[str, Any]:
    """Steps whose observations are their numbers, of episodes that end at random."""
    numbers = np.arange(first, first + steps + 1, dtype=np.float32)
    seen = np.stack([np.repeat(numbers[:, None], num_envs, 1), np.tile(np.arange(num_envs), (steps + 1, 1))], -1)
    seen = seen.astype(np.float32)
    terminated = random.random((steps, num_envs, 1)) < 0.1
    begins = np.ones((steps, num_envs, 1), bool)
    begins[1:] = terminated[:-1]
    return {
        OBS: seen[:-1],
        DONE: begins,
        ACT: random.integers(0, 4, (steps, num_envs, 1)),
        REW: random.normal(size=(steps, num_envs, 1)).astype(np.float32),
        OBS2: seen[1:],
        DONE2: terminated,
        TRUNC2: np.zeros_like(terminated),
    }


def maker(factory: Factory[Any], directory: Path | None = None) -> Any:
    """A function that makes the storage of a shard, equal in each call."""
    given = factory.hyper_parameters | ({} if directory is None else {"directory": directory})

    def make() -> ReplayBuffer:
        storage: ReplayBuffer = Factory(factory.cls, given)("cpu", None, ALGORITHM, None)
        storage.seed(0)
        return storage

    return make


_CALLS_OF_REPLACEMENTS = "__setattr__", "pin", "take_changes", "include_next_actions", "include_returns_to_go"


class _Answer:
    def __init__(self, group: "FragileShards", shard: int, work: Any) -> None:
        self.group, self.shard, self._work, self._life = group, shard, work, group.lives[shard]
        self._done = False

    def come(self) -> bool:
        return self.shard not in self.group.silent

    def result(self) -> Any:
        if not self._done:
            self._done = True
            if self._life != self.group.lives[self.shard]:
                self._value, self._error = None, ShardLostError(f"shard {self.shard} died")
            else:
                self._value, self._error = self._work(), None
        if self._error is not None:
            raise self._error
        return self._value


class FragileShards(LocalShards):
    """Shards in this process that work when an answer is requested, fall silent, die and are replaced.

    Args:
        factory: factory of the storages.
        count: number of shards.
        folder: where they are kept on disk; None for in memory.
    """

    def __init__(self, factory: Factory[Any], count: int, folder: Path | None = None) -> None:
        self._factory = factory
        self._directories = [None if folder is None else folder / f"shard-{shard}" for shard in range(count)]
        super().__init__([maker(factory, directory) for directory in self._directories])
        self.lives = [0] * count
        self.silent: set[int] = set()
        """Shards that do not answer."""
        self.dead: list[ReplayShard] = []

    def kill(self, shard: int) -> None:
        """Lose unanswered requests, and replace the shard by a storage with the data on disk."""
        self.dead.append(self.shards[shard])
        directory = self._directories[shard]
        if directory is not None:
            of_the_next = directory.with_name(f"{directory.name}-{len(self.dead)}")
            shutil.copytree(directory, of_the_next)
            self._directories[shard] = directory = of_the_next
        self.lives[shard] += 1
        self.shards[shard] = ReplayShard(maker(self._factory, directory))

    def close(self) -> None:
        """Also close the dead shards, which hold their directories while this process lives."""
        super().close()
        for shard in self.dead:
            shard.storage.close()

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        answer = _Answer(self, shard, lambda: getattr(self.shards[shard], method)(*arguments))
        if method == "call" and arguments[0] in _CALLS_OF_REPLACEMENTS:
            # The answers of these calls are not always requested.
            answer.result()
        return answer

    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        return next((one for one in pending if one.come()), None)  # type: ignore[attr-defined]
