"""Where shards live, as a learner and collectors reach them: the protocol, and shards in this process."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded.replay_shard import ReplayShard, Reply, Summary, Update

T_co = TypeVar("T_co", covariant=True)


class ShardLostError(RuntimeError):
    """A shard died before it answered; what it was asked for is not done, or not known to be."""


class Pending(Protocol[T_co]):
    """An answer that is to come."""

    def result(self) -> T_co:
        """Wait for the answer.

        Raises:
            ShardLostError: the shard died.
            Exception: what the shard raised.
        """


class ShardGroup(ABC):
    """The shards of a replay, each known by its position; calls to one shard are done in their order.

    A shard that died is replaced by its group, at the same position: from its directory where it has one.
    """

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Begin a method of a :class:`ReplayShard`."""

    @abstractmethod
    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Wait for the first of some answers, or for so long; None where none has come."""

    @abstractmethod
    def close(self) -> None:
        """Commit what shards with directories hold, and end them."""

    def exchange(
        self,
        shard: int,
        updates: Sequence[Update],
        progress: tuple[int, int] | None,
        batches: int,
        batch_size: int,
    ) -> Pending[Reply]:
        """Begin :meth:`ReplayShard.exchange`."""
        return self.begin(shard, "exchange", updates, progress, batches, batch_size)

    def summary(self, shard: int) -> Pending[Summary]:
        """Begin :meth:`ReplayShard.summary`."""
        return self.begin(shard, "summary")

    def insert_data_slice(self, shard: int, data: Mapping[str, Any]) -> Pending[int]:
        """Begin :meth:`ReplayShard.insert_data_slice`."""
        return self.begin(shard, "insert_data_slice", data)

    def call(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Begin :meth:`ReplayShard.call`."""
        return self.begin(shard, "call", method, *arguments)


class LocalShards(ShardGroup):
    """Shards in this process, which answer at once: for tests, and for storages that are split on one machine.

    Args:
        makers: of the storages.
    """

    def __init__(self, makers: Sequence[Callable[[], ReplayBuffer]]) -> None:
        self.shards = [ReplayShard(make) for make in makers]
        """In the order of their positions."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.shards)

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Call a method of a shard."""
        answer: Future[Any] = Future()
        try:
            answer.set_result(getattr(self.shards[shard], method)(*arguments))
        except Exception as error:
            answer.set_exception(error)
        return answer

    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Return the first of some answers."""
        return pending[0] if pending else None

    def close(self) -> None:
        """Close the storages."""
        for shard in self.shards:
            shard.storage.close()


class SliceWriter:
    """Sends slices of one collector to the shards in turn, so that all shards hold experience of all collectors.

    n-step windows and sequences do not reach from one slice into the next, so slices are to be long beside them.

    Args:
        group: the shards.
        first: which one gets the first slice: the collector's number, so that not all begin with the same one.
        in_flight: slices that may be on their way; a further one waits for the oldest.
    """

    def __init__(self, group: ShardGroup, first: int = 0, in_flight: int = 2) -> None:
        if in_flight < 1:
            raise ValueError(f"SliceWriter: in_flight must be at least 1, got {in_flight}")
        self._group, self._next, self._in_flight = group, first % len(group), in_flight
        self._sent: deque[tuple[Pending[int], Mapping[str, Any]]] = deque()

    def write(self, data: Mapping[str, Any]) -> None:
        """Send a slice (steps, E, ...), with ERRORS where there are some; it must not be changed any more.

        A slice whose shard died before it answered is sent to the next shard, so that one may be stored twice: by the
        shard before its last commit, and again.

        Raises:
            ShardLostError: no shard takes it.
            Exception: an earlier slice does not fit, as of ``insert_data_slice``.
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
