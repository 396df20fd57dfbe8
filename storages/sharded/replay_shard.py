"""One shard of a sharded replay: a storage that sends sampled batches to a learner in another process."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from storages.component.factory import Factory
from storages.core.parts import Mass
from storages.errors import EmptyStorageError
from storages.off_policy.persistent_episodic_buffer import PersistentEpisodicBuffer
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded.packed_batches import PackedBatches, PackedLayout, pack, pack_into
from storages.sharded.shared_memory import OpenedPieces, Place
from storages.transition import Batch

T = TypeVar("T")


class Summary(NamedTuple):
    """State of a shard that a learner needs in order to sample from several shards as from one storage."""

    identity: str
    """Unique id of the :class:`ReplayShard`; a replacement has another one."""
    mass: Mass
    """Number of rows and sum of priorities, among others."""
    eta: float | None
    """Weight of the largest error in the error of a sequence (R2D2); None if the shard has no priorities."""
    transitions: int
    """Number of stored transitions."""
    inserted: int
    """Number of transitions that were ever inserted."""
    capacity: int
    num_envs: int
    nbytes: int


class ShardReply(NamedTuple):
    """A shard's answer to :meth:`ReplayShard.exchange`."""

    summary: Summary
    """State of the shard when the batches were sampled."""
    batches: PackedBatches
    """The requested batches; none if the shard is empty."""
    layout: PackedLayout | None = None
    """Of the batches that lie in shared memory, and not in ``batches``; None if there are none."""
    release: Callable[[], None] | None = None
    """Called by the learner when it has copied the batches out of shared memory."""


class Update(NamedTuple):
    """New errors of rows that a shard sampled."""

    identity: str
    """Identity of the shard that sampled them; a replacement ignores the update."""
    transitions: NDArray[np.int64]
    """(N,): the shard's numbers of the first transitions of the rows."""
    errors: NDArray[np.floating]
    """(N,): errors of the rows; that of a sequence or episode combines the errors of its steps."""


class ReplayShard:
    """Owns a storage, and executes the calls of a learner and of collectors in other processes.

    Batches are on the CPU; the learner moves them to its device. The object is not thread-safe.

    Args:
        make: makes the storage; one with a directory is restored from it.

    Raises:
        ValueError: the storage is of a kind that cannot be a shard.
    """

    def __init__(self, make: Callable[[], ReplayBuffer]) -> None:
        self.storage = storage = make()
        """The storage of the shard."""
        check_shardable(type(storage), vars(storage))
        self._identity = uuid.uuid4().hex
        self._opened = OpenedPieces()

    def exchange(
        self,
        updates: Sequence[Update],
        progress: tuple[int, int] | None,
        batches: int,
        batch_size: int,
        place: Place | None = None,
    ) -> ShardReply:
        """Update priorities, and then sample batches.

        Args:
            updates: new errors of earlier batches; those of rows that were overwritten since, or that another shard
                at this position sampled before it died, are ignored.
            progress: arguments of ``set_progress``; None if they are unchanged.
            batches: number of batches to sample.
            batch_size: rows of each batch.
            place: shared memory for the batches; they are sent where None, and where it is too small or cannot be
                mapped.
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
                # A storage that samples whole episodes has no rows until one has ended.
                summary = summary._replace(mass=Mass(0, 0.0))
        memory = self._opened.memory_at(place) if place is not None and drawn else None
        layout = None if memory is None else pack_into(memory, drawn)
        return ShardReply(summary, pack(drawn) if layout is None else [], layout)

    def insert_data_slice(self, data: Mapping[str, Any]) -> int:
        """Store a slice, with ERRORS if the collector computed them; return the number of stored transitions."""
        self.storage.insert_data_slice(data)
        return len(self.storage)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the storage."""
        return getattr(self.storage, method)(*arguments)

    def process_id(self) -> int:
        """Return the id of the process of the shard."""
        return os.getpid()

    def summary(self) -> Summary:
        """Return the present summary."""
        storage = self.storage
        # First, because reading the mass creates the priorities.
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
    """Return the factory of one shard of a storage that is divided into ``of`` shards.

    ``size`` and ``max_bytes`` are divided, rounded up; ``directory`` becomes ``directory/shard-<number>``.

    Args:
        factory: factory of the undivided storage.
        number: number of the shard, from 0.
        of: number of shards.

    Raises:
        ValueError: the storage is of a kind that cannot be a shard, or ``number`` is out of range.
    """
    if not 0 <= number < of:
        raise ValueError(f"factory_of_shard: number must lie in [0, {of}), got {number}")
    given = factory.hyper_parameters
    check_shardable(factory.cls, given, of)
    parts: dict[str, Any] = {
        name: -(-given[name] // of) for name in ("size", "max_bytes") if given.get(name) is not None
    }
    if given.get("directory") is not None:
        parts["directory"] = directory_of_shard(given["directory"], number)
    factory.cls.check_hyper_parameters({**given, **parts})
    return Factory(factory.cls, {**given, **parts})


def directory_of_shard(directory: str | Path, number: int) -> Path:
    """Return the directory of one shard of a storage with a directory."""
    return Path(directory) / f"shard-{number}"


def check_shardable(cls: type[Any], hyper_parameters: Mapping[str, Any], of: int | None = None) -> None:
    """Refuse a storage that cannot be a shard, because its sampling depends on the transitions of all shards.

    Args:
        cls: class of the storage.
        hyper_parameters: hyper-parameters of the storage.
        of: number of shards among which they are to be divided; None where they are those of a shard.

    Raises:
        ValueError: it cannot be a shard; the message says why.
    """
    name = cls.__name__
    if not issubclass(cls, ReplayBuffer):
        raise ValueError(f"{name}: only replay storages, such as PERBuffer, can be shards")
    rate_limit = hyper_parameters.get("rate_limit")
    if rate_limit is not None:
        raise ValueError(
            f"{name}: rate_limit={rate_limit} would apply to each shard on its own; leave it out, and limit the rates "
            f"of collection and learning where both are scheduled"
        )
    if issubclass(cls, PersistentEpisodicBuffer):
        size = hyper_parameters.get("size")
        share = "its share" if size is None or of is None else f"{-(-size // of):,} of the {size:,} transitions"
        raise ValueError(
            f"{name}: it draws from the segments in memory, which change, and not from all that it holds; use "
            f"PERBuffer with directory=, of which each shard holds {share} in memory, on a machine that has as much"
            f"{_memory_here()}. For more than fits into the memory of all machines, leave {name} undivided, in one "
            f"process"
        )
    if hyper_parameters.get("eta", 1.0) < 1 or hyper_parameters.get("adapt_eta", False):
        raise ValueError(
            f"{name}: the newest transitions of each shard are not the newest of all; give it eta=1, or use PERBuffer"
        )


def _memory_here() -> str:
    """Return the memory of this machine in a parenthesis; nothing where the operating system does not tell."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return ""
    return f" (this one has {total / 2**30:.0f} GiB)"
