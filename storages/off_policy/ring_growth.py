"""Growth of a ring buffer that overwrites nothing."""

import weakref
from typing import Any, Protocol

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.transition import Sample


class Resizable(Protocol):
    """A storage whose ring can be resized."""

    def resize(self, size: int) -> None:
        """Set the ring's capacity to ``size`` steps."""


class RingGrowth(RingObserver):
    """Doubles the capacity of a full ring, so that an insertion takes amortised constant time.

    Args:
        storage: owner of the ring, weakly referenced.
    """

    def __init__(self, storage: Resizable) -> None:
        self._storage = weakref.ref(storage)

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Double the capacity if the ring is full.

        Raises:
            MemoryError: there is not enough memory; the step is refused.
        """
        if ring.live_steps == ring.size:
            storage = self._storage()
            assert storage is not None
            try:
                storage.resize(2 * ring.size)
            except MemoryError as error:
                held = ring.columns.nbytes
                raise MemoryError(
                    f"{ring.owner}: size=None keeps all steps, and there is no memory to double the capacity of "
                    f"{ring.size:,} steps, which take {held:,} bytes: {error}. Nothing that was stored is lost, and "
                    f"nothing more can be stored here. Make it with size= or max_bytes=, which drop the oldest steps, "
                    f"or go on where there is more memory"
                ) from error

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many more steps fit."""
        return ring.size - ring.live_steps

    def __reduce__(self) -> tuple[Any, ...]:
        return RingGrowth, (self._storage(),)
