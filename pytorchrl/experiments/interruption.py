"""Handling of Ctrl-C and SIGTERM, or SIGUSR1 in its place, so that a signal does not interrupt an update halfway."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


def stopping_signals() -> tuple[int, ...]:
    """Return the signals that ask a run to stop: SIGUSR1 too, which schedulers may send, unless a script handles it."""
    usr1 = getattr(signal, "SIGUSR1", None)  # not on Windows
    of_scheduler = () if usr1 is None or signal.getsignal(usr1) != signal.SIG_DFL else (usr1,)
    return signal.SIGINT, signal.SIGTERM, *of_scheduler


class Interruption:
    """Records a first Ctrl-C, and SIGTERM or SIGUSR1, so that a loop can end where its state is consistent.

    A second Ctrl-C raises KeyboardInterrupt at once. Further SIGTERMs have no effect, as schedulers often send several.
    Outside the main thread, which alone receives signals, it does nothing.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: dict[int, Any] = {}

    def is_requested(self) -> bool:
        """Whether Ctrl-C or SIGTERM was received since the context was entered."""
        return self._requested

    def __enter__(self) -> "Interruption":
        self._requested = False
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in stopping_signals()}
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
