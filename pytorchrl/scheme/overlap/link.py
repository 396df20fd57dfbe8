"""Messages and synchronisation between the learner's process and a collector process.

Semaphores count steps; messages go through a pipe; steps and weights are in shared memory.
"""

import os
import pickle
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pytorchrl.agent.envs.worker_processes import sendable

_SECONDS_BETWEEN_LOOKS = 1.0
"""Interval at which a waiting process checks that the other one is alive."""


class Made(NamedTuple):
    """The environments were made."""

    envs: dict[str, Any]
    """Their attributes: spaces, names and the like."""


class Laid(NamedTuple):
    """The first step was made and has this layout."""

    layout: Any


class Finished(NamedTuple):
    """Episodes ended with a step."""

    position: int
    episodes: list[Any]


class Failed(NamedTuple):
    """An exception was raised."""

    error: Exception
    by_step: bool
    """Whether it was raised by a step rather than by a command."""


class Answer(NamedTuple):
    """The result of a command."""

    value: Any


class LearnerGoneError(RuntimeError):
    """Raised in a collector process when the learner's process has ended."""


def send(pipe: Connection, message: Any) -> None:
    """Send a message; tensors are pickled by value, without shared memory files."""
    pipe.send_bytes(pickle.dumps(message))


def receive(pipe: Connection) -> Any:
    """Wait for a message."""
    # Unpickling is safe: the pipe is anonymous, and its other end is a forked process.
    return pickle.loads(pipe.recv_bytes())


@dataclass
class PipeToLearner:
    """A forked process's connection to the learner's process."""

    title: str
    """The process in messages, such as "collector process 1"."""
    pipe: Connection
    learner: int
    """Process id of the learner."""

    def receive(self) -> Any:
        """Wait for a message from the learner.

        Raises:
            LearnerGoneError: the learner's process has ended.
        """
        while not self.pipe.poll(_SECONDS_BETWEEN_LOOKS):
            self._check_learner()
        try:
            return receive(self.pipe)
        except (EOFError, OSError):
            raise LearnerGoneError from None

    def send(self, message: Any) -> None:
        """Send the learner a message.

        Raises:
            LearnerGoneError: the learner's process has ended.
        """
        try:
            send(self.pipe, message)
        except OSError:
            raise LearnerGoneError from None

    def send_error(self, error: Exception, *, by_step: bool = False) -> None:
        """Send the learner an exception, with its traceback in this process as a note."""
        error.add_note(f"In {self.title}:\n{traceback.format_exc()}")
        self.send(Failed(sendable(error), by_step))

    def _check_learner(self) -> None:
        if os.getppid() != self.learner:
            raise LearnerGoneError


@dataclass
class Link(PipeToLearner):
    """A collector process's connection to the learner's process."""

    number: int
    may_step: Semaphore
    """Counts permitted steps and sent commands."""
    has_stepped: Semaphore
    """Counts the steps made, and a step that failed."""
    commands: NDArray[Any]
    """(workers,): number of commands sent to each process."""
    written: NDArray[Any]
    """(workers,): number of steps that each process has made since the run began."""

    def __post_init__(self) -> None:
        self._commands_taken = 0

    def wait(self) -> bool:
        """Wait for permission for a step, or for a command; returns whether it is a command.

        Raises:
            LearnerGoneError: the learner's process has ended.
        """
        while not self.may_step.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
            self._check_learner()
        if self.commands[self.number] == self._commands_taken:
            return False
        self._commands_taken += 1
        return True
