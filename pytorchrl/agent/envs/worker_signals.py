"""Signals that reach all processes of a run: those that hold environments leave it to the one that trains to end it."""

import ctypes
import functools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import sharedctypes
from typing import Any


@functools.cache
def worker_signals() -> "WorkerSignals":
    """Those of this process and of all that hold environments for it."""
    return WorkerSignals()


class WorkerSignals:
    """Shared by the process that trains and those that hold its environments.

    Terminals send Ctrl-C, and schedulers often SIGTERM, to all processes. Without this, environments would be gone when
    the one that trains wants to end its step and save.
    """

    def __init__(self) -> None:
        self._held_back: Any = sharedctypes.RawValue(ctypes.c_bool, False)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """While this lasts, SIGTERM does not end the environments' processes. Ctrl-C never does."""
        self._held_back.value = True
        try:
            yield
        finally:
            self._held_back.value = False

    def heed(self) -> None:
        """Called in a process that holds environments."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: Any) -> None:
        if not self._held_back.value:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
