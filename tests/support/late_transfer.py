"""A simulated device that the host does not wait for: its data arrives only when the host waits for it."""

from typing import Any

import torch

from storages import Storage
from storages.core.device.transfer import Fetched, Transfer


class Arrival:
    """An event; until it is waited for, the copies hold meaningless numbers.

    Args:
        copies: tensors that are filled when they arrive.
        sources: tensors that are copied.
    """

    def __init__(self, copies: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
        self._copies, self._sources = copies, [source.clone() for source in sources]
        self.was_awaited = False

    def synchronize(self) -> None:
        self.was_awaited = True
        for copy, source in zip(self._copies, self._sources, strict=True):
            copy.copy_(source)


class LateTransfer(Transfer):
    """A transfer to the CPU as if it were another device."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.is_asynchronous = True
        self.arrivals: list[Arrival] = []
        """One arrival per update, oldest first."""

    def fetch(self, *tensors: torch.Tensor) -> Fetched:
        copies = [torch.full_like(tensor, 12_345) for tensor in tensors]
        self.arrivals.append(Arrival(copies, [tensor.detach() for tensor in tensors]))
        return Fetched(copies, self.arrivals[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return LateTransfer, ()


def with_late_errors(storage: Storage) -> Any:
    """Make a storage that does not wait for errors."""
    storage.sampler._transfer = LateTransfer()  # type: ignore[attr-defined]
    return storage
