"""A pool of Ray actors of one class, which replaces those that die."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, OutOfMemoryError, RayActorError

from pytorchrl.agent.envs.worker_processes import LongWait
from pytorchrl.scheme.distributed.plan import WorkerDiedError, WorkerLostError
from pytorchrl.terminal import tell

T = TypeVar("T")

_SECONDS_BEFORE_WARNING = 600.0
"""Time of waiting for workers before a first warning: a cluster may have to start machines for them."""
_MOST_DEATHS = 3
"""Deaths of one worker and its replacements, without a result in between, after which the run ends."""
_SECONDS_FOR_A_STOP = 1.0
"""Time after the death of a worker in which a signal that ends the run, too, may still come."""
_SECONDS_TO_ANSWER = 5.0
"""Time in which the other workers must answer where the run is to stop, and one has died."""
_OPTIONS = ("num_cpus", "num_gpus", "memory")


class Done(NamedTuple):
    """The outcome of a call."""

    worker: int
    value: Any
    died: bool
    """Whether the worker died instead; its replacement has the same index and is idle."""


class Workers:
    """A pool of workers, each of which executes one call at a time.

    Args:
        title: name of a worker in messages, such as "collector".
        cls: class of the workers.
        arguments: function of a worker's index and generation that returns the arguments of ``cls``.
        number: number of workers.
        resources: requirements of each: "num_cpus", "num_gpus", "memory" in bytes, and custom resources of the cluster.
        threads: number of threads of each worker.
    """

    def __init__(
        self,
        title: str,
        cls: type[Any],
        arguments: Callable[[int, int], tuple[Any, ...]],
        number: int,
        resources: Mapping[str, float],
        threads: int = 1,
    ) -> None:
        self._title = title
        self._arguments = arguments
        own = {name: amount for name, amount in resources.items() if name not in _OPTIONS}
        options = {name: amount for name, amount in resources.items() if name in _OPTIONS}
        self._remote = ray.remote(cls).options(
            resources=own, scheduling_strategy="SPREAD", max_concurrency=threads, **options
        )
        self._generations = [0] * number
        self._consecutive_deaths = [0] * number
        self._handles = [self._make(worker) for worker in range(number)]
        self._running: dict[Any, int] = {}
        self._failure: Exception | None = None
        """Exception of a call, found by :meth:`finish` and not raised yet."""
        self._lost = set[int]()
        """Workers that died while the run was to stop; each is replaced by its next call."""
        self.is_stopping: Callable[[], bool] = lambda: False
        """Whether the run is to stop, as a signal may have ended workers or Ray as well: none is then replaced."""
        self.replaced = 0
        """Number of workers that died and were replaced."""

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def idle(self) -> list[int]:
        """Indices of the workers without a running call."""
        busy = set(self._running.values())
        return [worker for worker in range(len(self)) if worker not in busy]

    def start(self, worker: int, method: str, *arguments: Any) -> None:
        """Start a method call in an idle worker.

        Raises:
            Exception: that of a call that :meth:`finish` has waited for.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._call(worker, method, *arguments)

    def _call(self, worker: int, method: str, *arguments: Any) -> None:
        if worker in self._lost:
            self._lost.discard(worker)
            self._renew(worker)
        self._running[getattr(self._handles[worker], method).remote(*arguments)] = worker

    def next_done(self) -> Done:
        """Wait for the first running call to finish.

        Raises:
            Exception: any exception raised in the worker, with its traceback.
            WorkerDiedError: a worker and its replacements died several times in a row.
            WorkerLostError: one died, or does not answer after another has died, while the run is to stop.
        """
        began = time.monotonic()
        wait, done = LongWait(patience=_SECONDS_BEFORE_WARNING), list[Any]()
        while not done:
            done, _ = ray.wait(list(self._running), num_returns=1, timeout=1.0)
            if not done:
                if self._lost and self.is_stopping() and time.monotonic() - began >= _SECONDS_TO_ANSWER:
                    worker = self._running.pop(next(iter(self._running)))
                    self._lost.add(worker)
                    raise WorkerLostError(f"{self._title} {worker} does not answer")
                wait.look(f"{self._title} {', '.join(map(str, sorted(self._running.values())))} has not answered")
        (reference,) = done
        worker = self._running.pop(reference)
        try:
            value = ray.get(reference)
        except (RayActorError, ActorUnavailableError, ObjectLostError, OutOfMemoryError) as error:
            self._replace(worker, error)
            return Done(worker, None, died=True)
        self._consecutive_deaths[worker] = 0
        return Done(worker, value, died=False)

    def finish(self) -> Iterator[Any]:
        """Wait for all running calls; yields the results of those that succeeded, and whose worker has not died.

        The exception of another one is raised by the next :meth:`start`, since a run is saved after an exception, and
        several workers may fail at the same time.
        """
        while self._running:
            try:
                done = self.next_done()
            except WorkerLostError:
                continue
            except Exception as error:
                self._failure = error
                continue
            if not done.died:
                yield done.value

    def states(self) -> list[Any]:
        """Return the ``state_dict()`` of each worker, which must be idle; None for one that cannot be replaced.

        Raises:
            Exception: the first exception of a worker, after all have answered.
        """
        for worker in set(range(len(self))) - self._lost:
            self._call(worker, "state_dict")
        found: dict[int, Any] = {}
        failures: list[Exception] = []
        while self._running:
            try:
                done = self.next_done()
            except WorkerDiedError:
                continue
            except Exception as error:
                failures.append(error)
                continue
            if done.died:
                self._call(done.worker, "state_dict")
            else:
                found[done.worker] = done.value
        if failures:
            raise failures[0]
        return [found.get(worker) for worker in range(len(self))]

    def load(self, states: Sequence[Any], steps: int) -> list[list[int] | None]:
        """Restore what :meth:`states` returned; those without a state are made anew.

        Args:
            states: of each worker.
            steps: environment transitions of the run, from which the seeds of workers that are made anew follow.

        Returns:
            For each worker the environments whose running episodes are lost; None where all are.
        """
        restored = [worker for worker, state in enumerate(states) if state is not None]
        for worker in set(range(len(self))) - set(restored):
            ray.kill(self._handles[worker])
            self._generations[worker] = max(1, steps)
            self._handles[worker] = self._make(worker)
        cut = self.all_of("load_state_dict", [(states[worker],) for worker in restored], workers=restored)
        return [cut[restored.index(worker)] if worker in restored else None for worker in range(len(self))]

    def all_of(
        self,
        method: str,
        arguments: Sequence[tuple[Any, ...]],
        enough: int | None = None,
        call_off: tuple[Any, ...] = (),
        workers: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call a method of all workers, which must be idle; returns the results, by worker.

        If a worker dies, the call is repeated in its replacement.

        Args:
            method: name of the method.
            arguments: of each worker's call.
            workers: which ones are called; None for all.
            enough: number of results after which the other calls are stopped early; None for never.
            call_off: name and arguments of the method that stops a call; workers need a second thread for it.
        """
        given = dict(zip(range(len(self)) if workers is None else workers, arguments, strict=True))
        for worker, its_own in given.items():
            self.start(worker, method, *its_own)
        values: dict[int, Any] = {}
        while self._running:
            done = self.next_done()
            if done.died:
                self.start(done.worker, method, *given[done.worker])
            else:
                values[done.worker] = done.value
            if len(values) == enough and len(values) < len(self):
                for worker in self._running.values():
                    getattr(self._handles[worker], call_off[0]).remote(*call_off[1:])
        return [values[worker] for worker in given]

    def ask(self, worker: int, question: Callable[[Any], T]) -> T:
        """Call a function with a worker object in the worker's process, for tests and measurements."""
        answer: T = ray.get(self._handles[worker].__ray_call__.remote(question))
        return answer

    def close(self) -> None:
        """Kill all workers."""
        for worker, handle in enumerate(self._handles):
            if worker not in self._lost:
                ray.kill(handle)
        self._running = {}

    def _make(self, worker: int) -> Any:
        return self._remote.remote(*self._arguments(worker, self._generations[worker]))

    def _replace(self, worker: int, error: Exception) -> None:
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise WorkerDiedError(f"{self._title} {worker} could not be made: {why_not_made(error)}") from error
        if self._is_stopping_soon():
            self._lost.add(worker)
            raise WorkerLostError(f"{self._title} {worker} died: {error}") from error
        self._consecutive_deaths[worker] += 1
        if self._consecutive_deaths[worker] >= _MOST_DEATHS:
            raise WorkerDiedError(
                f"{self._title} {worker} died {_MOST_DEATHS} times in a row without a result; last error: {error}"
            ) from error
        # If only the connection to its machine was lost, it may still be running.
        ray.kill(self._handles[worker])
        self._renew(worker)
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        tell(f"{self._title} {worker} died and was replaced: {reason}")

    def _renew(self, worker: int) -> None:
        self._generations[worker] += 1
        self.replaced += 1
        self._handles[worker] = self._make(worker)

    def _is_stopping_soon(self) -> bool:
        """Whether the run is to stop; schedulers send a signal to all processes, which may reach a worker first."""
        until = time.monotonic() + _SECONDS_FOR_A_STOP
        while not self.is_stopping():
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True


def why_not_made(error: RayActorError) -> str:
    """Return why Ray could not make a worker or shard; for a module that it cannot import, with the way out."""
    text = str(error)
    missing = re.search(r"No module named ['\"]([\w.]+)['\"]", text)
    if missing is None:
        return text
    module, address = missing[1], re.search(r"\bip=([\w.:]+)", text)
    machine, package = f" on machine {address[1]}" if address else "", module.partition(".")[0]
    return (
        f"its process{machine} cannot import the module {module!r}. Install it on all machines, or put its folder on "
        f"PYTHONPATH there, before `ray start`; or send it, before the scheme is made: import ray, {package}; "
        f'ray.init(address="auto", runtime_env={{"py_modules": [{package}]}})'
    )


def connect(address: str | None, needed: Mapping[str, float]) -> bool:
    """Connect to a cluster, or start Ray on this machine; returns whether there was no connection before.

    Args:
        address: of the cluster, "auto" for that of this machine; None uses ``RAY_ADDRESS``, else starts one.
        needed: total resources of the workers.

    Raises:
        RuntimeError: the cluster has not enough resources.
    """
    if was_connected := ray.is_initialized():
        pass
    elif address is None and "RAY_ADDRESS" not in os.environ:
        # Workers mostly wait for their environments, so there may be more of them than processors.
        num_cpus = max(os.cpu_count() or 1, int(needed.get("num_cpus", 0) + 1))
        with _sigterm_held_back():
            ray.init(address="local", num_cpus=num_cpus, include_dashboard=False)
    else:
        ray.init(address=address or "auto")
    there: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    for name, amount in needed.items():
        found = there.get(names.get(name, name), 0)
        if found < amount:
            if not was_connected:
                ray.shutdown()
            raise RuntimeError(
                f"RayScheme: the workers take {name}={amount:g}, the cluster has {found:g}; take fewer workers, let "
                f'each take less (resources={{"collector": {{"{name}": ...}}}}), or add machines (ray start)'
            )
    return not was_connected


@contextmanager
def _sigterm_held_back() -> Iterator[None]:
    """Have processes that are started in this context not receive SIGTERM, as Ray does for Ctrl-C.

    Schedulers send it to all processes of a job, and the learner needs Ray in order to save the collectors' states.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def disconnect() -> None:
    """Disconnect from the cluster; a cluster that was started here is shut down."""
    ray.shutdown()


def put(value: Any) -> Any:
    """Put a value into the object store; returns a reference, which workers receive as the value."""
    return ray.put(value)
