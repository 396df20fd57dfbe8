"""Rate limiting: the ratio of rows drawn to transitions inserted."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from storages.component.hyper_parameters import Count, NonNegative, Positive
from storages.component.setting import Setting
from storages.core.counts import saved_count
from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.transition import Sample


class RateLimitError(RuntimeError):
    """An insertion or a batch that would leave the ratio which a storage's ``rate_limit`` allows."""


@dataclass(frozen=True)
class RateLimit(Setting):
    """A ratio of rows drawn to transitions inserted: Cassirer et al., "Reverb" (arXiv 2102.04736), section 3.4.

    Rows are single transitions, sequences, or episodes, as in batches. With ``I`` transitions inserted and ``S`` rows
    drawn, ``samples_per_insert * (I - min_size) - S`` stays within the tolerance, except that the last update phase or
    step may exceed it, so that either an insertion or a draw is always allowed.

    Args:
        samples_per_insert: rows drawn for each inserted transition.
        min_size: transitions inserted before the first row is drawn.
        tolerance: rows by which draws may be ahead of, or behind, the ratio: how far asynchronous collectors and
            learners may drift apart.

    Raises:
        ValueError: a value is of a wrong type or outside its range.
    """

    samples_per_insert: Positive
    min_size: Count = 1
    tolerance: NonNegative = 0.0


class RateLimiter(RingObserver):
    """Counts insertions and drawn rows, and refuses those that a limit does not allow.

    Args:
        limit: the ratio.
    """

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        """The ratio."""
        self.inserted = 0
        """Transitions inserted so far."""
        self.drawn = 0
        """Rows drawn so far."""
        self._drawn_before_phase: int | None = None

    @contextmanager
    def update_phase(self) -> Iterator[None]:
        """While this is open, any number of draws may follow the first one that is allowed."""
        self._drawn_before_phase = self.drawn
        try:
            yield
        finally:
            self._drawn_before_phase = None

    @property
    def due(self) -> float:
        """Rows still to be drawn for the transitions inserted; negative where more were drawn."""
        return self.limit.samples_per_insert * (self.inserted - self.limit.min_size) - self.drawn

    @property
    def is_due(self) -> bool:
        """Whether an update phase is due by the ratio alone, without the tolerance."""
        return self.inserted >= self.limit.min_size and self.due >= 0

    def may_insert(self) -> bool:
        """Return whether a step may be inserted."""
        return self.inserted < self.limit.min_size or self.due <= self.limit.tolerance

    def may_draw(self) -> bool:
        """Return whether an update phase may draw its batches."""
        return self.inserted >= self.limit.min_size and self.due >= -self.limit.tolerance

    def draw(self, rows: int, owner: str) -> None:
        """Count rows that are drawn, of an update phase or of a part of it.

        Raises:
            RateLimitError: none may be drawn now, and this is no later part of an update phase; nothing was counted.
        """
        has_drawn = self._drawn_before_phase is not None and self.drawn > self._drawn_before_phase
        if not has_drawn and not self.may_draw():
            raise RateLimitError(
                f"{owner}: {self.limit} allows no batches now, with {self.inserted} transitions inserted and "
                f"{self.drawn} rows drawn; insert more first, until rate_limiter.may_draw() is True"
            )
        self.drawn += rows

    # Observer of the ring

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Refuse a step that may not be inserted now."""
        if not self.may_insert():
            raise RateLimitError(
                f"{ring.owner}: {self.limit} allows no insertion now, with {self.inserted} transitions inserted and "
                f"{self.drawn} rows drawn; draw batches first, until rate_limiter.may_insert() is True"
            )

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Count the newest steps."""
        self.inserted += steps * ring.envs

    def steps_at_once(self, ring: Ring) -> int:
        """Return the number of steps until an insertion may be refused."""
        limit = self.limit
        transitions = limit.min_size + (self.drawn + limit.tolerance) / limit.samples_per_insert - self.inserted
        return min(sys.maxsize, max(1, math.floor(transitions / ring.envs) + 1))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"rate_limiter": {"inserted": self.inserted, "drawn": self.drawn}}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the counts; where the state has none, the stored transitions count as inserted."""
        counted = state.get("rate_limiter") or {"inserted": ring.live_transitions, "drawn": 0}
        self.inserted, self.drawn = (saved_count(counted, name, ring.owner) for name in ("inserted", "drawn"))
