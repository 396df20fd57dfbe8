"""What the process that learns and one that collects tell each other, and how each waits for the other.

Numbers of steps are told by semaphores, which cost a microsecond; what is larger goes through a pipe, but for steps and
weights, which lie in shared memory.
"""

import os
import pickle
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from typing import Any, NamedTuple

from numpy.typing import NDArray

_SECONDS_BETWEEN_LOOKS = 1.0
"""How long to wait before looking whether the other process is still there."""


class Made(NamedTuple):
    """The environments are made."""

    envs: dict[str, Any]
    """What there is to know of them."""


class Laid(NamedTuple):
    """The first step was made, of this layout."""

    layout: Any


class Finished(NamedTuple):
    """Episodes ended with a step."""

    position: int
    episodes: list[Any]


class Failed(NamedTuple):
    """Something was raised."""

    error: Exception
    by_step: bool
    """Whether a step was to be made, and not a command to be followed."""


class Reply(NamedTuple):
    """What came of a command."""

    value: Any


class LearnerGoneError(RuntimeError):
    """The process that learns is not there any more."""


def send(pipe: Connection, message: Any) -> None:
    """Send a message; tensors as their bytes, for which no file of shared memory is opened."""
    pipe.send_bytes(pickle.dumps(message))


def receive(pipe: Connection) -> Any:
    """Wait for a message."""
    # The pipe has no name: its other end is a process that was forked from here.
    return pickle.loads(pipe.recv_bytes())


@dataclass
class Link:
    """What a process that collects has of the one that learns."""

    number: int
    pipe: Connection
    may_step: Semaphore
    """Counts the steps that may be made, and the commands that were sent."""
    has_stepped: Semaphore
    """Counts the steps that were made, and is raised once more where one failed."""
    commands: NDArray[Any]
    """(workers,): commands sent to each."""
    written: NDArray[Any]
    """(workers,): steps that each has made since the run began."""
    learner: int
    """Id of the process that learns."""

    def __post_init__(self) -> None:
        self._commands_taken = 0

    def wait(self) -> bool:
        """Wait until a step may be made, or a command has come; returns whether it is a command.

        Raises:
            LearnerGoneError: neither will be.
        """
        while not self.may_step.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
            self._look_for_learner()
        if self.commands[self.number] == self._commands_taken:
            return False
        self._commands_taken += 1
        return True

    def receive(self) -> Any:
        """Wait for what the learner sends.

        Raises:
            LearnerGoneError: it is not there any more.
        """
        while not self.pipe.poll(_SECONDS_BETWEEN_LOOKS):
            self._look_for_learner()
        try:
            return receive(self.pipe)
        except (EOFError, OSError):
            raise LearnerGoneError from None

    def send(self, message: Any) -> None:
        """Send the learner something.

        Raises:
            LearnerGoneError: it is not there any more.
        """
        try:
            send(self.pipe, message)
        except OSError:
            raise LearnerGoneError from None

    def send_error(self, error: Exception, *, by_step: bool = False) -> None:
        """Send the learner an error, with the traceback that it has here."""
        error.add_note(f"In the process that collects, number {self.number}:\n{traceback.format_exc()}")
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # a class of the user may raise anything here; the text is kept
            error, told = RuntimeError(f"{type(error).__name__}: {error}"), error.__notes__
            error.__notes__ = told
        self.send(Failed(error, by_step))

    def _look_for_learner(self) -> None:
        if os.getppid() != self.learner:
            raise LearnerGoneError
