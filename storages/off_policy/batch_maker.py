"""Batches of a replay buffer, made from the rows that were drawn for them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.device.device_cache import DeviceCache
from storages.core.device.transfer import Sent, Transfer
from storages.core.parts import Gather, Relabeler, Rows, Window
from storages.core.ring.ring import Ring
from storages.core.windows.n_step import next_actions, returns_to_go
from storages.transforms import transformed
from storages.transition import INDICES, WEIGHTS, Batch


class Draw(NamedTuple):
    """Everything that determines a batch, apart from the stored transitions."""

    rows: Rows
    window: Window
    steps: Any
    """The :class:`SelectedSteps` that the window selected; None where each row is one transition."""
    transitions: NDArray[np.int64]
    """(N,): numbers of all transitions; of sequences, step by step."""
    relabeled: Any
    """The relabeler's choice, such as goals; None where it changes nothing."""
    gamma: float
    seed: int | None
    """Seed of the transforms' random generator; None without transforms."""
    before: Any
    """States of the random generator and the sampler before the draw; None where it is never undone."""


class BatchMaker:
    """Gathers the fields of draws, relabels and transforms them, and sends them to the device.

    Args:
        ring: the storage's.
        transfer: to the device.
        relabeler: changes goals; None for none.
        cache: of fields on the device; None for none.
    """

    def __init__(self, ring: Ring, transfer: Transfer, relabeler: Relabeler | None, cache: DeviceCache | None) -> None:
        self._ring, self._transfer, self._relabeler, self._cache = ring, transfer, relabeler, cache
        self.transforms: Mapping[str, Any] | None = None
        """Functions of fields, applied on the device."""
        self.with_next_actions = self.with_returns_to_go = False
        """Whether batches hold ACT2 and TAKEN2, and RTG."""

    def make(self, draw: Draw, ring: Ring | None = None) -> Sent:
        """Make a batch; with ``prefetch`` on another thread, which is cancelled before the data read here changes.

        Args:
            draw: the draw.
            ring: the ring that it was made from; None for the storage's.
        """
        rows, window, steps, transitions, relabeled, gamma, seed, _ = draw
        ring, cache = self._ring if ring is None else ring, self._cache
        gather: Gather = ring.gather
        if cache is not None:
            cache.synchronize()
            gather = cache.gather
        fields = window.step_fields(ring, gather, transitions, gamma)
        if self.with_next_actions:
            fields |= next_actions(ring, window.spans(ring, transitions, gamma).last)
        if self.with_returns_to_go:
            fields |= returns_to_go(ring, transitions, gamma)
        if relabeled is not None and self._relabeler is not None:
            self._relabeler.relabel(ring, window, fields, transitions, relabeled, gamma)
        if steps is not None:
            fields = window.arrange(ring, gather, steps, fields, gamma)
        fields[WEIGHTS] = rows.weights
        fields[INDICES] = rows.transitions[:, None]
        finish = None if cache is None else cache.resolve
        if seed is not None:
            return self._transfer.send(fields, lambda batch: self._transformed(batch, seed, finish))
        return self._transfer.send(fields, finish)

    def _transformed(self, batch: Batch, seed: int, finish: Callable[[Batch], Batch] | None) -> Batch:
        batch = batch if finish is None else finish(batch)
        return transformed(batch, self.transforms or {}, seed, self._ring.owner)
