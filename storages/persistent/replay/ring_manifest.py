"""Manifest of a replay storage's directory: ``storage.json``, with the size and layout of the ring."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from storages.core.ring.layout import first_layout, nest
from storages.core.ring.ring import Ring
from storages.errors import PersistenceError
from storages.persistent.log.manifest import Manifest, count_of, empty_ring, layout_of, stacks_of
from storages.transition import OBS, SUCCESSORS

_SMALL_STEP_BYTES = 64 << 20
"""Steps up to this size are accepted even if the log is smaller, because it may hold no step yet."""
_MOST_BYTES = 1 << 44
"""Largest ring that a manifest may claim; NumPy need not refuse it, as zeroed pages are allocated at first access."""


@dataclass(frozen=True)
class RingManifest(Manifest):
    """Size and layout of a directory's ring.

    Args:
        layout: shapes and dtypes of a transition's leaves.
        stacked: number of stacked frames of each leaf that is a frame stack.
        size: capacity along the time axis.
        num_envs: environments in a step.
    """

    name = "storage.json"
    what = "a replay storage, kept by pytorchrl's storages"

    size: int
    num_envs: int

    @classmethod
    def of(cls, ring: Ring) -> Self:
        """Describe a ring whose layout is known."""
        return cls(dict(ring.layout), ring.stacked, ring.full_size, ring.envs)

    def _other_facts(self) -> dict[str, Any]:
        return {"size": self.size, "num_envs": self.num_envs}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Invert :meth:`facts`."""
        manifest = cls(layout_of(facts), stacks_of(facts), count_of(facts, "size"), count_of(facts, "num_envs"))
        manifest._refuse_what_no_storage_has()
        return manifest

    def ring(self, owner: str, log_bytes: int) -> Ring:
        """Make an empty ring with no more memory than the steps in the log can fill.

        Args:
            owner: its name in errors.
            log_bytes: bytes of all log files.

        Raises:
            ValueError: the manifest claims steps that are larger than the log.
        """
        self._refuse_large_steps(log_bytes)
        ring = empty_ring(self.layout, self.stacked, self._steps_within(log_bytes), owner, self.num_envs)
        ring.size = ring.full_size = self.size
        return ring

    def prepare(self, ring: Ring, directory: Path, log_bytes: int) -> None:
        """Allocate the columns of an empty ring.

        Raises:
            PersistenceError: the ring has another size, number of environments or layout.
            ValueError: the manifest claims steps that are larger than the log, which has ``log_bytes``.
        """
        self._refuse_another("num_envs", self.num_envs, ring.num_envs, directory)
        self._refuse_large_steps(log_bytes)
        if not ring.grows and ring.limit is None:
            self._refuse_another("size", self.size, ring.size, directory)
        known = self.size if ring.limit is not None else None
        self.make_columns(ring, self.num_envs, directory, self._steps_within(log_bytes) if ring.grows else known)
        if not ring.grows:
            self._refuse_another("size", self.size, ring.size, directory)

    # Inside

    def _steps_within(self, log_bytes: int) -> int:
        """Return the most steps that a log of ``log_bytes`` can hold, at most the size of the ring."""
        # A step takes at least as many bytes in the log as in the ring.
        return min(self.size, log_bytes // self._bytes_of_a_step + 1)

    def _refuse_another(self, name: str, there: int, here: int | None, directory: Path) -> None:
        if here not in (None, there):
            raise PersistenceError(
                f"{directory} holds a storage with {name} {there}, this one has {here}; make it with {there}, or "
                f"name another directory"
            )

    @property
    def _bytes_of_a_step(self) -> int:
        """Lower bound of the bytes of a step, without final observations."""
        return self.num_envs * sum(
            leaf.count * leaf.dtype.itemsize // self.stacked.get(path, 1)
            for path, leaf in self.layout.items()
            if path[0] not in SUCCESSORS
        )

    def _refuse_large_steps(self, log_bytes: int) -> None:
        if self._bytes_of_a_step > max(log_bytes, _SMALL_STEP_BYTES):
            raise ValueError(
                f"{self.name} says that a step takes {self._bytes_of_a_step} bytes, and all files of steps have "
                f"{log_bytes}"
            )

    def _refuse_what_no_storage_has(self) -> None:
        sample = {
            path: np.broadcast_to(np.zeros((), leaf.dtype), (1, *leaf.shape)) for path, leaf in self.layout.items()
        }
        if first_layout(nest(sample), self.name) != (self.layout, 1):
            raise ValueError(f"fields of {self.layout}")
        for path, depth in self.stacked.items():
            if path[0] != OBS or type(depth) is not int or self.layout[path].shape[:1] != (depth,) or depth < 2:
                raise ValueError(f"stacks of {depth!r} frames as {path!r}")
        if self.size * self._bytes_of_a_step > _MOST_BYTES:
            raise ValueError(f"{self.size} steps of {self._bytes_of_a_step} bytes, more than any memory holds")
