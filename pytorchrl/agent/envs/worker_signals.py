"""Signals that reach all processes of a run: those that hold environments leave it to the one that trains to end it."""

import functools
import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@functools.cache
def worker_signals() -> "WorkerSignals":
    """Those of this process and of all that hold environments for it."""
    return WorkerSignals(Path(tempfile.gettempdir()) / f"pytorchrl-{os.getpid()}-{uuid.uuid4().hex}")


class WorkerSignals:
    """Known to the process that trains and to those that hold its environments.

    Terminals send Ctrl-C, and schedulers often SIGTERM, to all processes. Without this, environments would be gone when
    the one that trains wants to end its step and save.

    Args:
        flag: a file that is there while SIGTERM is not to be heeded; a path can be given to processes however they are
            started.
    """

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """While this lasts, SIGTERM does not end the environments' processes. Ctrl-C never does."""
        self._flag.touch()
        try:
            yield
        finally:
            self._flag.unlink(missing_ok=True)

    def heed(self) -> None:
        """Called in a process that holds environments."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self._flag.exists():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
