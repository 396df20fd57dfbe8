"""Warnings of what is waited for so long that it may hang."""

import time
import warnings

SECONDS_BEFORE_WARNING = 60.0
"""Time of waiting after which there is a first warning; the next one comes after twice the time, and so on."""


class LongWait:
    """Warns while something is waited for, so that an environment that hangs does not stop a run without a word.

    Args:
        waited: seconds of waiting before this object was made.
        patience: seconds of waiting before the first warning; None for ``SECONDS_BEFORE_WARNING``.
    """

    def __init__(self, waited: float = 0.0, patience: float | None = None) -> None:
        self._began = time.monotonic() - waited
        self._next = SECONDS_BEFORE_WARNING if patience is None else patience

    @property
    def seconds_left(self) -> float:
        """Seconds until the next warning."""
        return max(0.0, self._began + self._next - time.monotonic())

    def look(self, awaited: str) -> None:
        """Warn if it is time to.

        Args:
            awaited: who has not done what, for the message.
        """
        waited = time.monotonic() - self._began
        if waited < self._next:
            return
        self._next *= 2
        warnings.warn(
            f"{awaited} for {waited:.0f} seconds. The run waits for it; Ctrl-C ends the run with a checkpoint, and "
            f"`py-spy dump --pid ...` shows where a process is",
            RuntimeWarning,
            stacklevel=3,
        )
