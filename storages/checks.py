"""Argument checks of storages, and copies of stored steps."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, UnitInterval
from storages.core.device.transfer import to_batch
from storages.core.ring.layout import FieldKey, as_array
from storages.core.ring.ring import Ring
from storages.transition import DONE, ERRORS, Array, Batch


def checked_device(device: Any, owner: str) -> torch.device:
    """Return the device that a storage is made with.

    Raises:
        TypeError: it is neither a torch.device nor the name of one, as where arguments are in another order.
    """
    if isinstance(device, str | torch.device):
        return torch.device(device)
    raise TypeError(
        f"{owner}: arguments begin with device, actor, algorithm, envs, size or with size, device, actor, algorithm, "
        f"envs; the device is a torch.device or its name, got {type(device).__name__}. "
        f"{owner}.create_factory(size=...)(device, actor, algorithm, envs) keeps them apart"
    )


def checked_gamma(gamma: Any, owner: str) -> float:
    """Return an algorithm's per-step discount factor.

    Raises:
        ValueError: it is not a number in [0, 1].
    """
    checked: float = conform_named(gamma, UnitInterval, f"{owner}: the algorithm's gamma")
    return checked


def refuse_counts(num_mini_batch: int, mini_batch_size: int | None, num_epochs: int, owner: str) -> None:
    """Refuse invalid counts passed to ``generate_batches``.

    Raises:
        ValueError: one is not an integer of at least 1.
    """
    counts = {"num_mini_batch": num_mini_batch, "mini_batch_size": mini_batch_size, "num_epochs": num_epochs}
    for name, count in counts.items():
        if count is not None or name != "mini_batch_size":
            conform_named(count, Count, f"{owner}: {name}")


def refuse_incomplete(state: Mapping[str, Any], names: Sequence[str], owner: str) -> None:
    """Refuse a state that lacks required entries.

    Raises:
        ValueError: the message names the missing entries.
    """
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(
            f"{owner}: the state lacks {', '.join(map(repr, missing))}, which state_dict() of such a storage has; it "
            f"has {', '.join(map(repr, state)) or 'nothing'}. Nothing was changed"
        )


def slice_errors(data: Mapping[str, Any], arrays: Mapping[FieldKey, Array], owner: str) -> NDArray[np.floating] | None:
    """Return the TD errors (N,) of a slice, one for each transition; None where it has none.

    Args:
        data: the slice.
        arrays: its fields.
        owner: the storage's name.

    Raises:
        ValueError: they are not one real number for each transition, or not finite as float32.
    """
    if ERRORS not in data:
        return None
    errors, expected = as_array(data[ERRORS], (ERRORS,), owner), arrays[(DONE,)].shape if (DONE,) in arrays else ()
    if errors.shape != expected or errors.dtype.kind not in "biuf":
        raise ValueError(
            f"{owner}: {ERRORS} of a slice must be real numbers of shape {expected}, one for each transition, got "
            f"{errors.dtype} of shape {errors.shape}; nothing was stored"
        )
    # Values beyond float32 are refused below; NumPy must not warn of them, or raise another error, before.
    with np.errstate(over="ignore"):
        of_all: NDArray[np.floating] = np.ascontiguousarray(errors, np.float32).reshape(-1)
    if not np.isfinite(of_all).all():
        raise ValueError(f"{owner}: {ERRORS} of a slice must be finite as float32; nothing was stored")
    return of_all


def steps_of(ring: Ring, start: int, end: int, device: torch.device) -> Batch:
    """Copy the steps [``start``, ``end``), counted from the oldest, as tensors (steps, E, ...).

    Raises:
        IndexError: the steps are not all stored.
    """
    if not 0 <= start <= end <= ring.live_steps:
        raise IndexError(f"{ring.owner}: steps {start} to {end} are out of range, with {ring.live_steps} steps stored")
    if not ring.layout:
        return {}
    first = ring.oldest + start
    batch = to_batch(ring.gather(np.arange(first * ring.envs, (first + end - start) * ring.envs)), device)
    shape = (end - start, ring.envs)
    return {
        key: {name: leaf.unflatten(0, shape) for name, leaf in value.items()}
        if isinstance(value, dict)
        else value.unflatten(0, shape)
        for key, value in batch.items()
    }
