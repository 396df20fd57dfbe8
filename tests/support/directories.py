"""Storages with a directory, beside equal ones without, and contexts that limit the sizes of files."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from storages import EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Sequences, Storage
from storages.persistent.replay import write_ahead_log
from storages.sequence_settings import Episodes
from storages.transition import ERRORS, MASK, REW
from tests.support.model import ALGORITHM, Stream, contents, environments, equal, unchanged

SIZE = 12
PRIORITIES = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01, "default_error": "largest"}
RECENCY = {"eta": 0.99, "cmin": 6, "adapt_eta": True}


def noisy(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor + torch.rand(tensor.shape, generator=generator)


WAYS: dict[str, Callable[..., Any]] = {
    "plain": lambda **given: ReplayBuffer.create_factory(**given),
    "n steps": lambda **given: NStepReplayBuffer.create_factory(n_step=3, **given),
    "priority": lambda **given: PERBuffer.create_factory(**PRIORITIES, **given),
    "recency": lambda **given: EREBuffer.create_factory(n_step=2, **PRIORITIES, **RECENCY, **given),
    "hindsight": lambda **given: HERBuffer.create_factory(
        her_function=unchanged, her_ratio=0.7, n_step=2, **PRIORITIES, **RECENCY, **given
    ),
    "ahead": lambda **given: PERBuffer.create_factory(
        n_step=2, prefetch=2, transforms={REW: noisy}, **PRIORITIES, **given
    ),
    "episodes": lambda **given: PERBuffer.create_factory(sequences=Episodes(longest=4), **PRIORITIES, **given),
    "sequences": lambda **given: PERBuffer.create_factory(sequences=Sequences(4, burn_in=2), **PRIORITIES, **given),
}


def made(way: str, directory: Path | None, envs: Any = None, size: int = SIZE, **given: Any) -> Any:
    return WAYS[way](size=size, directory=directory, **given)("cpu", None, ALGORITHM, envs)


class Pair:
    """A storage with a directory and its twin without one, with equal operations on both.

    Args:
        way: kind of storage, a key of :data:`WAYS`.
        directory: directory of the first storage.
        kind: kind of observation.
        num_envs: number of environments.
    """

    def __init__(
        self, way: str, directory: Path, kind: str = "vector", num_envs: int = 2, seed: int = 0, **given: Any
    ) -> None:
        self.directory, self._way, self._given = directory, way, given
        self._envs = environments(kind, num_envs)
        self._stream = Stream(num_envs, kind, True, np.random.default_rng(seed))
        self._random = np.random.default_rng(seed)
        self.kept = self.open()
        self.twin = made(way, None, self._envs, size=given.get("size", SIZE))
        for one in (self.kept, self.twin):
            one.seed(seed)

    def open(self, directory: Path | None = None) -> Any:
        return made(self._way, directory or self.directory, self._envs, **self._given)

    def reopen(self) -> None:
        self.kept.close()
        self.kept = self.open()

    def close(self) -> None:
        if self.kept is not None:
            self.kept.close()

    def insert(self, steps: int = 1) -> None:
        for _ in range(steps):
            sample = self._stream.step()
            for one in (self.kept, self.twin):
                one.insert_transition(sample)

    def update(self) -> None:
        """Draw batches, which have to be equal, and update their errors."""
        seed = int(self._random.integers(2**30))
        kept, twin = (list(_updated(one, np.random.default_rng(seed))) for one in (self.kept, self.twin))
        assert equal(dict(enumerate(kept)), dict(enumerate(twin)))

    def assert_same(self) -> None:
        assert contents(self.kept) == contents(self.twin)
        if len(self.twin):
            self.update()


def _updated(storage: Storage, random: np.random.Generator) -> Iterator[Any]:
    storage.after_episodes([float(random.normal())])
    for batch in storage.generate_batches(2, 6):
        shape = batch[MASK].shape if MASK in batch else (6, 1)
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=shape))})
        yield batch


@contextmanager
def files_no_longer_than(size_bytes: int) -> Iterator[None]:
    """A full disk: files cannot grow beyond a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def longest_file_bytes(directory: Path) -> int:
    return max(path.stat().st_size for path in directory.iterdir())


@contextmanager
def small_segments(size_bytes: int = 3_000) -> Iterator[None]:
    """Log files that are full after a few commits."""
    before = write_ahead_log.LOG_FILE_BYTES
    write_ahead_log.LOG_FILE_BYTES = size_bytes
    try:
        yield
    finally:
        write_ahead_log.LOG_FILE_BYTES = before
