"""The learner's handle of a collector process."""

import os
import signal
import warnings
from collections import deque
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.worker_signals import worker_signals
from pytorchrl.scheme.overlap.link import Failed, Finished, Laid, Link, Made, Reply, receive, send
from pytorchrl.scheme.overlap.step_slots import StepLayout
from pytorchrl.scheme.overlap.worker import WorkerParts, serve

_SECONDS_BETWEEN_LOOKS = 1.0
"""Interval at which a waiting learner checks that the process is alive."""
_SECONDS_TO_END = 5.0
"""Time for the current step to end, after which the process is killed."""


class CollectorError(RuntimeError):
    """Raised when a collector process has ended unexpectedly."""


class CollectorProcess:
    """Forks a process that makes environments and collects in them.

    Args:
        number: index of the process among the collector processes.
        parts: the factories and shared memory that it uses.
        commands: (workers,) int64 in shared memory, number of commands sent to each process.
        written: (workers,) int64 in shared memory, number of steps made by each process.
    """

    def __init__(
        self, number: int, parts: WorkerParts, commands: NDArray[np.int64], written: NDArray[np.int64]
    ) -> None:
        context = get_context("fork")
        self.number = number
        self._commands, self._written = commands, written
        self._pipe, pipe_of_process = context.Pipe()
        self._may_step, self._has_stepped = context.Semaphore(0), context.Semaphore(0)
        self._finished: deque[Finished] = deque()
        """Finished episodes of steps that are not stored yet."""
        self._failure: Exception | None = None
        """Exception of a failed step that is not waited for yet."""
        link = Link(number, pipe_of_process, self._may_step, self._has_stepped, commands, written, os.getpid())
        # Shared with this process, which holds signals back for the environments of the other one as well.
        signals = worker_signals()
        self._process = context.Process(target=serve, args=(link, parts, signals), name=f"collector {number}")
        with warnings.catch_warnings():
            # The warning is about threads of this process; the forked one needs none of them.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            self._process.start()
        pipe_of_process.close()

    @property
    def position(self) -> int:
        """Number of steps that it has made since the run began."""
        return int(self._written[self.number])

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.is_alive()

    def description(self) -> dict[str, Any]:
        """Wait until its environments are made; returns their attributes.

        Raises:
            CollectorError: the process has ended.
            Exception: any exception raised by making them.
        """
        message = self._received()
        assert isinstance(message, Made)
        return message.envs

    def layout(self) -> StepLayout:
        """Wait for its first step; returns its layout. Raises as :meth:`wait_for`."""
        message = self._received()
        assert isinstance(message, Laid)
        layout: StepLayout = message.layout
        return layout

    def use_layout(self, layout: StepLayout) -> None:
        """Send the layout for which shared memory was made; the process then writes its first step."""
        send(self._pipe, layout)

    def wait_for(self, position: int) -> None:
        """Wait until a step, counted from 0, is made.

        Raises:
            CollectorError: the process has ended.
            Exception: any exception raised by the step.
        """
        while not self._has_stepped.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
            if not self.is_alive and not self._has_stepped.acquire(block=False):
                raise self._ended()
        if self.position <= position:
            if self._failure is not None:
                raise self._failure
            self._received()
            raise AssertionError("the process neither made the step nor sent an exception")

    def finished(self, position: int) -> list[Any]:
        """Return the episodes that ended with a step; call once for each step that ended any."""
        finished = self._finished.popleft() if self._finished else self._next()
        assert isinstance(finished, Finished)
        assert finished.position == position
        return finished.episodes

    def finished_later(self) -> list[list[Any]]:
        """Return the received episodes of steps that are not stored yet, as (position, episodes)."""
        return [[message.position, message.episodes] for message in self._finished]

    def put_finished(self, later: list[list[Any]]) -> None:
        """Restore the episodes returned by :meth:`finished_later`."""
        self._finished = deque(Finished(*one) for one in later)

    def allow(self, steps: int) -> None:
        """Permit a number of further steps."""
        for _ in range(steps):
            self._may_step.release()

    def forget_counts(self) -> None:
        """Reset the counts of permitted and of made steps to zero, while the process waits for :meth:`go_on`."""
        for counted in (self._may_step, self._has_stepped):
            while counted.acquire(block=False):
                pass

    def count_made(self, steps: int) -> None:
        """Count a number of steps as made, for :meth:`wait_for`."""
        for _ in range(steps):
            self._has_stepped.release()

    def tell(self, name: str, argument: Any = None) -> None:
        """Send a command, which the process executes between two steps; :meth:`answer` returns its result.

        Raises:
            CollectorError: the process has ended.
        """
        try:
            send(self._pipe, (name, argument))
        except OSError:
            raise self._ended() from None
        self._commands[self.number] += 1
        self._may_step.release()

    def answer(self) -> Any:
        """Wait for the result of a command; the process then waits for :meth:`go_on`. Raises as :meth:`description`."""
        message = self._received(keep_failure=True)
        assert isinstance(message, Reply)
        return message.value

    def go_on(self) -> None:
        """Let the process continue after a command."""
        with suppress(OSError):
            send(self._pipe, "go on")

    def close(self) -> None:
        """End the process after its current step; a second call does nothing."""
        if self._pipe.closed:
            return
        with suppress(OSError):
            # None is the message to stop, wherever the process waits for one.
            send(self._pipe, None)
            self._commands[self.number] += 1
            self._may_step.release()
        self._pipe.close()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _received(self, *, keep_failure: bool = False) -> Any:
        """Return the next message. Finished episodes are queued, and with ``keep_failure`` a failed step is kept."""
        while True:
            message = self._next()
            if isinstance(message, Finished):
                self._finished.append(message)
            elif isinstance(message, Failed) and message.by_step and keep_failure:
                self._failure = message.error
            elif isinstance(message, Failed):
                raise message.error
            else:
                return message

    def _next(self) -> Any:
        while not self._pipe.poll(_SECONDS_BETWEEN_LOOKS):
            if not self.is_alive and not self._pipe.poll():
                raise self._ended()
        try:
            return receive(self._pipe)
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> CollectorError:
        self._process.join(_SECONDS_TO_END)
        code = self._process.exitcode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            why = ", perhaps because it ran out of memory" if -code == signal.SIGKILL else ""
        else:
            how, why = f"ended with exit code {code}", ""
        return CollectorError(
            f"collector process {self.number} (id {self._process.pid}) {how}{why}. Its collected steps are in the "
            f"storage; a resumed run begins new episodes"
        )
