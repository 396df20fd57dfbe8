"""Operations on a storage on disk, and the content that it must have after each of them.

The expected content comes from a run without faults: for a ring, from a storage without a directory; for episodes, from
a model. Transitions are compared with the inserted ones in every stored field, errors of transitions with those of the
updates.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from storages.episode import Episode
from storages.persistent import PersistenceError
from storages.persistent.episodes import episode_log, segment_store
from storages.persistent.replay import write_ahead_log
from storages.transition import ACT, DONE, DONE2, ERRORS, INDICES, OBS, OBS2, REW, TRUNC2
from tests.support.directories import made
from tests.support.episodic import EpisodesModel, Transition, buffer
from tests.support.model import Stream, contents, environments, map_leaves

NUM_ENVS, SIZE, COMMIT_EVERY = 2, 12, 6
SMALL_SEGMENT_BYTES = 1_500
_TRIES = 8


def operations(checkpoints: bool) -> list[str]:
    """The operations, in order."""
    saved = ["checkpoint"] if checkpoints else []
    first = ["insert"] * 5 + ["learn"] + ["insert"] * 3 + ["flush", "learn"] + ["insert"] * 4 + ["learn", *saved]
    return (
        [*first, "learn"] + ["insert"] * 5 + ["flush", "learn", *saved] + ["insert"] * 3 + ["learn", "flush", "learn"]
    )


@contextmanager
def small_files() -> Iterator[None]:
    """Log files that are full after a few commits."""
    with (
        mock.patch.object(write_ahead_log, "LOG_FILE_BYTES", SMALL_SEGMENT_BYTES),
        mock.patch.object(episode_log, "LOG_FILE_BYTES", SMALL_SEGMENT_BYTES),
        mock.patch.object(segment_store, "LOG_FILE_BYTES", SMALL_SEGMENT_BYTES),
    ):
        yield


@dataclass
class Lived:
    """The progress of a run.

    Args:
        begun: number of operations that were begun.
        safe: the last operation that was acknowledged to be on disk; 0 if none was.
        closed: whether closing acknowledged that all operations are.
        messages: messages of errors.
        saved: saved states, each with the number of operations before it.
    """

    begun: int = 0
    safe: int = 0
    closed: bool = False
    messages: list[str] = field(default_factory=list)
    saved: list[tuple[int, Any]] = field(default_factory=list)


class History:
    """Operations on one kind of storage.

    Args:
        checkpoints: whether states are saved in between.
        durable: whether commits have to survive a power cut.
    """

    goes_back_by_commits = False
    """Whether an interrupted rollback may leave the content of an operation in between."""

    def __init__(self, kind: str, checkpoints: bool = False, durable: bool = False) -> None:
        self.kind, self.durable = kind, durable
        self.operations = operations(checkpoints)
        stream = Stream(NUM_ENVS, kind, False, np.random.default_rng(1))
        count = self.operations.count("insert") + 5
        self.samples = [map_leaves(stream.step(), np.array) for _ in range(count)]

    def opened(self, directory: Path) -> Any:
        """Open the storage in a directory."""
        raise NotImplementedError

    def steps_in(self, storage: Any) -> int:
        """Number of samples inserted into a storage."""
        raise NotImplementedError

    def assert_holds(self, storage: Any, safe: int, begun: int, whole: bool, known: int = 0) -> None:
        """The content is that after one of the operations ``safe`` to ``begun``; after the last one if ``whole``.

        Errors of whole episodes may be those of an operation up to ``known``, if that is later.
        """
        raise NotImplementedError

    def insert(self, storage: Any, number: int) -> None:
        """Insert the sample with this number."""
        storage.insert_transition(self.samples[number])

    def seen(self, storage: Any) -> str:
        """A digest of the content, for later comparison."""
        raise NotImplementedError

    def inserted(self, operation: int) -> int:
        """Number of samples inserted by the first operations."""
        return self.operations[:operation].count("insert")

    def apply(self, storage: Any, number: int) -> Any:
        """Do the operation with this number; a checkpoint returns the state."""
        match self.operations[number]:
            case "insert":
                self.insert(storage, self.inserted(number))
            case "learn":
                learn(storage, number)
            case "flush":
                storage.flush()
            case _:
                return storage.state_dict()
        return None

    def live(self, directory: Path, after: Callable[[Lived], None] = lambda lived: None) -> Lived:
        """Do all operations, and close; a refused insertion is retried.

        Args:
            directory: directory of the storage, which does not exist yet.
            after: called after each operation.
        """
        lived = Lived()
        storage = _tried(lambda: self.opened(directory), lived)
        storage.seed(0)
        for number, operation in enumerate(self.operations):
            lived.begun = number + 1
            if operation in ("flush", "checkpoint"):
                # If the operation is refused, the run continues without it.
                try:
                    state = self.apply(storage, number)
                except PersistenceError as error:
                    lived.messages.append(str(error))
                else:
                    lived.safe = number + 1
                    lived.saved += [(number + 1, state)] if state is not None else []
            else:
                _tried(lambda number=number: self.apply(storage, number), lived)
            after(lived)
        try:
            storage.close()
        except PersistenceError as error:
            lived.messages.append(str(error))
        else:
            lived.closed, lived.safe = True, len(self.operations)
        after(lived)
        return lived

    def assert_left(self, directory: Path, lived: Lived) -> None:
        """Open a directory, check its content, insert a sample, and load the states that must be loadable."""
        storage = self.opened(directory)
        try:
            self.assert_holds(storage, lived.safe, lived.begun, lived.closed)
            steps = self.steps_in(storage)
            if steps < len(self.samples):
                self.insert(storage, steps)
                storage.flush()
            for operation, state in reversed(lived.saved[-storage.states_kept :]):
                storage.load_state_dict(state)
                self.assert_holds(storage, operation, operation, True)
        finally:
            storage.close()


def _tried(act: Callable[[], Any], lived: Lived) -> Any:
    for _ in range(_TRIES):
        try:
            return act()
        except PersistenceError as error:
            lived.messages.append(str(error))
    raise AssertionError(f"refused at every attempt: {lived.messages[-1]}")


def learn(storage: Any, seed: int) -> None:
    """Draw batches, and update their errors."""
    if len(storage) == 0:
        return
    random = np.random.default_rng(seed)
    for batch in storage.generate_batches(2, 6):
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=batch[INDICES].shape))})


def digest(value: Any) -> str:
    """A digest of nested values, such as the data, errors, counters and random generator of a storage."""
    found = hashlib.sha256()
    _into(found, value)
    return found.hexdigest()


def _into(found: Any, value: Any) -> None:
    if isinstance(value, dict):
        for key in sorted(value):
            found.update(str(key).encode())
            _into(found, value[key])
    else:
        found.update(value if isinstance(value, bytes) else repr(value).encode())


class RingHistory(History):
    """History of a ring storage; ``way`` is one of :data:`tests.support.directories.WAYS`."""

    goes_back_by_commits = True

    def __init__(self, way: str, kind: str, checkpoints: bool = False, durable: bool = False) -> None:
        super().__init__(kind, checkpoints, durable)
        self._way = way
        twin = self.opened(None)
        twin.seed(0)
        self._truth = [self._held(twin)]
        for number in range(len(self.operations)):
            if self.operations[number] in ("insert", "learn"):
                self.apply(twin, number)
            self._truth.append(self._held(twin))

    def opened(self, directory: Path | None) -> Any:
        given = {} if directory is None else {"commit_every": COMMIT_EVERY, "durable": self.durable}
        return made(self._way, directory, environments(self.kind, NUM_ENVS), size=SIZE, **given)

    def steps_in(self, storage: Any) -> int:
        return int(storage.ring.steps)

    def seen(self, storage: Any) -> str:
        return self._held(storage)

    def _held(self, storage: Any) -> str:
        if not storage.ring.steps:
            return "nothing"
        priorities = storage.priorities
        errors = b"" if priorities is None else priorities.errors(storage.ring.oldest).tobytes()
        return digest({"rows": contents(storage), "errors": errors, "beside": storage.extra_state()})

    def assert_holds(self, storage: Any, safe: int, begun: int, whole: bool, known: int = 0) -> None:
        held = self._held(storage)
        assert held in self._truth[begun if whole else safe : begun + 1], (self.steps_in(storage), safe, begun, whole)


class EpisodicHistory(History):
    """History of a buffer of whole episodes."""

    def __init__(self, kind: str, checkpoints: bool = False, durable: bool = False, **given: Any) -> None:
        super().__init__(kind, checkpoints, durable)
        self._given = {"size": 32, "commit_every": COMMIT_EVERY, "durable": durable} | given
        self._errors: dict[int, dict[int, float]] = {0: {}}
        """The errors of transitions after each operation."""

    def opened(self, directory: Path) -> Any:
        return buffer(directory, self.kind, NUM_ENVS, **self._given)

    def learned(self, directory: Path) -> None:
        """Run without faults, and record the errors of transitions after each operation."""

        storage = self.opened(directory)
        storage.seed(0)
        for number in range(len(self.operations)):
            self.apply(storage, number)
            self._errors[number + 1] = errors_in(storage)
        storage.close()

    def steps_in(self, storage: Any) -> int:
        return int(storage._directory.memtable.ring.steps)

    def seen(self, storage: Any) -> str:
        rows = contents(storage) if len(storage) else {}
        return digest({"steps": self.steps_in(storage), "rows": rows, "errors": repr(errors_in(storage))})

    def model(self, steps: int) -> EpisodesModel:
        """The expected content after a number of samples."""
        model = EpisodesModel(self._given["size"])
        for sample in self.samples[:steps]:
            model.insert(sample)
        return model

    def assert_holds(self, storage: Any, safe: int, begun: int, whole: bool, known: int = 0) -> None:
        steps = self.steps_in(storage)
        assert self.inserted(begun if whole else safe) <= steps <= self.inserted(begun), (steps, safe, begun, whole)
        model = self.model(steps)
        model.gone = storage.ring.start
        generator = storage._generator.bit_generator.state
        model.assert_holds(storage)
        storage._generator.bit_generator.state = generator
        if storage.priorities is None:
            return
        # Transitions inserted since the errors were written have the initial error.
        candidates = [begun] if whole else range(safe, begun + 1)
        found = errors_in(storage)
        initial = float(np.float32(storage.default_error))
        wanted = ({number: one.get(number, initial) for number in found} for one in map(self._errors.get, candidates))
        assert any(found == one for one in wanted) or (known and self._were_known(found, initial, known)), (
            found,
            safe,
            begun,
            whole,
        )

    def _were_known(self, found: dict[int, float], initial: float, until: int) -> bool:
        """Whether each error was that of its transition at some time up to an operation."""
        return all(
            error in {initial, *(self._errors[operation].get(number) for operation in range(until + 1))}
            for number, error in found.items()
        )


def errors_in(storage: Any) -> dict[int, float]:
    """The errors of the transitions of an episodic buffer, by their numbers."""
    if storage.priorities is None:
        return {}
    start = storage.ring.start
    return dict(enumerate(storage.priorities.errors_of(start, storage.ring.end).tolist(), start))


_LONGEST = 6


class AddedHistory(EpisodicHistory):
    """History of a buffer of whole episodes; each insertion adds one episode."""

    def __init__(self, kind: str, checkpoints: bool = False, durable: bool = False, **given: Any) -> None:
        super().__init__(kind, checkpoints, durable, **given)
        everything = EpisodesModel(10_000, _LONGEST)
        stream = Stream(1, kind, False, np.random.default_rng(1))
        while len(everything.finished) < len(self.samples):
            everything.insert({key: np.array(value) for key, value in stream.step().items()})
        self._episodes = everything.finished[: len(self.samples)]
        for episode in self._episodes:
            for place, (sample, _) in enumerate(episode):
                sample[DONE][...] = place == 0

    def insert(self, storage: Any, number: int) -> None:
        storage.add_episode(_whole(self._episodes[number]))

    def steps_in(self, storage: Any) -> int:
        ends = [0, *accumulate(map(len, self._episodes))]
        return ends.index(storage._directory.live_range.next)

    def model(self, steps: int) -> EpisodesModel:
        model = EpisodesModel(self._given["size"], finished=list(self._episodes[:steps]))
        while sum(map(len, model.finished)) > model.size:
            model.finished.pop(0)
        return model


def _whole(transitions: list[Transition]) -> Episode:
    samples = [sample for sample, _ in transitions]
    last = samples[-1]
    return Episode(
        np.concatenate([sample[OBS] for sample in samples] + [last[OBS2]]),
        {key: np.concatenate([sample[key] for sample in samples]) for key in (ACT, REW)},
        terminated=bool(last[DONE2][0, 0]),
        truncated=bool(last[TRUNC2][0, 0]),
    )
