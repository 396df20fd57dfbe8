"""Actors of Ray of one kind, each of which is replaced where it dies."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, ObjectLostError, OutOfMemoryError, RayActorError

from pytorchrl.scheme.distributed.errors import WorkerDiedError

T = TypeVar("T")

_DEATHS_IN_A_ROW = 3
"""Of workers of one number without a result between them, after which the run ends."""
_OPTIONS = ("num_cpus", "num_gpus", "memory")


class Done(NamedTuple):
    """What came of a call."""

    worker: int
    value: Any
    died: bool
    """Whether the worker died instead; another has its number now, and is idle."""


class Workers:
    """A number of workers, each of which does one thing at a time.

    Args:
        title: what they are called in messages: "collector".
        cls: the class of each.
        arguments: of its ``__init__``, for a worker's number and for how many had that number before it.
        number: how many there are.
        resources: what each takes: "num_cpus", "num_gpus", "memory" in bytes, and resources of the cluster's own.
        threads: of each, in which it does as many things at a time.
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
        self._deaths_in_a_row = [0] * number
        self._handles = [self._make(worker) for worker in range(number)]
        self._running: dict[Any, int] = {}
        self.replaced = 0
        """How many died and were replaced."""

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def idle(self) -> list[int]:
        """The workers that do nothing, by number."""
        busy = set(self._running.values())
        return [worker for worker in range(len(self)) if worker not in busy]

    def start(self, worker: int, method: str, *arguments: Any) -> None:
        """Let an idle worker do something."""
        self._running[getattr(self._handles[worker], method).remote(*arguments)] = worker

    def next_done(self) -> Done:
        """Wait for a call to be done, whichever is first.

        Raises:
            Exception: what a worker raised, with its traceback there.
            WorkerDiedError: several of a number died one after the other.
        """
        (reference, *_), _ = ray.wait(list(self._running), num_returns=1)
        worker = self._running.pop(reference)
        try:
            value = ray.get(reference)
        except (RayActorError, ActorUnavailableError, ObjectLostError, OutOfMemoryError) as error:
            self._replace(worker, error)
            return Done(worker, None, died=True)
        self._deaths_in_a_row[worker] = 0
        return Done(worker, value, died=False)

    def finish(self) -> Iterator[Any]:
        """Wait for all calls that run; yields what came of each whose worker has not died."""
        while self._running:
            done = self.next_done()
            if not done.died:
                yield done.value

    def all_of(
        self,
        method: str,
        arguments: Sequence[tuple[Any, ...]],
        enough: int | None = None,
        call_off: tuple[Any, ...] = (),
    ) -> list[Any]:
        """Let all workers, which are idle, do the same; returns what came of it, by worker.

        Where one dies, the one that replaces it does it.

        Args:
            method: what they do.
            arguments: of each.
            enough: when so many are done, the others are called off; None for never.
            call_off: the method that does it and its arguments; workers need a second thread for it.
        """
        for worker, given in enumerate(arguments):
            self.start(worker, method, *given)
        values: dict[int, Any] = {}
        while self._running:
            done = self.next_done()
            if done.died:
                self.start(done.worker, method, *arguments[done.worker])
            else:
                values[done.worker] = done.value
            if len(values) == enough and len(values) < len(self):
                for worker in self._running.values():
                    getattr(self._handles[worker], call_off[0]).remote(*call_off[1:])
        return [values[worker] for worker in range(len(self))]

    def ask(self, worker: int, question: Callable[[Any], T]) -> T:
        """Call a function with a worker in its process, for tests and measurements."""
        answer: T = ray.get(self._handles[worker].__ray_call__.remote(question))
        return answer

    def close(self) -> None:
        """End all workers."""
        for handle in self._handles:
            ray.kill(handle)
        self._running = {}

    def _make(self, worker: int) -> Any:
        return self._remote.remote(*self._arguments(worker, self._generations[worker]))

    def _replace(self, worker: int, error: Exception) -> None:
        if isinstance(error, RayActorError) and error.actor_init_failed:
            raise WorkerDiedError(f"{self._title} {worker} could not be made: {error}") from error
        self._deaths_in_a_row[worker] += 1
        if self._deaths_in_a_row[worker] >= _DEATHS_IN_A_ROW:
            raise WorkerDiedError(
                f"{self._title} {worker} died {_DEATHS_IN_A_ROW} times in a row without a result, at last with: {error}"
            ) from error
        # Where its machine was cut off, it may be running.
        ray.kill(self._handles[worker])
        self._generations[worker] += 1
        self.replaced += 1
        self._handles[worker] = self._make(worker)
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        print(f"{self._title} {worker} died and was replaced: {reason}")


def connect(address: str | None, needed: Mapping[str, float]) -> bool:
    """Connect to a cluster, or start Ray on this machine; returns whether it was done here, and not before.

    Args:
        address: of the cluster, "auto" for that of this machine; None takes ``RAY_ADDRESS``, else starts one.
        needed: the sum of the resources that workers take.

    Raises:
        RuntimeError: the cluster has not got as much.
    """
    if was_connected := ray.is_initialized():
        pass
    elif address is None and "RAY_ADDRESS" not in os.environ:
        # Workers that wait for their environments may be more than the processors.
        num_cpus = max(os.cpu_count() or 1, int(needed.get("num_cpus", 0) + 1))
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


def disconnect() -> None:
    """Leave the cluster; one that was started here ends."""
    ray.shutdown()


def put(value: Any) -> Any:
    """A reference to a copy in the object store, which workers get as the value."""
    return ray.put(value)
