"""Ctrl-C in the middle of an update must not leave half of it behind."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Notes a first Ctrl-C instead of raising it, so that a loop can end where its state is whole.

    A second Ctrl-C raises KeyboardInterrupt at once. Outside the main thread, where no signal arrives, it does nothing.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: Any = None

    def is_requested(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._requested

    def __enter__(self) -> "Interruption":
        self._requested = False
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, self._previous)
