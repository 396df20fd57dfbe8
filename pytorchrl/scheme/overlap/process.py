"""The learner's handle of a collector process."""

import os
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.worker_processes import LongWait
from pytorchrl.scheme.overlap.forked_process import SECONDS_BETWEEN_LOOKS, ForkedProcess
from pytorchrl.scheme.overlap.link import Failed, Finished, Laid, Link, Made, Reply, send
from pytorchrl.scheme.overlap.step_slots import StepLayout
from pytorchrl.scheme.overlap.worker import WorkerParts, serve


class CollectorProcess(ForkedProcess):
    """Forks a process that makes environments and collects in them.

    Args:
        number: index of the process among the collector processes.
        rows: indices of its environments among all.
        seed: of its global random generators.
        parts: the factories and shared memory that it uses.
        commands: (workers,) int64 in shared memory, number of commands sent to each process.
        written: (workers,) int64 in shared memory, number of steps made by each process.
    """

    def __init__(
        self,
        number: int,
        rows: slice,
        seed: np.random.SeedSequence,
        parts: WorkerParts,
        commands: NDArray[np.int64],
        written: NDArray[np.int64],
    ) -> None:
        super().__init__(f"collector process {number}", seed)
        self.number = number
        self._rows = rows
        self._commands, self._written = commands, written
        self._may_step, self._has_stepped = self._context.Semaphore(0), self._context.Semaphore(0)
        self._finished: deque[Finished] = deque()
        """Finished episodes of steps that are not stored yet."""
        self._failure: Exception | None = None
        """Exception of a failed step that is not waited for yet."""
        self._start(
            lambda pipe: Link(
                self.title, pipe, os.getpid(), number, self._may_step, self._has_stepped, commands, written
            ),
            serve,
            parts,
        )

    @property
    def position(self) -> int:
        """Number of steps that it has made since the run began."""
        return int(self._written[self.number])

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
        wait = LongWait()
        while not self._has_stepped.acquire(timeout=SECONDS_BETWEEN_LOOKS):
            if not self.is_alive and not self._has_stepped.acquire(block=False):
                raise self._ended()
            wait.look(
                f"{self.named}, which steps the environments {self._rows.start} to {self._rows.stop - 1}, has not made "
                f"step {position}"
            )
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

    def _ask_to_end(self) -> None:
        super()._ask_to_end()
        self._commands[self.number] += 1
        self._may_step.release()

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
