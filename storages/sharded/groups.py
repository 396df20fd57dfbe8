"""Shard groups: the interface through which learner and collectors call shards, and shards in this process."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from storages.closing import close_all
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded.replay_shard import ReplayShard, ShardReply, Summary, Update

T_co = TypeVar("T_co", covariant=True)


class ShardLostError(RuntimeError):
    """Raised where a shard died before it answered; the call may or may not have been executed."""


class Pending(Protocol[T_co]):
    """Future of an asynchronous call of a shard."""

    def result(self) -> T_co:
        """Wait for the result.

        Raises:
            ShardLostError: the shard died.
            Exception: the exception that the shard raised.
        """


class ShardGroup(ABC):
    """The shards of a replay, addressed by position; calls of one shard are executed in order.

    A group replaces a shard that died, at the same position, and restores it from its directory if it has one.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of shards."""

    @abstractmethod
    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Call a method of a :class:`ReplayShard` asynchronously."""

    @abstractmethod
    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Wait for the first of some calls to finish; return it, or None after the timeout."""

    @abstractmethod
    def close(self) -> None:
        """Commit the shards that have directories, and stop all shards."""

    def exchange(
        self,
        shard: int,
        updates: Sequence[Update],
        progress: tuple[int, int] | None,
        batches: int,
        batch_size: int,
    ) -> Pending[ShardReply]:
        """Call :meth:`ReplayShard.exchange` asynchronously."""
        return self.begin(shard, "exchange", updates, progress, batches, batch_size)

    def summary(self, shard: int) -> Pending[Summary]:
        """Call :meth:`ReplayShard.summary` asynchronously."""
        return self.begin(shard, "summary")

    def insert_data_slice(self, shard: int, data: Mapping[str, Any]) -> Pending[int]:
        """Call :meth:`ReplayShard.insert_data_slice` asynchronously."""
        return self.begin(shard, "insert_data_slice", data)

    def call(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Call :meth:`ReplayShard.call` asynchronously."""
        return self.begin(shard, "call", method, *arguments)


class LocalShards(ShardGroup):
    """Shards in this process, called synchronously: for tests, and for storages that are split on one machine.

    Args:
        makers: functions that make the storages.
    """

    def __init__(self, makers: Sequence[Callable[[], ReplayBuffer]]) -> None:
        self.shards = [ReplayShard(make) for make in makers]
        """In the order of their positions."""

    def __len__(self) -> int:
        """Number of shards."""
        return len(self.shards)

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Call a method of a shard now; return its result as a finished future."""
        answer: Future[Any] = Future()
        try:
            answer.set_result(getattr(self.shards[shard], method)(*arguments))
        except Exception as error:
            answer.set_exception(error)
        return answer

    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Return the first of some calls, all of which are finished."""
        return pending[0] if pending else None

    def close(self) -> None:
        """Close the storages."""
        close_all(shard.storage for shard in self.shards)


class SliceWriter:
    """Sends the slices of one collector to the shards in turn (round robin).

    Each shard thus gets experience of all collectors. n-step windows and sequences do not span slices, so slices should
    be much longer than these.

    Args:
        group: the shards.
        first: position of the shard for the first slice; the collector's number spreads collectors over shards.
        in_flight: slices that may be unanswered; a further one waits for the oldest.
    """

    def __init__(self, group: ShardGroup, first: int = 0, in_flight: int = 2) -> None:
        if in_flight < 1:
            raise ValueError(f"SliceWriter: in_flight must be at least 1, got {in_flight}")
        self._group, self._next, self._in_flight = group, first % len(group), in_flight
        self._sent: deque[tuple[Pending[int], Mapping[str, Any]]] = deque()

    def write(self, data: Mapping[str, Any]) -> None:
        """Send a slice (steps, E, ...), with ERRORS if there are initial errors; it must not be changed afterwards.

        Delivery is at least once: a slice whose shard died before it answered is sent to the next shard, although the
        first one may have committed it.

        Raises:
            ShardLostError: no shard accepts the slice.
            Exception: an error of ``insert_data_slice`` for an earlier slice.
        """
        while len(self._sent) >= self._in_flight:
            self._settle_oldest()
        self._sent.append((self._begin(data), data))

    def flush(self) -> None:
        """Wait until all slices are stored."""
        while self._sent:
            self._settle_oldest()

    def _begin(self, data: Mapping[str, Any]) -> Pending[int]:
        shard, self._next = self._next, (self._next + 1) % len(self._group)
        return self._group.insert_data_slice(shard, data)

    def _settle_oldest(self) -> None:
        pending, data = self._sent.popleft()
        for attempt in range(len(self._group) + 1):
            try:
                pending.result()
            except ShardLostError:
                if attempt == len(self._group):
                    raise
                pending = self._begin(data)
            else:
                return
