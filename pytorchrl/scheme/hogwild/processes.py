"""The learner's side of the processes that update shared parameters."""

import atexit
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.envs.worker_processes import LongWait
from pytorchrl.agent.global_generators import seeds_of_processes
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.hogwild.shared_training import SharedTraining
from pytorchrl.scheme.hogwild.worker import HogwildParts, Order, Report, serve
from pytorchrl.scheme.overlap.changes import refuse_unsendable
from pytorchrl.scheme.overlap.forked_process import (
    SECONDS_BETWEEN_LOOKS,
    CollectorError,
    ForkedProcess,
    end_processes,
)
from pytorchrl.scheme.overlap.link import Failed, PipeToLearner, send
from pytorchrl.scheme.overlap.shared_arrays import SharedArrays
from pytorchrl.scheme.scheme import Scheme
from storages.open_files import open_files_named
from storages.storage import Storage


class HogwildProcess(ForkedProcess):
    """The learner's handle of a process that collects and updates.

    Args:
        parts: what the process is made from.
        seed: of its global random generators.
    """

    loss = "Its updates up to then are kept; a resumed run begins new episodes in its environments"

    def __init__(self, parts: HogwildParts, seed: np.random.SeedSequence) -> None:
        super().__init__(f"Hogwild process {parts.number}", seed)
        self.number = parts.number
        self.transitions = 0
        """Environment transitions that it was asked for and has not reported; 0 while it is idle."""
        self.reported = 0
        """Environment transitions that it has reported since the memory was made or restored."""
        self._start(lambda pipe: PipeToLearner(self.title, pipe, os.getpid()), serve, parts)

    @property
    def waitable(self) -> Any:
        """The pipe, for :func:`multiprocessing.connection.wait`."""
        return self._pipe

    def tell(self, name: str, argument: Any) -> None:
        """Send a command; :meth:`answer` returns its result.

        Raises:
            CollectorError: the process has ended.
        """
        try:
            send(self._pipe, (name, argument))
        except OSError:
            raise self._ended() from None

    def answer(self) -> Any:
        """Wait for the result of a command, or until the process is made.

        Raises:
            CollectorError: the process has ended.
            Exception: any exception raised in the process.
        """
        message = self._next()
        if isinstance(message, Failed):
            raise message.error
        return message[0]

    def ask(self, name: str, argument: Any) -> Any:
        """Send a command, and return its result. Raises as :meth:`answer`."""
        self.tell(name, argument)
        return self.answer()


