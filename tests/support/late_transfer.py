"""A device that the host does not wait for, without a device: what it sends back arrives when it is waited for."""

from typing import Any

import torch

from storages import Storage
from storages.core.device.transfer import Fetched, Transfer


class Arrival:
    """An event; until it is waited for, copies hold numbers that are of no use.

    Args:
        copies: what is written when they arrive.
        sources: of which they are copies.
    """

    def __init__(self, copies: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
        self._copies, self._sources = copies, [source.clone() for source in sources]
        self.was_awaited = False

    def synchronize(self) -> None:
        self.was_awaited = True
        for copy, source in zip(self._copies, self._sources, strict=True):
            copy.copy_(source)


class LateTransfer(Transfer):
    """The way to the CPU as if it were a device of its own."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.is_asynchronous = True
        self.arrivals: list[Arrival] = []
        """One for each update, oldest first."""

    def fetch(self, *tensors: torch.Tensor) -> Fetched:
        copies = [torch.full_like(tensor, 12_345) for tensor in tensors]
        self.arrivals.append(Arrival(copies, [tensor.detach() for tensor in tensors]))
        return Fetched(copies, self.arrivals[-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return LateTransfer, ()


def with_late_errors(storage: Storage) -> Any:
    """The storage, which does not wait for errors any more."""
    storage.sampler._transfer = LateTransfer()  # type: ignore[attr-defined]
    return storage
