"""Seeds of NumPy's, Python's and torch's global generators in the processes that a run starts.

A forked process inherits the state of these generators, and torch's has the same state in each new interpreter: without
seeds of their own, environments that draw from them would draw the same numbers in all processes.
"""

import hashlib
import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch

from pytorchrl.agent.torch_random import global_state

_SEED: ContextVar[np.random.SeedSequence | None] = ContextVar("seed of processes", default=None)
_COUNT = itertools.count()
"""Counts the groups of processes whose seed follows from the state of this one."""


def seed_process(seed: np.random.SeedSequence) -> None:
    """Seed the global generators of NumPy, Python and torch in this process, which was started for a run."""
    of_numpy, of_python, of_torch = seed.spawn(3)
    np.random.seed(of_numpy.generate_state(8))  # noqa: NPY002 - it is environments that draw from it
    random.seed(of_python.generate_state(8).tobytes())
    torch.manual_seed(int(of_torch.generate_state(1, np.uint64)[0]) >> 1)


@contextmanager
def seeding_processes(seed: np.random.SeedSequence) -> Iterator[None]:
    """Return a context in which :func:`seeds_of_processes` returns seeds that follow from this one."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


def seeds_of_processes(number: int) -> list[np.random.SeedSequence]:
    """Return a seed for each process of a group, for :func:`seed_process`; no two groups have the same ones.

    They follow from the seed of :func:`seeding_processes`, else from the state of this process's global generators,
    which is not changed.
    """
    seed = _SEED.get()
    group = _seed_of_this_process() if seed is None else seed.spawn(1)[0]
    return group.spawn(number)


def _seed_of_this_process() -> np.random.SeedSequence:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002 - what forked processes inherit
    state = (name, np.asarray(keys).tobytes(), rest, random.getstate(), global_state().numpy().tobytes())
    digest = hashlib.sha256(repr(state).encode()).digest()
    return np.random.SeedSequence(int.from_bytes(digest), spawn_key=(next(_COUNT),))
