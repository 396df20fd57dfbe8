"""Batches of shards, asked for ahead of the learner."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from storages.sharded.groups import Pending, ShardGroup, ShardLostError
from storages.sharded.known_shards import KnownShards
from storages.sharded.packed_batches import unpack
from storages.sharded.replay_shard import Reply, Summary, Update
from storages.storage import EmptyStorageError

_SECONDS_BETWEEN_ATTEMPTS = 0.05


class Told(NamedTuple):
    """What a learner tells shards with the next round of messages."""

    updates: Mapping[int, Sequence[Update]]
    """By position of the shard."""
    progress: tuple[int, int] | None
    """Of the run; None where shards know it."""


TakeTold: TypeAlias = Callable[[], Told]
"""Returns what was not told yet."""


class ShardBatch(NamedTuple):
    """A batch as a shard drew it."""

    fields: dict[str, Any]
    """Arrays, or dicts of such, the caller's alone."""
    shard: int
    factor: float
    """What its importance weights are multiplied with to be weights among the rows of all shards."""


class Pipeline:
    """Asks shards for batches, several with one message, and for further ones before those are used up.

    Args:
        group: the shards.
        known: what is known of them; every answer is noted there.
        batches_at_once: batches of a round of messages, of all shards together.
        rounds_ahead: rounds that are on their way while the learner uses one.
        patience_seconds: how long an answer is waited for before the learner goes on with other shards.
        give_up_seconds: how long it waits where none answers.
        replaced: called with the position of a shard that has taken the place of one that died.
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
        """An entry for each batch that is on its way or has come, in the order in which they are used."""
        self._awaited: dict[int, Pending[Any]] = {}
        """Answers to come that bring no batches, the latest of each shard."""

    def batches(
        self, generator: np.random.Generator, batch_size: int, count: int, take_told: TakeTold
    ) -> Iterator[ShardBatch]:
        """Iterate over ``count`` batches; where rounds are ahead, more are asked for, for later calls.

        Args:
            generator: chooses shards.
            batch_size: rows of a batch.
            count: number of batches.
            take_told: what to tell the shards with the next round.

        Raises:
            EmptyStorageError: no shard holds anything.
            ShardLostError: no shard answers.
        """
        for number in range(count):
            while not (self._queue and self._queue[0].batches is not None):
                self._ask(generator, batch_size, count - number, take_told)
                if not self._queue:
                    self._wait_for_any()
                elif self._queue[0].batches is None:
                    self._receive(self._queue[0])
            request = self._queue.popleft()
            yield ShardBatch(next(request.batches), request.shard, request.factor)  # type: ignore[arg-type]

    def refresh(self) -> None:
        """Ask all shards for their summaries, and wait for them."""
        for shard in range(len(self._group)):
            self._awaited[shard] = self._group.summary(shard)
        for shard, pending in list(self._awaited.items()):
            if self._group.wait([pending], self._patience_seconds) is not None:
                self._hear(shard, pending)
            else:
                self._known.lose(shard)

    def drop(self) -> None:
        """Drop batches that were asked for and not used."""
        while self._queue:
            if self._queue[0].batches is None:
                self._receive(self._queue[0])
            if self._queue:
                self._queue.popleft()

    # Inside

    def _ask(self, generator: np.random.Generator, batch_size: int, most: int, take_told: TakeTold) -> None:
        """Ask for further batches, unless enough are on their way."""
        if len(self._queue) > self._rounds_ahead * self._batches_at_once:
            return
        for shard, pending in list(self._awaited.items()):
            if self._group.wait([pending], 0.0) is not None:
                self._hear(shard, pending)
        probabilities = self._known.probabilities
        if not probabilities.any():
            return
        count = self._batches_at_once if self._rounds_ahead else min(most, self._batches_at_once)
        chosen = self._known.choose(generator, count).tolist()
        counts, (updates, progress) = Counter(chosen), take_told()
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

    def _receive(self, request: "_Request") -> None:
        """Wait for an answer; leave out its batches where none comes."""
        answer = None
        if self._group.wait([request.pending], self._patience_seconds) is not None:
            answer = self._hear(request.shard, request.pending)
        else:
            self._known.lose(request.shard)
            self._awaited[request.shard] = self._group.summary(request.shard)
        if answer is None:
            self._queue = deque(entry for entry in self._queue if entry.shard != request.shard or entry.batches)
            return
        request.factor = self._known.factor(answer.summary.mass, request.probability)
        request.batches = unpack(answer.batches)
        if not answer.batches:
            self._queue = deque(entry for entry in self._queue if entry is not request)

    def _hear(self, shard: int, pending: Pending[Any]) -> Any:
        """Note an answer that has come, and return it; None where the shard died."""
        try:
            answer: Reply | Summary = pending.result()
        except ShardLostError:
            self._known.lose(shard)
            # It is answered when the shard is replaced.
            self._awaited[shard] = self._group.summary(shard)
            return None
        if self._known.learn(shard, answer.summary if isinstance(answer, Reply) else answer):
            self._replaced(shard)
        if self._awaited.get(shard) is pending:
            del self._awaited[shard]
        return answer

    def _wait_for_any(self) -> None:
        """Wait until a shard answers that holds something."""
        known, deadline = self._known, time.monotonic() + self._give_up_seconds
        while not known.probabilities.any():
            if not self._awaited:
                raise EmptyStorageError("ShardedReplay: no batch can be made of empty shards; insert slices first")
            left = deadline - time.monotonic()
            if left <= 0 or self._group.wait(list(self._awaited.values()), left) is None:
                raise ShardLostError(
                    f"ShardedReplay: none of {len(self._group)} shards has answered for {self._give_up_seconds:g} "
                    f"seconds; what they run on may be gone"
                )
            for shard, pending in list(self._awaited.items()):
                if self._group.wait([pending], 0.0) is not None and self._hear(shard, pending) is None:
                    time.sleep(_SECONDS_BETWEEN_ATTEMPTS)


class _Request:
    """Batches of one shard that were asked for with one message.

    Args:
        shard: its position.
        probability: by which it was chosen.
        pending: the answer.
    """

    def __init__(self, shard: int, probability: float, pending: Pending[Reply]) -> None:
        self.shard, self.probability, self.pending = shard, probability, pending
        self.batches: Iterator[dict[str, Any]] | None = None
        """Those that were not used yet; None before they have come."""
        self.factor = 1.0
