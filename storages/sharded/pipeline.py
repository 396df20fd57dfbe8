"""Prefetching of batches from shards."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from storages.errors import EmptyStorageError
from storages.sharded.groups import Pending, ShardGroup, ShardLostError
from storages.sharded.known_shards import KnownShards
from storages.sharded.packed_batches import unpack
from storages.sharded.replay_shard import ShardReply, Summary, Update

_SECONDS_BETWEEN_ATTEMPTS = 0.05


class PendingUpdates(NamedTuple):
    """Priority updates and progress that a learner sends to shards with the next round of requests."""

    updates: Mapping[int, Sequence[Update]]
    """Priority updates by position of the shard."""
    progress: tuple[int, int] | None
    """Progress of the run; None if it was sent before."""


TakeUpdates: TypeAlias = Callable[[], PendingUpdates]
"""Returns the updates and the progress that were not sent yet."""


class ShardBatch(NamedTuple):
    """A batch as a shard sampled it."""

    fields: dict[str, Any]
    """Arrays, or dicts of arrays, which the caller owns."""
    first_index: int
    """Offset of the shard's transition numbers, when it sampled the batch."""
    factor: float
    """Factor that converts its importance weights to those of a single storage of all rows."""


class Pipeline:
    """Requests batches from shards, several in one message, and prefetches further ones.

    Args:
        group: the shards.
        known: the latest summaries, updated with every answer.
        batches_at_once: batches of a round of requests, from all shards together.
        rounds_ahead: rounds that are prefetched while the learner uses one.
        patience_seconds: timeout of a shard, after which the learner continues with the others.
        give_up_seconds: timeout of all shards, after which an error is raised.
        replaced: called with the position of a shard that has replaced one that died.
    """

    def __init__(
        self,
        group: ShardGroup,
        known: KnownShards,
        batches_at_once: int,
        rounds_ahead: int,
        patience_seconds: float,
        give_up_seconds: float,
        replaced: Callable[[int], None],
    ) -> None:
        self._group, self._known, self._replaced = group, known, replaced
        self._batches_at_once, self._rounds_ahead = batches_at_once, rounds_ahead
        self._patience_seconds, self._give_up_seconds = patience_seconds, give_up_seconds
        self._queue: deque[_Request] = deque()
        """An entry for each requested batch, received or not, in the order of use; entries of one request are equal."""
        self._batch_size = 0
        """Rows of the batches in the queue."""
        self._awaited: dict[int, Pending[Any]] = {}
        """The latest pending call of each shard that returns no batches."""

    def batches(
        self, generator: np.random.Generator, batch_size: int, count: int, take_updates: TakeUpdates
    ) -> Iterator[ShardBatch]:
        """Iterate over ``count`` batches; with ``rounds_ahead``, further ones are requested for later calls.

        Args:
            generator: chooses shards.
            batch_size: rows of a batch.
            count: number of batches.
            take_updates: returns the updates to send with the next round of requests.

        Raises:
            EmptyStorageError: all shards are empty.
            ShardLostError: no shard answers.
        """
        for number in range(count):
            if batch_size != self._batch_size:
                # Another iterator may have requested batches of its own size since the last one of this.
                self.drop()
                self._batch_size = batch_size
            while self._send_requests(generator, batch_size, count - number, take_updates):
                pass
            while not (self._queue and self._queue[0].batches is not None):
                self._send_requests(generator, batch_size, count - number, take_updates)
                if not self._queue:
                    self._wait_for_any()
                elif self._queue[0].batches is None:
                    self._receive(self._queue[0])
            request = self._queue.popleft()
            yield ShardBatch(next(request.batches), request.first_index, request.factor)  # type: ignore[arg-type]

    def refresh(self) -> list[Summary]:
        """Request the summaries of all shards, wait for them, and return those that came."""
        for shard in range(len(self._group)):
            self._awaited[shard] = self._group.summary(shard)
        for shard, pending in list(self._awaited.items()):
            if self._group.wait([pending], self._patience_seconds) is not None:
                self._receive_answer(shard, pending)
            else:
                self._known.mark_lost(shard)
        return self._known.answering

    def drop(self) -> None:
        """Drop requested batches that were not used."""
        while self._queue:
            if self._queue[0].batches is None:
                self._receive(self._queue[0])
            if self._queue:
                self._queue.popleft()

    # Inside

    def _send_requests(
        self, generator: np.random.Generator, batch_size: int, most: int, take_updates: TakeUpdates
    ) -> bool:
        """Send a round of requests, unless enough batches are queued or all shards are empty; return whether it did."""
        if len(self._queue) > self._rounds_ahead * self._batches_at_once:
            return False
        for shard, pending in list(self._awaited.items()):
            if self._group.wait([pending], 0.0) is not None:
                self._receive_answer(shard, pending)
        probabilities = self._known.probabilities
        if not probabilities.any():
            return False
        count = self._batches_at_once if self._rounds_ahead else min(most, self._batches_at_once)
        chosen = self._known.choose(generator, count).tolist()
        counts, (updates, progress) = Counter(chosen), take_updates()
        requests: dict[int, _Request] = {}
        for shard, summary in enumerate(self._known.summaries):
            if summary is None:
                continue
            pending = self._group.exchange(shard, updates.get(shard, ()), progress, counts[shard], batch_size)
            if counts[shard]:
                requests[shard] = _Request(shard, float(probabilities[shard]), pending)
            else:
                self._awaited[shard] = pending
        self._queue.extend(requests[shard] for shard in chosen)
        return True

    def _receive(self, request: "_Request") -> None:
        """Wait for the batches of a request; remove its entries from the queue if no answer comes."""
        answer = None
        if self._group.wait([request.pending], self._patience_seconds) is not None:
            answer = self._receive_answer(request.shard, request.pending)
        else:
            self._known.mark_lost(request.shard)
            self._awaited[request.shard] = self._group.summary(request.shard)
        if answer is None:
            self._queue = deque(entry for entry in self._queue if entry.shard != request.shard or entry.batches)
            return
        request.factor = self._known.factor(answer.summary.mass, request.probability)
        # A shard that replaces this one later has other numbers.
        request.first_index = self._known.first_index(request.shard)
        request.batches = unpack(answer.batches, answer.release)
        if not answer.batches:
            self._queue = deque(entry for entry in self._queue if entry is not request)

    def _receive_answer(self, shard: int, pending: Pending[Any]) -> Any:
        """Process the result of a finished call, and return it; None if the shard died."""
        try:
            answer: ShardReply | Summary = pending.result()
        except ShardLostError:
            self._known.mark_lost(shard)
            # The replacement of the shard answers it.
            self._awaited[shard] = self._group.summary(shard)
            return None
        if self._known.record_summary(shard, answer.summary if isinstance(answer, ShardReply) else answer):
            self._replaced(shard)
        if self._awaited.get(shard) is pending:
            del self._awaited[shard]
        return answer

    def _wait_for_any(self) -> None:
        """Wait until a shard that is not empty answers."""
        known, deadline = self._known, time.monotonic() + self._give_up_seconds
        while not known.probabilities.any():
            if not self._awaited:
                raise EmptyStorageError("ShardedReplay: no batch can be made of empty shards; insert slices first")
            left = deadline - time.monotonic()
            if left <= 0 or self._group.wait(list(self._awaited.values()), left) is None:
                raise ShardLostError(
                    f"ShardedReplay: none of {len(self._group)} shards has answered for {self._give_up_seconds:g} "
                    f"seconds; their processes or machines may be lost"
                )
            for shard, pending in list(self._awaited.items()):
                if self._group.wait([pending], 0.0) is not None and self._receive_answer(shard, pending) is None:
                    time.sleep(_SECONDS_BETWEEN_ATTEMPTS)


class _Request:
    """A request for batches of one shard.

    Args:
        shard: position of the shard.
        probability: probability with which it was chosen.
        pending: the pending call.
    """

    def __init__(self, shard: int, probability: float, pending: Pending[ShardReply]) -> None:
        self.shard, self.probability, self.pending = shard, probability, pending
        self.batches: Iterator[dict[str, Any]] | None = None
        """Batches that were not used yet; None before the answer has come."""
        self.first_index, self.factor = 0, 1.0
