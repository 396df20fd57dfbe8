"""Checks of the arguments, states and contents of storages."""

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import torch

from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, UnitInterval
from storages.core.ring.ring import Ring
from storages.errors import EmptyStorageError


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


def refuse_if_empty(storage: Sized, ring: Ring) -> None:
    """Refuse to make batches of an empty storage.

    Raises:
        EmptyStorageError: nothing is stored.
    """
    # The length takes longer than the comparison.
    if ring.steps == ring.first and len(storage) == 0:
        raise EmptyStorageError(
            f"{type(storage).__name__}: no batch can be made of an empty storage; insert transitions first"
        )
