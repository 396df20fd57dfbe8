"""A signal in the middle of an update must not leave half of it behind."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interruption:
    """Notes a first Ctrl-C, and SIGTERM, instead of ending at once, so that a loop can end where its state is whole.

    A second Ctrl-C raises KeyboardInterrupt at once; more SIGTERMs change nothing, as those who send them often send
    several. Outside the main thread, where no signal arrives, it does nothing.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: dict[int, Any] = {}

    def is_requested(self) -> bool:
        """Whether Ctrl-C was pressed or SIGTERM arrived, while this was in use."""
        return self._requested

    def __enter__(self) -> "Interruption":
        self._requested = False
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requested = False
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        if number == signal.SIGINT:
            signal.signal(number, self._previous[number])
