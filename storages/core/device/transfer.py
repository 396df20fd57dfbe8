"""Transfer of batches to the algorithm's device, and of update results back."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.transition import BATCH_SIZES, Batch

_ALIGNED_BYTES = 64
_CPU = torch.device("cpu")


class Sent(NamedTuple):
    """A batch in transfer to a device."""

    batch: Batch
    arrived: torch.cuda.Event | None
    """Event at the end of the transfer; None where the batch has arrived."""


class Fetched:
    """Tensors in transfer to the host.

    Args:
        tensors: host tensors, the targets of the copies.
        arrived: event after the copies; None where they are done.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], arrived: Any) -> None:
        self._tensors, self._arrived = tensors, arrived

    def arrays(self) -> list[NDArray[Any]]:
        """Wait for the transfer, and return the tensors as arrays."""
        if self._arrived is not None:
            self._arrived.synchronize()
            self._arrived = None
        return [tensor.numpy() for tensor in self._tensors]

    def __getstate__(self) -> dict[str, Any]:
        # An event can be neither copied nor pickled.
        self.arrays()
        return self.__dict__


class Transfer:
    """Transfers batches to a device, and results of updates back.

    On the CPU, tensors share the memory of the gathered arrays. To a CUDA device, a batch is one copy from pinned
    memory, on a separate stream, so that neither the CPU nor computation on the device waits for it. Pinned memory
    comes from torch's caching allocator, which reuses a block only when the copy from it is done.

    Args:
        device: device of the batches.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = _CPU if device.type == "cpu" else device
        self._stream: Any = None
        self.is_asynchronous = device.type == "cuda"
        """Whether the host need not wait for the device."""
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # With an explicit index, because the current device may differ in other threads.
            self.device = self._stream.device

    def send(self, fields: Mapping[str, Any], finish: Callable[[Batch], Batch] | None = None) -> Sent:
        """Begin a batch's transfer, on any thread.

        Args:
            fields: arrays (B, ...), or dicts of such, not shared with anything else.
            finish: function applied to the batch on the device; None for none.
        """
        if self._stream is None:
            batch = to_batch(fields, self.device)
            return Sent(batch if finish is None else finish(batch), None)
        with self.stream():
            away = {key: value for key, value in fields.items() if key != BATCH_SIZES}
            batch = unpack(pack(away, pin_memory=True).to(self.device))
            if BATCH_SIZES in fields:
                batch[BATCH_SIZES] = torch.from_numpy(fields[BATCH_SIZES])
            if finish is not None:
                batch = finish(batch)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(self._stream)
        return Sent(batch, arrived)

    def stream(self) -> AbstractContextManager[Any]:
        """Return a context manager that runs device operations on the stream of the transfers."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def receive(self, sent: Sent) -> Batch:
        """Return the batch, after making the current stream wait for its transfer."""
        if sent.arrived is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(sent.arrived)
            for leaf in _tensors(sent.batch):
                # The allocator must not reuse memory of the transfer stream while this stream still uses it.
                if leaf.is_cuda:
                    leaf.record_stream(stream)
        return sent.batch

    def fetch(self, *tensors: torch.Tensor) -> Fetched:
        """Begin an asynchronous copy of tensors to the host, after the work queued on the current stream."""
        if not self.is_asynchronous:
            return Fetched([tensor.detach().cpu().clone() for tensor in tensors], None)
        copies = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in tensors]
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor.detach(), non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(self.device))
        return Fetched(copies, arrived)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy needs its own stream.
        return Transfer, (self.device,)


def to_batch(fields: Mapping[str, Any], device: torch.device) -> Batch:
    """Convert arrays to tensors of the same dtypes on ``device``.

    BATCH_SIZES stays on the CPU, where torch requires it. On the CPU the tensors share the arrays' memory, so the
    arrays must not be shared with anything else.
    """
    from_numpy = torch.from_numpy
    batch: Batch = {
        key: from_numpy(value) if isinstance(value, np.ndarray) else to_batch(value, _CPU)
        for key, value in fields.items()
    }
    return batch if device is _CPU or device.type == "cpu" else _on(device, batch)


class Place(NamedTuple):
    """Location of an array in packed memory."""

    begin: int
    """Offset in bytes."""
    shape: tuple[int, ...]
    dtype: torch.dtype


class PackedBatch(NamedTuple):
    """Arrays packed into one block of memory."""

    memory: torch.Tensor
    """(bytes,) uint8."""
    places: dict[str, Any]
    """A :class:`Place` for each array, nested as the arrays were."""

    def to(self, device: torch.device) -> "PackedBatch":
        """Copy to another device, asynchronously from pinned memory."""
        return PackedBatch(self.memory.to(device, non_blocking=True), self.places)


def pack(fields: Mapping[str, Any], pin_memory: bool) -> PackedBatch:
    """Copy arrays into one block of memory."""
    places, size = _places(fields, 0)
    memory = torch.empty(size, dtype=torch.uint8, pin_memory=pin_memory)
    _write(fields, places, memory.numpy())
    return PackedBatch(memory, places)


def unpack(one: PackedBatch) -> Batch:
    """Return tensors that are views of the packed memory."""
    return _parts(one.memory, one.places, {})


def _places(fields: Mapping[str, Any], begin: int) -> tuple[dict[str, Any], int]:
    places: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            places[key], begin = _places(value, begin)
        else:
            places[key] = Place(begin, value.shape, torch_dtype(value.dtype))
            begin += -(-value.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
    return places, begin


def _write(fields: Mapping[str, Any], places: Mapping[str, Any], memory: np.ndarray[Any, Any]) -> None:
    for key, value in fields.items():
        place = places[key]
        if isinstance(place, Place):
            np.ndarray(value.shape, value.dtype, memory.data, place.begin)[...] = value
        else:
            _write(value, place, memory)


def _parts(memory: torch.Tensor, places: Mapping[str, Any], of_dtype: dict[torch.dtype, torch.Tensor]) -> Batch:
    batch: Batch = {}
    for key, place in places.items():
        if not isinstance(place, Place):
            batch[key] = _parts(memory, place, of_dtype)
            continue
        if place.dtype not in of_dtype:
            of_dtype[place.dtype] = memory.view(place.dtype)
        whole = of_dtype[place.dtype]
        # One call instead of a slice and a view: for ten small fields, that matters for the time of a batch.
        batch[key] = whole.as_strided(place.shape, _strides(place.shape), place.begin // whole.itemsize)
    return batch


@functools.lru_cache
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@functools.cache
def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return the torch dtype that corresponds to a NumPy dtype."""
    return torch.from_numpy(np.empty((0,), dtype)).dtype


def _tensors(batch: Batch) -> Iterator[torch.Tensor]:
    for value in batch.values():
        if isinstance(value, dict):
            yield from _tensors(value)
        else:
            yield value


def _on(device: torch.device, batch: Batch) -> Batch:
    return {
        key: _on(device, value) if isinstance(value, dict) else value if key == BATCH_SIZES else value.to(device)
        for key, value in batch.items()
    }
