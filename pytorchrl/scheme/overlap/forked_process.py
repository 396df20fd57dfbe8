"""A forked process that serves the learner's process, and the error of its unexpected end."""

import gc
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.envs.worker_processes import LongWait, WorkerSignals, how_it_ended, worker_signals
from pytorchrl.agent.global_generators import seed_process, seeding_processes
from pytorchrl.scheme.overlap.link import PipeToLearner, receive, send
from storages.closing import close_all

SECONDS_BETWEEN_LOOKS = 1.0
"""Interval at which a waiting learner checks that the process is alive."""
_SECONDS_TO_END = 5.0
"""Time for the current step to end, after which the process is killed."""


class CollectorError(RuntimeError):
    """Raised when a collector process, or a process of a HogwildScheme, has ended unexpectedly."""


class ForkedProcess:
    """The learner's handle of a process that it forks; a subclass starts it.

    Args:
        title: of the process in messages, such as "collector process 1".
        seed: of the process's global random generators.
    """

    loss = "Its collected steps are in the storage; a resumed run begins new episodes"
    """Result of an unexpected end, for the message."""

    def __init__(self, title: str, seed: np.random.SeedSequence) -> None:
        self.title = title
        self._seed = seed
        self._context = get_context("fork")
        self._pipe, self._pipe_of_process = self._context.Pipe()

    def _start(self, link: Callable[[Connection], PipeToLearner], serve: Callable[..., None], *arguments: Any) -> None:
        """Fork the process, which calls ``serve`` with its link and the arguments."""
        # Shared with this process, which holds signals back for the environments of the other one as well.
        signals = worker_signals()
        self._process = self._context.Process(
            target=_begin,
            args=(self._seed, signals, serve, link(self._pipe_of_process), *arguments),
            name=self.title,
        )
        try:
            with warnings.catch_warnings():
                # The warning is about threads of this process; the forked one needs none of them.
                warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
                self._process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            self._pipe_of_process.close()

    @property
    def named(self) -> str:
        """The process in messages, with its id."""
        return f"{self.title} (process {self._process.pid})"

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.is_alive()

    def close(self) -> None:
        """End the process after its current step; a second call does nothing."""
        if self._pipe.closed:
            return
        with suppress(OSError):
            self._ask_to_end()
        self._pipe.close()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def _ask_to_end(self) -> None:
        # None is the message to stop, wherever the process waits for one.
        send(self._pipe, None)

    def _next(self) -> Any:
        wait = LongWait()
        while not self._pipe.poll(SECONDS_BETWEEN_LOOKS):
            if not self.is_alive and not self._pipe.poll():
                raise self._ended()
            wait.look(f"{self.named} has not answered")
        try:
            return receive(self._pipe)
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> CollectorError:
        self._process.join(_SECONDS_TO_END)
        how = how_it_ended(self._process.exitcode)
        return CollectorError(f"{self.title} (id {self._process.pid}) {how}. {self.loss}")


def end_processes(processes: Sequence[ForkedProcess], owner: int) -> None:
    """End processes, unless called in a process that was forked from their owner, whose process id is given."""
    if os.getpid() == owner:
        close_all(processes)


def _begin(
    seed: np.random.SeedSequence, signals: WorkerSignals, serve: Callable[..., None], link: PipeToLearner, *rest: Any
) -> None:
    """Prepare a process that was forked from the learner's one, and let it serve."""
    signals.apply()
    # Inherited objects belong to the learner: their finalisers must not run here.
    gc.freeze()
    # Fork does not copy the learner's threads, and torch would wait for its thread pool forever.
    torch.set_num_threads(1)
    seed_process(seed)
    # Processes of this one would otherwise have the seeds of those of its siblings, from the learner's context.
    with seeding_processes(seed):
        serve(link, *rest)