class HogwildProcesses:
    """Forks the processes of a run, and lets them work; a collector of their reports.

    Args:
        number: number of processes.
        scheme_of: returns what makes the scheme of a process, given its index.

    Raises:
        OSError: too many files are open.
    """

    _algorithm: Algorithm
    _storage: Storage
    _shared: SharedTraining
    _at_once: int

    def __init__(self, number: int, scheme_of: Callable[[int], Callable[[], Scheme]]) -> None:
        self.steps, self.episodes = 0, 0
        self.limit = 0
        """Environment transitions of the run beyond which no process is asked to go."""
        self._target_steps = 1
        self._memory = SharedArrays()
        self._reports: deque[Report] = deque()
        """Reports received and not taken yet, at most one of each process."""
        self._waiting: deque[HogwildProcess] = deque()
        """The processes whose reports these are; they wait until it is taken."""
        self._taken: list[Metrics] = []
        self._shaped_returns: list[float] = []
        self._failure: Exception | None = None
        """Exception of a process that was not raised here yet."""
        self._lost: dict[int, CollectorError] = {}
        """Processes that have ended."""
        self.all: list[HogwildProcess] = []
        """All processes."""
        self._end = weakref.finalize(self, end_processes, self.all, os.getpid())
        # At exit, multiprocessing joins its processes, and these wait for this one; they must have ended before that.
        atexit.register(self._end)
        try:
            with open_files_named(f"HogwildScheme: {number} processes", "take fewer of them"):
                for each, seed in enumerate(seeds_of_processes(number)):
                    self.all.append(HogwildProcess(HogwildParts(each, number, scheme_of(each), self._memory), seed))
        except BaseException:
            self.close()
            raise

    def begin(self, algorithm: Algorithm, storage: Storage, at_once: int) -> None:
        """Move the algorithm's training state into shared memory, and let the processes map it.

        Args:
            algorithm: of the learner.
            storage: of the learner; its hyper-parameters are those of the processes.
            at_once: environment transitions that a process makes before it reports.

        Raises:
            CollectorError: a process has ended.
            CompositionError: a part of the training state cannot be shared.
            Exception: any exception raised by making the parts in a process.
        """
        self._algorithm, self._storage, self._at_once = algorithm, storage, at_once
        self._shared = SharedTraining(algorithm, len(self.all))
        self._shared.make(self._memory)
        for process in self.all:
            process.answer()
        weights = algorithm.get_weights()
        for process in self.all:
            process.ask("begin", weights)

    def step(self) -> list[Episode]:
        """Wait for a process to report, and let the idle ones work; returns its finished episodes.

        Raises:
            CollectorError: a process has ended.
            Exception: any exception raised in a process.
        """
        self._receive(0.0)
        self._raise_failure()
        if not self._reports:
            self._assign_work()
        wait = LongWait()
        while not self._reports:
            self._raise_failure()
            self._receive(SECONDS_BETWEEN_LOOKS)
            self._check_working(wait)
        report = self._reports.popleft()
        if self._waiting:
            self._waiting.popleft()
        self.steps += report.steps
        self.episodes += report.episodes_ended
        self._shaped_returns += report.shaped_returns
        self._taken = report.metrics
        self._assign_work()
        self._algorithm.training.counters = self._shared.counters()
        return report.episodes

    def take_updates(self) -> list[Metrics]:
        """Return the metrics of the updates in the report that was taken last, once."""
        taken, self._taken = self._taken, []
        return taken

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        taken, self._shaped_returns = self._shaped_returns, []
        return taken

    def set_target(self, target_steps: int) -> None:
        """Set the length of schedules, in environment transitions of the run."""
        self._target_steps = target_steps

    def settle(self) -> None:
        """Wait until no process works, so that the shared parameters rest; their failures are raised later."""
        wait = LongWait()
        while any(process.transitions for process in self.all):
            self._receive(SECONDS_BETWEEN_LOOKS)
            self._check_working(wait)
        self._algorithm.training.counters = self._shared.counters()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all processes, with the reports not taken yet, as tensors and plain data."""
        self.settle()
        workers = [self._state_of(process) for process in self.all]
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "workers": workers,
            "reports": [_saved(report) for report in self._reports],
            "shaped_returns": list(self._shaped_returns),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost.

        The processes must be at rest, and the algorithm's state must have been loaded before.
        """
        saved = state["workers"]
        if len(saved) != len(self.all):
            raise ValueError(f"the state is of {len(saved)} processes, there are {len(self.all)}")
        self.steps, self.episodes = state["steps"], state["episodes"]
        self._reports, self._waiting = deque(map(_restored, state["reports"])), deque()
        self._shaped_returns = list(state["shaped_returns"])
        total = self.steps + sum(report.steps for report in self._reports)
        self._shared.restore(self._algorithm.training.counters, total)
        lost: list[int] = []
        for process, one in zip(self.all, saved, strict=True):
            process.reported = 0
            found = process.ask("restart", total) if one is None else process.ask("load", one)
            lost += [env + process.number * self._num_envs for env in found]
        return lost

    def close(self) -> None:
        """End the processes, which close their environments; a second call does nothing."""
        try:
            self._end()
        finally:
            atexit.unregister(self._end)

    @property
    def _num_envs(self) -> int:
        return self._storage.num_envs

    def _assign_work(self) -> None:
        """Send orders to idle processes, for no more transitions than the run has left."""
        if self._lost:
            return
        pending = sum(process.transitions for process in self.all) + sum(report.steps for report in self._reports)
        left = self.limit - self.steps - pending
        changes = self._algorithm.changed_parameters
        refuse_unsendable(changes, f"HogwildScheme: {type(self._algorithm).__name__}")
        freezing = self._algorithm.training.freezing
        for process in self.all:
            if left <= 0:
                return
            if process.transitions or process in self._waiting:
                continue
            transitions = min(left, self._at_once)
            order = Order(transitions, self._target_steps, changes, self._storage.changed_parameters, freezing)
            try:
                process.tell("work", order)
            except CollectorError as error:
                self._lose(process, error)
                return
            process.transitions = transitions
            left -= transitions

    def _receive(self, timeout: float) -> None:
        """Wait for a message of a working process, and receive all that are there."""
        working = [process for process in self.all if process.transitions]
        ready = wait([process.waitable for process in working], timeout)
        for process in working:
            if process.waitable not in ready and process.is_alive:
                continue
            try:
                report = process.answer()
            except CollectorError as error:
                self._lose(process, error)
            except Exception as error:  # raised in `step`
                process.transitions = 0
                self._failure = error
                self._count_unreported(process)
            else:
                process.transitions = 0
                process.reported += report.steps
                self._reports.append(report)
                self._waiting.append(process)

    def _check_working(self, wait: LongWait) -> None:
        working = ", ".join(process.named for process in self.all if process.transitions)
        if working:
            wait.look(f"{working} has made no report of its steps")

    def _lose(self, process: HogwildProcess, error: CollectorError) -> None:
        process.transitions = 0
        self._failure = self._lost[process.number] = error
        self._count_unreported(process)

    def _count_unreported(self, process: HogwildProcess) -> None:
        """Count the transitions of a failed process, from which it may have updated the parameters already."""
        made = int(self._shared.steps[process.number])
        self.steps += made - process.reported
        process.reported = made
        self._algorithm.training.counters = self._shared.counters()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        for error in self._lost.values():
            raise error

    def _state_of(self, process: HogwildProcess) -> dict[str, Any] | None:
        """Return a process's state; None if it has ended."""
        if process.number in self._lost:
            return None
        try:
            state: dict[str, Any] = process.ask("state", None)
        except CollectorError as error:
            self._lose(process, error)
            return None
        return state


def _saved(report: Report) -> dict[str, Any]:
    return report._asdict() | {"episodes": [episode.state_dict() for episode in report.episodes]}


def _restored(state: Mapping[str, Any]) -> Report:
    return Report(**{**state, "episodes": [Episode(*episode) for episode in state["episodes"]]})
