"""Torch devices by name, and random generators and constants on them."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


class DeviceError(ValueError):
    """Raised for a device that this machine or its build of torch does not have."""


class DefaultDtypeError(ValueError):
    """Raised where torch's default dtype is not that of networks."""


def find_device(device: torch.device | str) -> torch.device:
    """Return the device of a name; "auto" is the GPU if there is one, else the CPU.

    Raises:
        DeviceError: there is no such device on this machine.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise DeviceError(
            f'device {device!r} is not a torch device; choose "auto", "cpu", "cuda" or "cuda:0"'
        ) from None
    if found.type == "cuda" and (reason := _why_no_gpu(found.index or 0)) is not None:
        raise DeviceError(
            f'device "{device}" is not available: {reason}; take device="cpu", or "auto" for the best available'
        )
    return found


def check_default_dtype(owner: str) -> None:
    """Check that tensors are made in the dtype in which networks compute.

    Args:
        owner: who makes networks, for the message.

    Raises:
        DefaultDtypeError: torch's default dtype is not float32.
    """
    dtype = torch.get_default_dtype()
    if dtype != torch.float32:
        raise DefaultDtypeError(
            f"{owner}: networks compute in float32, but torch's default dtype is {dtype}; call "
            f"torch.set_default_dtype(torch.float32) before, and give tensors of your own dtype={dtype}"
        )


def make_generator(device: torch.device) -> torch.Generator:
    """Return a random generator on a device; on the CPU for the meta device, whose tensors have no data."""
    return torch.Generator("cpu" if device.type == "meta" else device)


def seed_generators(generators: Sequence[torch.Generator], seed: int | np.random.SeedSequence) -> None:
    """Seed each generator with a number of its own that follows from one seed."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    for generator, number in zip(generators, sequence.generate_state(len(generators), np.uint64), strict=True):
        generator.manual_seed(int(number) >> 1)


def restore_generators(generators: Sequence[torch.Generator], states: Sequence[Tensor]) -> None:
    """Restore saved states of generators, except of those that were on another kind of device."""
    for generator, saved in zip(generators, states, strict=True):
        if saved.shape == generator.get_state().shape:
            generator.set_state(saved.cpu())


def make_constants(count: int, make: Callable[[], Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return constants (count,), without values if the default device is the meta device.

    To compute the values there, torch would import hundreds of modules.

    Args:
        count: how many.
        make: returns the constants, (count,).
        dtype: of the constants.
    """
    return torch.empty(count, dtype=dtype) if torch.get_default_device().type == "meta" else make()


def _why_no_gpu(index: int) -> str | None:
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA"
    count = torch.cuda.device_count()
    if not torch.cuda.is_available():
        return "torch finds no GPU, or no driver of one"
    return None if index < count else f"torch finds {count} GPU{'' if count == 1 else 's'}, numbered from 0"
