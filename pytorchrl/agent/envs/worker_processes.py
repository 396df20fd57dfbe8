"""Signals in worker processes, exceptions that they send, and warnings while another process is waited for."""

import functools
import os
import pickle
import signal
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@functools.cache
def worker_signals() -> "WorkerSignals":
    """Return the signal handling that this process shares with its environment processes."""
    return WorkerSignals(Path(tempfile.gettempdir()) / f"pytorchrl-{os.getpid()}-{uuid.uuid4().hex}")


class WorkerSignals:
    """Signal handling that the training process shares with its environment processes.

    Terminals send Ctrl-C (SIGINT), and schedulers often SIGTERM, to all processes. Without this, environments would be
    gone when the training process wants to end its step and save.

    Args:
        flag: a file that exists while SIGTERM is to be ignored; a path can be passed with any start method of
            processes.
    """

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """In this context, SIGTERM does not end the environment processes. Ctrl-C never does."""
        self._flag.touch()
        try:
            yield
        finally:
            self._flag.unlink(missing_ok=True)

    def apply(self) -> None:
        """Install the handlers in an environment process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._terminate)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the training process stops by it

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self._flag.exists():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def sendable(error: Exception, *, by_type: bool = False) -> Exception:
    """Return an exception that another process can receive: itself, or a RuntimeError of its type, message and notes.

    Args:
        error: pickling one of a user's class may raise anything.
        by_type: whether the other process raises it again as its type, with one argument.
    """
    try:
        received = pickle.loads(pickle.dumps(error))
        if by_type:
            type(error)(received)
    except Exception:
        replaced = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            replaced.add_note(note)
        return replaced
    return error


def how_it_ended(exit_code: int | None) -> str:
    """Return how a process ended that should not have, for messages."""
    if exit_code is None or exit_code >= 0:
        return f"ended with exit code {exit_code}"
    why = ", perhaps because it ran out of memory" if -exit_code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-exit_code).name}{why}"


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
