"""What is in a ring: its fields, its episodes, and how they ended."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import text
from storages.core.ring.ring import Ring
from storages.transition import DONE, DONE2, REW, SUCCESSORS, TRUNC2

ENDINGS = ("terminated", "truncated", "broken off", "running")


@dataclass(frozen=True)
class Field:
    """A leaf of the transitions that a ring holds."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes_each: int
    """What a transition takes of it; of stacked frames, one frame; 0 where it is kept as part of another field."""


@dataclass(frozen=True)
class Episodes:
    """The episodes, or what is stored of them, environment by environment; arrays (episodes,)."""

    returns: NDArray[np.float64]
    """Sums of the rewards that are stored."""
    lengths: NDArray[np.int64]
    """Steps that are stored."""
    endings: NDArray[np.int64]
    """Which of :data:`ENDINGS` each came to."""
    whole: NDArray[np.bool_]
    """Where all steps are stored, from the first to an end."""

    def ended(self, ending: str) -> int:
        """How many came to one of :data:`ENDINGS`."""
        return int(np.count_nonzero(self.endings == ENDINGS.index(ending)))


def fields_of(ring: Ring) -> list[Field]:
    """The leaves of the transitions, in their order."""
    fields = []
    for path, layout in ring.layout.items():
        kept = path[0] not in SUCCESSORS
        fields.append(Field(text(path), layout.shape, layout.dtype.name, ring.columns[path].width if kept else 0))
    return fields


def episodes_of(ring: Ring) -> Episodes:
    """The episodes that a ring holds; it must hold a step."""
    rows = np.arange(ring.oldest, ring.steps) % ring.rows
    rewards, begins, terminated, truncated = (_by_environment(ring, key, rows) for key in (REW, DONE, DONE2, TRUNC2))
    broken = ring.broken().T
    last = broken.copy()
    last[:, -1] = True
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    ending = np.select(
        [terminated.ravel()[ends] > 0, truncated.ravel()[ends] > 0, broken.ravel()[ends]], [0, 1, 2], default=3
    )
    return Episodes(
        returns=np.add.reduceat(rewards.ravel().astype(np.float64), starts),
        lengths=ends - starts + 1,
        endings=ending,
        whole=(begins.ravel()[starts] > 0) & (ending < ENDINGS.index("broken off")),
    )


def _by_environment(ring: Ring, key: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    """(E, steps): a scalar field."""
    values: NDArray[Any] = ring.columns.data(key)[rows, :, 0].T
    return values
