"""Sampling with a given generator by functions of torch that take none."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def global_generator(generator: torch.Generator) -> Iterator[None]:
    """Draw from ``generator`` where torch draws from its global one, whose state is restored afterwards."""
    device = generator.device
    random = torch.random if device.type == "cpu" else torch.get_device_module(device)
    where = () if device.type == "cpu" else (device,)
    saved = random.get_rng_state(*where)
    random.set_rng_state(generator.get_state(), *where)
    try:
        yield
        generator.set_state(random.get_rng_state(*where))
    finally:
        random.set_rng_state(saved, *where)
