"""Drawing from torch's global generator where torch takes no other, by one thread at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch


class _Turn:
    """The turn of a thread to exchange the state of torch's global generator."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def begin_anew(self) -> None:
        """Forget the turn of another thread, which a forked process does not inherit."""
        self.lock = threading.RLock()


_TURN = _Turn()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TURN.begin_anew)


@contextmanager
def global_generator(generator: torch.Generator) -> Iterator[None]:
    """Return a context in which torch's global generator continues ``generator``; its own state is restored after.

    Other threads wait to enter such a context, or that of :func:`seeded`.
    """
    random, where = random_functions(generator.device)
    with _TURN.lock:
        saved = random.get_rng_state(*where)
        random.set_rng_state(generator.get_state(), *where)
        try:
            yield
            generator.set_state(random.get_rng_state(*where))
        finally:
            random.set_rng_state(saved, *where)


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
