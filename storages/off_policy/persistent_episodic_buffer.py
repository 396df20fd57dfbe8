"""Whole episodes on disk: data larger than memory, sampled as if it were in memory."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import Count
from storages.core.parts import Rows, Window
from storages.core.ring.ring import Ring
from storages.core.ring.validation import checked_environments
from storages.core.windows.segments import EpisodeWindow, SequenceWindow
from storages.episode import Episode
from storages.off_policy.per_buffer import PERBuffer
from storages.persistent.episodes.episode_log import EpisodeLog
from storages.persistent.episodes.episode_store import EpisodeStore
from storages.persistent.episodes.memory_plan import MemoryBudget
from storages.persistent.episodes.segment_cache import SegmentCache
from storages.protocols import Environments, StorageLog
from storages.storage import EmptyStorageError
from storages.transition import Sample
from storages.windows import Episodes, Sequences


@with_hyper_parameters
class PersistentEpisodicBuffer(PERBuffer):
    """Replay of whole episodes on disk, in a zarr group, of which as many as fit are in memory.

    An episode can be drawn once it ended, was broken off, or is so long that it is kept in pieces: longer than
    ``size``, or than a small part of ``memory_bytes``. Before that, the storage is empty. :mod:`storages.persistent`
    says what is on disk, what remains of a process that is killed, and how damage is reported; running episodes are
    logged, and go on where the same environments do.

    Where ``memory_bytes`` hold all episodes, batches are those of :class:`PERBuffer`, of episodes in the order in which
    they ended. Else they are drawn from the episodes in memory, which are exchanged: one segment of episodes for 8
    draws of each of its transitions. New episodes come into memory at once. Then, in each pass, every segment is loaded
    once, in an order drawn for the pass, and stays until as much as memory holds was loaded after it: over whole
    passes, every transition is as likely as any other, or every episode where batches are of episodes; within a batch,
    those in memory are. Priorities decide among the transitions in memory, and weights are relative to them; errors of
    the others are kept, four bytes for each transition beyond ``memory_bytes``. The rows of a batch follow from the
    seed alone.

    Sequences begin anywhere; ``across_episodes`` goes on into the episode that ended next. Of an episode that is kept
    in pieces, none is whole; ``Episodes(whole=False)`` draws each of them.

    Made again with the same directory, it holds the same episodes. Counters and the random generator are those of the
    last commit, errors those of the last :meth:`flush` or :meth:`close`. Stored transitions cannot be replaced.

    Args:
        size: transitions that stay, of all environments together, and not steps as of the storages in memory; beyond
            it, the oldest episodes go, each as a whole. An episode longer than this is kept in pieces of at most
            ``size``, which go as episodes do: with 10, of one of 25 steps the last 5 stay. None for no bound.
        directory: where it is kept.
        size_bytes: bytes on disk, beyond which the oldest segments of episodes go; None for no bound.
        memory_bytes: how much of memory it may take. None for as much as ``size`` takes, or 1 GiB.
        read_only: only sample from a directory to which another process may be writing; :meth:`refresh` follows it.
        ancestor: directory of another such buffer, whose episodes come before its own. They are read where they are,
            and not changed; episodes that are added there later are not seen here.
    """

    size: Count | None = parameter(kw_only=False)
    directory: str | Path = parameter(kw_only=False, after="size")
    size_bytes: Count | None = None
    memory_bytes: Count | None = None
    read_only: bool = False
    ancestor: str | Path | None = None
    prefetch: ClassVar[int] = 0  # type: ignore[misc]
    keep_on_device: ClassVar[bool] = False  # type: ignore[misc]
    draws: ClassVar[Literal["with replacement"]] = "with replacement"  # type: ignore[misc]
    max_bytes: ClassVar[None] = None  # type: ignore[misc]
    count_draws: ClassVar[bool] = False  # type: ignore[misc]

    unchangeable = PERBuffer.unchangeable | {"size_bytes", "memory_bytes", "read_only", "ancestor", "prioritization"}
    knows_newest_steps = False
    stores_slices_whole = False
    stores_steps_in_part = False

    def make_log(self, envs: Environments | None) -> StorageLog:
        """Make the store of all episodes, the cache of those in memory, and what keeps both in the directory."""
        episodes = self.sequences if isinstance(self.sequences, Episodes) else None
        self._segment_cache = SegmentCache(self._ring, self._prioritized, self._tracker)
        self.observe(self._segment_cache)
        self._directory = EpisodeStore(
            Path(self.directory).absolute(),
            self._ring,
            self._segment_cache,
            MemoryBudget(type(self).__name__, self.size, self.memory_bytes, episodes, self.prioritization == "rank"),
            self.size_bytes,
            durable=self.durable,
            read_only=self.read_only,
        )
        return EpisodeLog(self, self._directory, envs)

    def make_ring(self, envs: Environments | None) -> Ring:
        """Make a ring of whole episodes, one after the other; how many fit is known with the first transition."""
        return Ring(
            0,
            type(self).__name__,
            1,
            self.allow_nonfinite,
            stacked_frames=getattr(envs, "stacked_frames", 0),
        )

    def make_window(self) -> Window:
        """Make a window whose sequences begin anywhere, because every episode is whole."""
        if isinstance(self.sequences, Sequences):
            return SequenceWindow(self.sequences, self.make_steps(), only_whole=True)
        return super().make_window()

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse what cannot be kept, or read."""
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

    # What the learner calls

    def init_tensors(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a sample, which is not stored; the first insertion does so by itself."""
        self._directory.init_columns(sample)

    def insert_transition(self, sample: Sample, envs: Sequence[int] | None = None) -> None:
        """Store one step, a transition for each environment; episodes that it ends can be drawn from then on.

        Raises:
            ValueError: ``envs`` is given: :meth:`add_episode` stores what one environment alone did.
            SampleError: the sample does not fit; nothing of it was stored.
            RateLimitError: ``rate_limit`` allows no insertion now.
            PersistenceError: earlier steps could not be written to the directory, or it is read only; nothing of this
                one was stored.
        """
        if envs is not None:
            raise ValueError(
                f"{type(self).__name__}: a step is one of all environments, got envs={envs!r}; add_episode() stores an "
                f"episode of one of them"
            )
        if self.rate_limiter is not None:
            self.rate_limiter.before_insert(self._ring, sample)
        self._prioritized.settle()
        self._count(self._directory.insert(sample, self.extra_state))

    def _take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Leave errors of slices out: episodes are stored when they end, in another order than their steps came."""

    def _count(self, inserted: int) -> None:
        self._inserted += inserted
        if self.rate_limiter is not None:
            # The ring is of one environment.
            self.rate_limiter.after_insert(self._ring, inserted)

    def end_episode(self, envs: Sequence[int] | None = None) -> None:
        """End the running episodes of environments, as a limit does; they can be drawn from then on.

        Args:
            envs: numbers of the environments; all where None.

        Raises:
            IndexError: there is no such environment; nothing was changed.
            PersistenceError: the buffer is read only.
        """
        numbers = None if envs is None else checked_environments(envs, self.num_envs, type(self).__name__)
        self._prioritized.settle()
        self._directory.end_episodes(numbers)

    def add_episode(self, episode: Episode) -> None:
        """Store a whole episode; it is on disk with the next :meth:`flush`, or with a segment full of such.

        A ``rate_limit`` counts it, and does not refuse it.

        Raises:
            SampleError: it does not fit what is stored.
            PersistenceError: earlier ones could not be written, or the buffer is read only, or the episode is too long.
        """
        self._prioritized.settle()
        self._directory.add_episode(episode, self.extra_state)
        self._count(len(episode))

    def reset(self) -> None:
        """Drop all episodes, also on disk, and keep the memory."""
        self._prioritized.settle()
        self._directory.reset(self.extra_state)
        self.flush()

    def draw_rows(self, batch_size: int, update: int = 1, updates: int = 1) -> Rows:
        """Draw rows of what is in memory, after the segments that are due were exchanged."""
        cache = self._segment_cache
        if cache.holds_all:
            return super().draw_rows(batch_size, update, updates)
        self._directory.refill(self._generator)
        rows = super().draw_rows(batch_size, update, updates)
        cache.drawn(self._steps_of(rows))
        return rows

    def _steps_of(self, rows: Rows) -> int:
        """How many transitions a batch is made of."""
        if isinstance(self.window, EpisodeWindow):
            return int(self.window.lengths(rows.transitions).sum())
        each = self.sequences.length if isinstance(self.sequences, Sequences) else 1
        return each * len(rows.transitions)

    # Whole episodes

    def episodes(self, *, whole: bool = False) -> Iterator[Episode]:
        """All stored episodes, the oldest first, read from disk segment by segment.

        Those that run are not among them. One that was kept in pieces is several.

        Args:
            whole: leave out pieces, and those that were broken off.

        Raises:
            DamageError: one cannot be read; the text names the file and the episodes.
        """
        return self._directory.episodes(whole=whole)

    def refresh(self) -> None:
        """Take up what another process has written since; of a buffer that is ``read_only``.

        Raises:
            ValueError: it is not.
            PersistenceError: it was closed.
            DamageError: something that was written is not what is read.
        """
        if not self.read_only:
            raise ValueError(f"{type(self).__name__}: only a buffer with read_only=True is refreshed")
        self._directory.refresh(self._generator)

    # State

    def extra_state(self) -> dict[str, Any]:
        """State beside transitions and their errors: a few numbers, as JSON can keep them."""
        return super().extra_state() | self._directory.state()

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; episodes on disk and the memtable are restored already."""
        saved = state.get("priorities")
        if self._ring.layout:
            self._directory.hold(state, self._generator)
            if saved is not None:
                saved = {**saved, "errors": torch.from_numpy(self._segment_cache.known_errors())}
        # The oldest transition in memory always begins an episode, wherever it lay then.
        super().load_extra_state({**state, "priorities": saved, "episodes_begun": None})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned: the next batch is the same batch; later episodes are dropped.

        Raises:
            PersistenceError: the directory does not have it; nothing was changed.
            ValueError: it was saved of another kind of storage.
        """
        if "archive" not in state:
            raise ValueError(
                f"{type(self).__name__}: the state refers to no directory of episodes; of storages of other kinds, "
                f"insert_data_slice(get_all_buffer_data()) takes what they hold"
            )
        self.roll_back(state)

    # What anyone may ask

    def __len__(self) -> int:
        """Transitions of finished episodes, in memory or not."""
        return self._directory.live_range.stored

    @property
    def capacity(self) -> int:
        """Transitions that fit; more than there can be where there is no bound."""
        return sys.maxsize if self.size is None else self.size

    @property
    def num_envs(self) -> int:
        """Transitions in a step that is inserted; 0 before it is known."""
        memtable = self._directory.memtable
        return 0 if memtable is None else memtable.ring.num_envs or 0

    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the storage is in use; episodes that run follow.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range.
        """
        super().update_storage_parameter(name, value)
        if self._directory.memtable is not None:
            self._directory.memtable.ring.allow_nonfinite = self.allow_nonfinite

    def _refuse_if_empty(self) -> None:
        if self._ring.layout and len(self) == 0:
            raise EmptyStorageError(
                f"{type(self).__name__}: no episode has ended yet, and batches are made of those that have; insert "
                f"transitions until one does, or begin updates later"
            )
        super()._refuse_if_empty()

    def __repr__(self) -> str:
        bound = "any number of" if self.size is None else self.size
        return (
            f"{type(self).__name__}({len(self)} of {bound} transitions, {self._ring.live_steps} in memory, "
            f"{self.num_envs} environments)"
        )
