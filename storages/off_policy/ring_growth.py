"""Growth of a ring that overwrites nothing."""

import weakref
from typing import Any, Protocol

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.transition import Sample


class Resizable(Protocol):
    """A storage whose ring can be given more room."""

    def resize(self, size: int) -> None:
        """Give the ring room for ``size`` steps."""


class RingGrowth(RingObserver):
    """Doubles the room of a ring that is full, so that an insertion takes the same time on average.

    Args:
        storage: whose ring it is; without a reference that would keep it alive.
    """

    def __init__(self, storage: Resizable) -> None:
        self._storage = weakref.ref(storage)

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Make room where there is none left."""
        if ring.live_steps == ring.size:
            storage = self._storage()
            assert storage is not None
            storage.resize(2 * ring.size)

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many steps there is room for."""
        return ring.size - ring.live_steps

    def __reduce__(self) -> tuple[Any, ...]:
        return RingGrowth, (self._storage(),)
