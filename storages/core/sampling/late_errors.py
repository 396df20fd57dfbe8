"""Errors of updates that travel from a device to the host while it goes on computing."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.device.transfer import Fetched
from storages.core.sampling.update_errors import errors_of_sequences

Update: TypeAlias = Callable[[NDArray[np.int64], NDArray[Any]], None]
"""Gives transitions (B,) the errors (B,) of an update; raises a ValueError where one is not finite."""


class LateUpdate(NamedTuple):
    """The errors of an update, on their way to the host."""

    fetched: Fetched
    """Indices (B, 1) and errors of the batch; of sequences, their mask or episodes too."""
    eta: float
    """Share of the largest error in that of a sequence."""


class LateErrors:
    """Updates whose errors do not count yet, in the order in which they were made.

    They count from the second draw after their update: the device has begun the update between the two by then, and
    the host waits for no more than the one before. When they count does not depend on how fast the device is, so that
    equal seeds make equal runs.
    """

    def __init__(self) -> None:
        self.updates: deque[LateUpdate] = deque()
        """Oldest first; asked on every insertion whether there are any."""
        self._drawn_since = 0
        """How many of them, from the oldest on, a draw has passed over."""

    def add(self, update: LateUpdate) -> None:
        """Let an update's errors count later."""
        self.updates.append(update)

    def begin_draw(self, count: Update) -> None:
        """Let the errors count that the draw before has passed over.

        Raises:
            ValueError: one is not finite; no error of its update counts then, and later updates wait for the next draw.
        """
        while self._drawn_since:
            try:
                count(*self._oldest())
            finally:
                self._drop_oldest()
        self._drawn_since = len(self.updates)

    def settle(self, count: Update) -> None:
        """Let all errors count, up to an update with one that is not finite, which is left for a draw to refuse."""
        with suppress(ValueError):
            while self.updates:
                count(*self._oldest())
                self._drop_oldest()

    def _oldest(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        fetched, eta = self.updates[0]
        indices, errors, *steps = fetched.arrays()
        errors = errors[..., 0]
        if steps:
            errors = errors_of_sequences(errors, steps[0], len(indices), eta)
        return indices[:, 0], errors

    def _drop_oldest(self) -> None:
        self.updates.popleft()
        self._drawn_since = max(0, self._drawn_since - 1)
