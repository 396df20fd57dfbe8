"""Replay of whole episodes on disk, for data larger than memory."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from storages.component.declared import parameter
from storages.component.hyper_parameters import Count, WholeCount
from storages.core.parts import Rows
from storages.core.ring.ring import Ring
from storages.episode import Episode
from storages.errors import EmptyStorageError
from storages.off_policy.per_buffer import PERBuffer
from storages.persistent.episodes.episode_log import EpisodeLog
from storages.persistent.episodes.episode_store import EpisodeStore
from storages.persistent.episodes.memory_plan import MemoryBudget
from storages.persistent.episodes.segment_cache import SegmentCache
from storages.protocols import Environments, StorageLog
from storages.saving import undoing_changes
from storages.sequence_settings import Episodes
from storages.transition import INDICES, Batch, Sample


class PersistentEpisodicBuffer(PERBuffer):
    """Replay of whole episodes on disk, in a zarr group, with a cache of episodes in memory.

    An episode can be drawn once it has ended or was interrupted, or once it is so long that it is stored in pieces:
    longer than ``size``, or than a small part of ``memory_bytes``. Until then, the storage is empty.
    :mod:`storages.persistent` describes the files, what survives a killed process, and how damage is reported; running
    episodes are logged, and continue if the same environments do.

    If all episodes fit into ``memory_bytes``, batches are those of :class:`PERBuffer`, over episodes in the order in
    which they ended. Otherwise batches are drawn from the episodes in memory, and segments of episodes are exchanged:
    one for 8 draws of each of its transitions. New episodes are in memory at once. After that, each pass loads every
    segment once, in random order, and evicts the segment loaded first: over whole passes, transitions are drawn
    uniformly (or episodes, for batches of episodes); within a batch, uniformly from memory. Priorities and importance
    weights are relative to the transitions in memory; the errors of the others are kept, at four bytes each, which do
    not count towards ``memory_bytes``. The rows of a batch follow from the seed alone.

    Sequences begin at any step; ``across_episodes`` continues into the episode that ended next. A piece of an episode
    is not whole; ``Episodes(whole=False)`` draws pieces too.

    A buffer made again with the same directory holds the same episodes. Counters and the random generator are those of
    the last commit, errors those of the last :meth:`flush` or :meth:`close`. Stored transitions cannot be overwritten.

    Args:
        size: capacity in transitions of all environments together, unlike the steps of storages in memory; beyond it,
            the oldest episodes are dropped, each as a whole. A longer episode is stored in pieces of at most ``size``,
            which are dropped like episodes: with 10, of one of 25 steps the last 5 stay. None for no bound.
        directory: directory of the buffer.
        size_bytes: bytes on disk, beyond which the oldest segments of episodes are dropped; None for no bound.
        memory_bytes: bytes of memory for cached episodes. None for as many as ``size`` takes, or 1 GiB.
        read_only: only sample from a directory to which another process may be writing; see :meth:`refresh`.
        ancestor: directory of another such buffer, whose episodes precede its own. They are read in place and not
            changed; episodes added there later are not seen here, and those dropped there are lost here, with a
            warning. Its present place where it was moved; where both were moved together, it is found.
    """

    size: WholeCount | None = parameter(kw_only=False)
    directory: str | Path = parameter(kw_only=False, after="size")
    size_bytes: WholeCount | None = None
    memory_bytes: WholeCount | None = None
    read_only: bool = False
    ancestor: str | Path | None = None
    prefetch: ClassVar[int] = 0  # type: ignore[misc]
    keep_on_device: ClassVar[bool] = False  # type: ignore[misc]
    draws: ClassVar[Literal["with replacement"]] = "with replacement"  # type: ignore[misc]
    max_bytes: ClassVar[None] = None  # type: ignore[misc]
    count_draws: ClassVar[bool] = False  # type: ignore[misc]

    unchangeable = frozenset({"size_bytes", "memory_bytes", "read_only", "ancestor", "prioritization"})
    stores_slices_whole = False
    example = 'size=100_000, directory="episodes"'
    holds_only_whole_episodes = True
    # Segments are immutable, and a change in the cache alone would be lost with the next exchange of segments.
    takes_newer_states = False

    def make_log(self, envs: Environments | None) -> StorageLog:
        """Make the store of episodes on disk, the cache in memory, and the log of both."""
        episodes = self.sequences if isinstance(self.sequences, Episodes) else None
        self._segment_cache = SegmentCache(self.ring, self._prioritized, self._tracker)
        self.observers.add(self._segment_cache)
        self._directory = EpisodeStore(
            Path(self.directory).absolute(),
            self.ring,
            self._segment_cache,
            MemoryBudget(type(self).__name__, self.size, self.memory_bytes, episodes, self.prioritization == "rank"),
            self.size_bytes,
            durable=self.durable,
            read_only=self.read_only,
        )
        self.insertion.memtable = self._directory.writable
        return EpisodeLog(self, self._directory, envs)

    def make_ring(self, envs: Environments | None) -> Ring:
        """Make a ring of whole episodes, one after the other; the first transition determines its capacity."""
        return Ring(
            0,
            type(self).__name__,
            1,
            self.allow_nonfinite,
            stacked_frames=getattr(envs, "stacked_frames", 0),
        )

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse an ancestor that is the directory itself, or given with ``read_only``, too."""
        size = hyper_parameters.get("size")
        size = sys.maxsize if size is None else size
        super().check_hyper_parameters({**hyper_parameters, "size": size})
        ancestor, directory = hyper_parameters["ancestor"], hyper_parameters.get("directory")
        if ancestor is not None and directory is not None and Path(ancestor).absolute() == Path(directory).absolute():
            raise ValueError(f"{cls.__name__}: ancestor must be another directory than directory={directory!r}")
        if hyper_parameters["read_only"] and ancestor is not None:
            raise ValueError(
                f"{cls.__name__}: read_only=True takes the ancestor that {directory} has; leave out ancestor="
            )

    # Calls of collectors and learners

    def init_tensors(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a sample, without storing it; otherwise the first insertion fixes them."""
        self._directory.init_columns(sample)

    def insert_transition(self, sample: Sample, envs: Sequence[int] | None = None) -> None:
        """Store one step as :meth:`Storage.insert_transition`; episodes that it ends can be drawn from then on.

        Buffered transitions of a subset of the environments are not in the directory yet; :meth:`add_episode` stores an
        episode of one environment at once.

        Raises:
            RateLimitError: ``rate_limit`` allows no insertion now.
            PersistenceError: as of the base class, or the buffer is read only.
        """
        if envs is not None:
            insert = PersistentEpisodicBuffer.insert_transition
            self.insertion.insert_in_part(sample, envs, lambda step: insert(self, step))
            return
        if self.insertion.staging is not None:
            self.insertion.staging.refuse(self.ring, sample)
        if self.rate_limiter is not None:
            self.rate_limiter.before_insert(self.ring, sample)
        self._prioritized.settle()
        self._count(self._directory.insert(sample, self.extra_state))

    def _count(self, inserted: int) -> None:
        self.inserted += inserted
        if self.rate_limiter is not None:
            # The ring has one environment, so that its steps are transitions.
            self.rate_limiter.after_insert(self.ring, inserted)

    def end_episode(self, envs: Sequence[int] | None = None) -> None:
        """Truncate running episodes as :meth:`Storage.end_episode`; they can be drawn from then on.

        Raises:
            PersistenceError: the buffer is read only.
        """
        numbers = self.insertion.end_episodes(envs, self.num_envs)
        self._prioritized.settle()
        self._directory.end_episodes(numbers)

    def add_episode(self, episode: Episode) -> None:
        """Store a whole episode; it is on disk with the next :meth:`flush`, or when its segment is full.

        A ``rate_limit`` counts it, but does not refuse it.

        Raises:
            SampleError: it does not fit the stored episodes.
            PersistenceError: earlier ones could not be written, or the buffer is read only, or the episode is too long.
        """
        self._prioritized.settle()
        self._directory.add_episode(episode, self.extra_state)
        self._count(len(episode))

    def reset(self) -> None:
        """Drop all episodes, also on disk; keep the allocated memory."""
        self.insertion.stage(None)
        self._prioritized.settle()
        self._directory.reset(self.extra_state)
        self.flush()

    def draw_rows(self, batch_size: int, update: int = 1, updates: int = 1) -> Rows:
        """Draw rows from the cache, after exchanging the segments that are due."""
        cache = self._segment_cache
        if cache.holds_all:
            return super().draw_rows(batch_size, update, updates)
        self._directory.refill(self._generator)
        rows = super().draw_rows(batch_size, update, updates)
        cache.drawn(int(self.window.lengths(rows.transitions).sum()))
        return rows

    # The newest steps

    def keep_newest_steps(self, steps: int) -> None:
        """Keep at least so many steps in memory, also of finished episodes, for :meth:`newest_steps`."""
        memtable = self._directory.writable()
        memtable.newest = max(memtable.newest, steps)

    def newest_steps(self, steps: Count) -> Batch:
        """Return the newest steps of all environments, also of running episodes, as a batch of sequences.

        Finished episodes give only the steps that :meth:`keep_newest_steps`, or an earlier call, keeps in memory.
        Indices are -1: errors of these steps are not priorities, which episodes have only when they can be drawn.

        Raises:
            EmptyStorageError: no step was inserted.
            PersistenceError: the buffer is read only, or closed.
        """
        self.keep_newest_steps(steps)
        ring = self._directory.writable().ring
        if not ring.live_steps:
            raise EmptyStorageError(f"{type(self).__name__}: no steps are in memory; insert transitions first")
        batch = self._newest(ring, steps)
        batch[INDICES].fill_(-1)
        return batch

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Add the batch's mean age, 0 of the newest steps, and the replay ratio to the metrics; update the sampler."""
        metrics = super().after_gradients(batch, info)
        # The indices -1 give an age of all steps. A product does not wait for a device.
        age = metrics["storage/row_age"]
        metrics["storage/row_age"] = age * (age < self.ring.steps)
        return metrics

    # Whole episodes

    def episodes(self, *, whole: bool = False) -> Iterator[Episode]:
        """Iterate over all stored episodes, oldest first, reading them from disk segment by segment.

        Running episodes are not included. Each piece of a long episode is yielded as an episode.

        Args:
            whole: leave out pieces and interrupted episodes.

        Raises:
            DamageError: one cannot be read; the message names the file and the episodes.
        """
        return self._directory.episodes(whole=whole)

    def refresh(self) -> None:
        """Load the segments that another process has written since; only for ``read_only`` buffers.

        Episodes that no segment holds yet are not loaded, even if they are committed;
        :func:`storages.datasets.open_dataset` reads these too.

        Raises:
            ValueError: the buffer is not ``read_only``.
            PersistenceError: the buffer was closed.
            DamageError: stored data is corrupt.
        """
        if not self.read_only:
            raise ValueError(f"{type(self).__name__}: only a buffer with read_only=True is refreshed")
        self._directory.refresh(self._generator)

    # State

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than transitions and their errors, as JSON-serialisable data."""
        return super().extra_state() | self._directory.state()

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; episodes on disk and the memtable are restored already."""
        saved = state.get("priorities")
        if self.ring.layout:
            self._directory.hold(state, self._generator)
            if saved is not None:
                saved = {**saved, "errors": torch.from_numpy(self._segment_cache.known_errors())}
        # The oldest transition in memory always begins an episode, so the saved start does not apply.
        super().load_extra_state({**state, "priorities": saved, "episodes_begun": None})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned: later episodes are dropped, and the next batch is the same.

        Raises:
            PersistenceError: the directory does not have the commit; nothing was changed.
            ValueError: the state is one of another kind of storage.
        """
        if "archive" not in state:
            raise ValueError(
                f"{type(self).__name__}: the state refers to no directory of episodes; to copy a storage of another "
                f"kind, use insert_data_slice(get_all_buffer_data())"
            )
        with undoing_changes(self):
            self._load_changes(state)
            self.roll_back(state)
            if self._directory.memtable is not None:
                self.insertion.load_state_dict(state, self._directory.memtable.ring)

    # Hyper-parameters and size

    def __len__(self) -> int:
        """Number of transitions of finished episodes, in memory or not."""
        return self._directory.live_range.stored

    @property
    def capacity(self) -> int:
        """Number of transitions that fit; ``sys.maxsize`` where there is no bound."""
        return sys.maxsize if self.size is None else self.size

    @property
    def num_envs(self) -> int:
        """Number of environments, the transitions in an inserted step; 0 before it is known."""
        memtable = self._directory.memtable
        return 0 if memtable is None else memtable.ring.num_envs or 0

    def _use_parameters(self) -> None:
        """Pass the current hyper-parameters on to the parts, those of running episodes included."""
        super()._use_parameters()
        if self._directory.memtable is not None:
            self._directory.memtable.ring.allow_nonfinite = self.allow_nonfinite

    def _refuse_if_empty(self) -> None:
        if self.ring.layout and len(self) == 0:
            raise EmptyStorageError(
                f"{type(self).__name__}: no episode has ended yet, and batches hold finished episodes only; insert "
                f"transitions until one ends, or start updates later"
            )
        super()._refuse_if_empty()

    def __repr__(self) -> str:
        bound = "any number of" if self.size is None else self.size
        last = "read-only" if self.read_only else f"{self.num_envs} environments"
        return f"{type(self).__name__}({len(self)} of {bound} transitions, {self.ring.live_steps} in memory, {last})"
