"""One shard of a replay: a storage that serves prepared batches to a learner in another process."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from storages.component.factory import Factory
from storages.core.parts import Mass
from storages.off_policy.persistent_episodic_buffer import PersistentEpisodicBuffer
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded.packed_batches import PackedBatches, pack
from storages.storage import EmptyStorageError
from storages.transition import Batch

T = TypeVar("T")


class Summary(NamedTuple):
    """What a learner has to know of a shard in order to draw of several as if they were one."""

    identity: str
    """Of the object: a shard that replaces one that died has another."""
    mass: Mass
    """What it draws from."""
    eta: float | None
    """Share of a sequence's largest error in that of the sequence; None of a shard that follows no errors."""
    transitions: int
    """How many it holds."""
    inserted: int
    """How many were ever inserted."""
    capacity: int
    num_envs: int
    nbytes: int


class Reply(NamedTuple):
    """A shard's answer to a learner."""

    summary: Summary
    """As it was when the batches were drawn."""
    batches: PackedBatches
    """Those that were asked for; none where the shard is empty."""


class Update(NamedTuple):
    """Errors of rows that a shard drew."""

    identity: str
    """Of the shard that drew them: one that replaced it meanwhile leaves them out."""
    transitions: NDArray[np.int64]
    """(N,): the shard's numbers of the transitions with which the rows begin."""
    errors: NDArray[np.floating]
    """(N,): of sequences and episodes, those of their steps taken together."""


class ReplayShard:
    """Owns a storage in the process where it lives, and does what a learner and collectors ask of it.

    Batches land on the CPU; the learner moves them to its device. The object is called by one thread.

    Args:
        make: makes the storage: a new one, or with a directory the one that was kept there.

    Raises:
        ValueError: it is no storage that shards are made of.
    """

    def __init__(self, make: Callable[[], ReplayBuffer]) -> None:
        self.storage = storage = make()
        """What it owns."""
        refuse_what_no_shard_can_be(type(storage), vars(storage))
        self._identity = uuid.uuid4().hex

    def exchange(
        self, updates: Sequence[Update], progress: tuple[int, int] | None, batches: int, batch_size: int
    ) -> Reply:
        """Let errors of updates count, and then draw batches.

        Args:
            updates: of earlier batches; errors of rows that were overwritten since are left out, and updates of
                batches that another shard drew, which this one replaces.
            progress: of the run, as ``set_progress`` takes it; None where it is as before.
            batches: how many to draw.
            batch_size: rows of each.
        """
        for update in updates:
            if update.identity == self._identity and (priorities := self.storage.priorities) is not None:
                priorities.update(update.transitions, update.errors)
        if progress is not None:
            self.storage.set_progress(*progress)
        summary, drawn = self.summary(), list[Batch]()
        if batches and summary.mass.rows:
            try:
                drawn = list(self.storage.generate_batches(batches, batch_size))
            except EmptyStorageError:
                # A storage of whole episodes has none until one has ended.
                summary = summary._replace(mass=Mass(0, 0.0))
        return Reply(summary, pack(drawn))

    def insert_data_slice(self, data: Mapping[str, Any]) -> int:
        """Store a slice, with ERRORS where the collector computed some; returns how many transitions are stored."""
        self.storage.insert_data_slice(data)
        return len(self.storage)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the storage."""
        return getattr(self.storage, method)(*arguments)

    def process_id(self) -> int:
        """The process that it lives in."""
        return os.getpid()

    def summary(self) -> Summary:
        """What the shard holds now."""
        storage = self.storage
        # The priorities are made with the mass.
        mass = storage.mass
        return Summary(
            self._identity,
            mass,
            None if storage.priorities is None else getattr(storage.sequences, "eta", 1.0),
            len(storage),
            storage.inserted,
            storage.capacity,
            storage.num_envs,
            storage.nbytes,
        )


def factory_of_shard(factory: Factory[Any], number: int, of: int) -> Factory[Any]:
    """Return the factory of one of several shards that together hold what one storage would.

    ``size`` and ``max_bytes`` are divided, rounded up; ``directory`` becomes ``directory/shard-<number>``.

    Args:
        factory: of the whole.
        number: of the shard, from 0.
        of: how many there are.

    Raises:
        ValueError: it is no storage that shards are made of, or there is no such shard.
    """
    if not 0 <= number < of:
        raise ValueError(f"factory_of_shard: number must lie in [0, {of}), got {number}")
    given = factory.hyper_parameters
    refuse_what_no_shard_can_be(factory.cls, given)
    parts: dict[str, Any] = {
        name: -(-given[name] // of) for name in ("size", "max_bytes") if given.get(name) is not None
    }
    if given.get("directory") is not None:
        parts["directory"] = directory_of_shard(given["directory"], number)
    factory.cls.check_hyper_parameters({**given, **parts})
    return Factory(factory.cls, {**given, **parts})


def directory_of_shard(directory: str | Path, number: int) -> Path:
    """Where one of several shards is kept that together hold what the storage of a directory would."""
    return Path(directory) / f"shard-{number}"


def refuse_what_no_shard_can_be(cls: type[Any], hyper_parameters: Mapping[str, Any]) -> None:
    """Refuse a storage whose batches are no part of those of a larger one.

    Args:
        cls: of the storage.
        hyper_parameters: of the storage.

    Raises:
        ValueError: the message names what stands against it.
    """
    name = cls.__name__
    if not issubclass(cls, ReplayBuffer):
        raise ValueError(f"{name}: only replay storages, such as PERBuffer, can be shards")
    rate_limit = hyper_parameters.get("rate_limit")
    if rate_limit is not None:
        raise ValueError(
            f"{name}: rate_limit={rate_limit} would be one of each shard; leave it out, and let what runs collectors "
            f"and learner say how fast they go"
        )
    if issubclass(cls, PersistentEpisodicBuffer):
        raise ValueError(
            f"{name}: what it draws from changes with the segments that are in memory, not with all that it holds; use "
            f"PERBuffer with directory="
        )
    if hyper_parameters.get("eta", 1.0) < 1 or hyper_parameters.get("adapt_eta", False):
        raise ValueError(
            f"{name}: the newest transitions of each shard are not the newest of all; give it eta=1, or use PERBuffer"
        )
