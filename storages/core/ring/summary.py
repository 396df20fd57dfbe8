"""Summary of a ring's contents: fields, episodes, and how these ended."""

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
    """A leaf of the transitions in a ring."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes_each: int
    """Bytes per transition; of stacked frames, one frame; 0 where the values are those of another field."""


@dataclass(frozen=True)
class EpisodeSummary:
    """The episodes, or their stored steps, environment by environment; arrays (episodes,)."""

    returns: NDArray[np.float64]
    """Sums of the stored rewards."""
    lengths: NDArray[np.int64]
    """Numbers of stored steps."""
    endings: NDArray[np.int64]
    """Indices into :data:`ENDINGS`."""
    whole: NDArray[np.bool_]
    """Whether all steps are stored, from the first one to an end."""

    def ended(self, ending: str) -> int:
        """Return the number of episodes with one of :data:`ENDINGS`."""
        return int(np.count_nonzero(self.endings == ENDINGS.index(ending)))


def fields_of(ring: Ring) -> list[Field]:
    """Return the leaves of the transitions, in the order of the layout."""
    fields = []
    for path, layout in ring.layout.items():
        kept = path[0] not in SUCCESSORS
        fields.append(Field(text(path), layout.shape, layout.dtype.name, ring.columns[path].width if kept else 0))
    return fields


def episodes_of(ring: Ring) -> EpisodeSummary:
    """Return the episodes in a ring, which must not be empty."""
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
    return EpisodeSummary(
        returns=np.add.reduceat(rewards.ravel().astype(np.float64), starts),
        lengths=ends - starts + 1,
        endings=ending,
        whole=(begins.ravel()[starts] > 0) & (ending < ENDINGS.index("broken off")),
    )


def _by_environment(ring: Ring, key: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return a scalar field as (E, steps)."""
    values: NDArray[Any] = ring.columns.data(key)[rows, :, 0].T
    return values
