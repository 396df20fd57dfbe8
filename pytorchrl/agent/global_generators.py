"""Global random generators of torch, NumPy and Python, and their seeds in processes of a run."""

import hashlib
import itertools
import os
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch


class _Turn:
    """The turn of a thread to exchange the state of torch's global generator."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def reset(self) -> None:
        """Forget the turn of another thread, which a forked process does not inherit."""
        self.lock = threading.RLock()


_TURN = _Turn()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TURN.reset)


@contextmanager
def global_generator(generator: torch.Generator) -> Iterator[None]:
    """Return a context in which torch's global generator continues ``generator``; its own state is restored after.

    Other threads wait to enter such a context, or that of :func:`seeded`.
    """
    functions, where = random_functions(generator.device)
    with _TURN.lock:
        saved = functions.get_rng_state(*where)
        functions.set_rng_state(generator.get_state(), *where)
        try:
            yield
            generator.set_state(functions.get_rng_state(*where))
        finally:
            functions.set_rng_state(saved, *where)


def random_functions(device: torch.device) -> tuple[Any, tuple[torch.device, ...]]:
    """Return the module with ``get_rng_state`` and ``set_rng_state`` of a device, and their argument that names it."""
    if device.type == "cpu":
        return torch.random, ()
    # There is one device of Metal, whose functions take none.
    return torch.get_device_module(device), () if device.type == "mps" else (device,)


@contextmanager
def seeded(seed: np.random.SeedSequence, device: torch.device) -> Iterator[None]:
    """Return a context in which torch's global generators of the CPU and a device are seeded.

    As :func:`global_generator`. Other devices are left alone: a forked process cannot ask those of its parent.
    """
    number = int(seed.generate_state(1, np.uint64)[0]) >> 1
    with ExitStack() as contexts:
        for place in ("cpu",) if device.type in ("cpu", "meta") else ("cpu", device):
            contexts.enter_context(global_generator(torch.Generator(place).manual_seed(number)))
        yield


def global_state() -> torch.Tensor:
    """Return the state of torch's global generator outside of these contexts, as the user left it."""
    with _TURN.lock:
        return torch.get_rng_state()


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
