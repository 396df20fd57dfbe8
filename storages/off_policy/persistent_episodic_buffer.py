"""Whole episodes on disk: data larger than memory, sampled as if it were in memory."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from storages.checks import checked_environments
from storages.component.hyper_parameters import Count, InitialError, NonNegative, UnitIntervalOrSchedule
from storages.core.ring.layout import converted, leaves, nest
from storages.episode import Episode
from storages.errors import DamageError, PersistenceError
from storages.off_policy.episodic_replay import EpisodicReplay
from storages.off_policy.per_buffer import PERBuffer
from storages.persistent.episodes.cold_priorities import ColdPriorities
from storages.persistent.episodes.episode_batch import EpisodeBatch, columns_of
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.episodes.episode_store import EpisodeStore
from storages.persistent.episodes.markers import EpisodePosition, nothing_on_disk
from storages.persistent.episodes.memory_plan import MemoryPlan
from storages.persistent.episodes.memtable import Memtable
from storages.persistent.log.json_file import name_damage
from storages.persistent.replay.ring_log import close_at_exit
from storages.protocols import Discounting, Environments
from storages.storage import EmptyStorageError
from storages.transition import OBS, OBS2, RHS, RHS2, Leaf, Sample
from storages.windows import Episodes, Sequences

_STEPS_RUNNING = 1024
"""That there is room for at first."""


class _OneEnvironment:
    """What the ring is told: episodes lie in it one after the other, whichever environment they are of."""

    num_envs = 1

    def __init__(self, envs: Environments | None) -> None:
        self.stacked_frames = getattr(envs, "stacked_frames", 0)


class PersistentEpisodicBuffer(EpisodicReplay):
    """Replay of whole episodes that live on disk, in a zarr group, of which as much as fits is in memory.

    An episode goes into the buffer when it ends, is broken off, or gets so long that it is kept in pieces: longer than
    ``size``, or than a small part of ``memory_bytes``. Before the first has, there is nothing to draw. What is on disk,
    what of a process that is killed is still there, and what is said of damage, is as :mod:`storages.persistent`
    promises; episodes that run are logged and go on where the same environments do.

    Where ``memory_bytes`` hold all of it, batches are those of :class:`PERBuffer`, of episodes in the order in which
    they ended. Where not, batches are drawn from what is in memory, which is exchanged all the time, a segment of
    episodes for each 8 draws of each of its transitions. What is new comes into memory at once. Then, in each pass,
    every segment comes back once, in an order drawn for the pass, and stays until as much as memory holds came after
    it: over whole passes, every transition is as likely as any other, or every episode where batches are of such;
    within a batch, those in memory are. Priorities decide among what is in memory, and weights are relative to that;
    errors of the rest are kept, four bytes for each transition beyond ``memory_bytes``. Which rows a batch holds
    follows from the seed alone.

    Made again with the same directory, it holds the same episodes. Counters and the random generator are those of the
    last commit, errors those of the last :meth:`flush` or :meth:`close`.

    Args:
        size: transitions that stay, of all environments together, and not steps as of the storages in memory; beyond
            it, the oldest episodes go, each as a whole. An episode longer than this is kept in pieces of at most
            ``size``, which go as episodes do: with 10, of one of 25 steps the last 5 stay. None for no bound.
        directory: where it is kept.
        n_step: rewards in a return.
        epsilon: added to errors; with 0, a transition without an error is not drawn any more.
        alpha: 0 draws uniformly; 1 in proportion to errors.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; it counts as at most the largest error of any
            update so far, once there is one. "largest": that one. "first": such transitions are drawn before others.
        weights_over: what the largest weight is 1 of: all that is in memory ("stored"), or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority instead of independently.
        sequences: make batches of sequences of steps, time first, or of whole episodes, instead of single transitions.
            Sequences begin anywhere; ``across_episodes`` goes on into the episode that ended next. Of an episode that
            is kept in pieces, none is whole; ``Episodes(whole=False)`` draws each of them.
        transforms: what becomes of fields of a batch on the device, as augmentation: see :mod:`storages.transforms`.
        size_bytes: bytes on disk, beyond which the oldest segments of episodes go; None for no bound.
        memory_bytes: how much of memory it may take. None for as much as ``size`` takes, or 1 GiB.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut, too, and not only the death of the process.
        read_only: only sample from what another process may be writing; :meth:`refresh` takes up what is new.
        ancestor: directory of another such buffer, whose episodes come before its own. They are read where they are,
            and not changed; episodes that are added there later are not seen here.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    unchangeable = PERBuffer.unchangeable | {"size_bytes", "memory_bytes", "read_only", "ancestor"}
    stores_slices_whole = False

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count | None,
        directory: str | Path,
        n_step: Count = 1,
        epsilon: NonNegative = 0.0,
        alpha: UnitIntervalOrSchedule = 0.0,
        beta: UnitIntervalOrSchedule = 1.0,
        default_error: InitialError = 1_000_000.0,
        *,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | Episodes | None = None,
        transforms: Mapping[str, Any] | None = None,
        size_bytes: Count | None = None,
        memory_bytes: Count | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        read_only: bool = False,
        ancestor: str | Path | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        self._directory = EpisodeStore(
            Path(directory).absolute(),
            type(self).__name__,
            size=size,
            size_bytes=size_bytes,
            durable=durable,
            read_only=read_only,
            ancestor=None if ancestor is None else Path(ancestor).absolute(),
        )
        self._stacked_frames = getattr(envs, "stacked_frames", 0)
        self._told_envs = envs.num_envs if envs is not None else None
        self._cold = ColdPriorities()
        super().__init__(
            torch.device(device),
            actor,
            algorithm,
            _OneEnvironment(envs),
            1,
            n_step,
            epsilon,
            alpha,
            beta,
            default_error,
            weights_over=weights_over,
            stratified=stratified,
            sequences=sequences,
            transforms=transforms,
            allow_nonfinite=allow_nonfinite,
        )
        self.size = size  # type: ignore[assignment]
        self.directory, self.commit_every, self.durable = directory, commit_every, durable
        self.size_bytes, self.memory_bytes = size_bytes, memory_bytes
        self.read_only, self.ancestor = read_only, ancestor
        try:
            with self._named():
                self._open(self._directory.claim())
        except BaseException:
            self._let_go()
            raise
        close_at_exit(self)

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
        memtable = self._directory.writable()
        memtable.ring.init_columns(sample)
        self._begin_with(memtable)

    def insert_transition(self, sample: Sample) -> None:
        """Store one step, a transition for each environment; episodes that it ends can be drawn from then on.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            PersistenceError: earlier steps could not be written to the directory, or it is read only; nothing of this
                one was stored.
        """
        memtable = self._directory.writable()
        self._prioritized.settle()
        begins = self._segment_cache is None
        if not begins:
            self._let_go_of(self._directory.advance(self.extra_state))
        finished = memtable.insert(sample, self.extra_state)
        if begins:
            try:
                self._begin_with(memtable)
            except BaseException:
                # So that the same step can be inserted again.
                memtable.forget_first_step()
                raise
            finished += memtable.cut()
        for one in finished:
            self._add(memtable.batch(one), one)
        self._inserted += memtable.ring.envs

    def end_episode(self, envs: Sequence[int] | None = None) -> None:
        """End the running episodes of environments, as a limit does; they can be drawn from then on.

        Args:
            envs: numbers of the environments; all where None.

        Raises:
            IndexError: there is no such environment; nothing was changed.
            PersistenceError: the buffer is read only.
        """
        memtable = self._directory.writable()
        numbers = None if envs is None else checked_environments(envs, self.num_envs, type(self).__name__)
        if self._segment_cache is not None:
            self._prioritized.settle()
            for one in memtable.end_episodes(numbers):
                self._add(memtable.batch(one), one)

    def add_episode(self, episode: Episode) -> None:
        """Store a whole episode; it is on disk with the next :meth:`flush`, or with a segment full of such.

        Raises:
            SampleError: it does not fit what is stored.
            PersistenceError: earlier ones could not be written, or the buffer is read only, or the episode is too long.
        """
        memtable = self._directory.writable()
        self._prioritized.settle()
        if self._segment_cache is not None:
            self._let_go_of(self._directory.advance(self.extra_state))
        columns, length = columns_of(episode), len(episode)
        sample = nest({path: column[:1] for path, column in columns.items()})
        sample[OBS2] = nest({path: column[1:2] for path, column in columns.items() if path[0] == OBS})[OBS]
        if (RHS,) in columns:
            sample[RHS2] = columns[(RHS,)][1:2]
        if not self._ring.layout:
            envs = memtable.ring.num_envs or 1
            memtable.ring.init_columns(nest({path: np.repeat(leaf, envs, 0) for path, leaf in leaves(sample)}))
            self._begin_with(memtable)
        self._ring.init_columns(sample)
        depths = self._ring.stacked
        most = self._ring.size if memtable.longest is None else memtable.longest
        if length > most:
            raise PersistenceError(
                f"{type(self).__name__}: an episode of {length} steps is longer than the {most} transitions that fit; "
                f"make it with a larger size or memory_bytes"
            )
        layout, owner = self._ring.layout, type(self).__name__
        kept = {
            path: converted(column, path, layout[path].dtype, owner)
            for path, column in columns.items()
            if path[0] not in (OBS2, RHS2)
        }
        self._add(EpisodeBatch.of_episode(kept, depths, dict(episode.facts)), None)
        self._inserted += length

    def reset(self) -> None:
        """Empty, ready, memory kept; what is on disk is deleted."""
        directory, cache = self._directory, self._segment_cache
        directory.writable()
        self._prioritized.settle()
        if cache is None:
            return
        directory.reset(self.extra_state)
        cache.forget(directory.live_range.live)
        self._changed([], None)
        if self.priorities is not None:
            self.priorities.reset()
        self.flush()

    # Whole episodes

    def episodes(self, *, whole: bool = False) -> Iterator[Episode]:
        """All stored episodes, the oldest first, read from disk segment by segment.

        Those that run are not among them. One that was kept in pieces is several.

        Args:
            whole: leave out pieces, and those that were broken off.

        Raises:
            DamageError: one cannot be read; the text names the file and the episodes.
        """
        return self._directory.episodes(self._ring.layout, whole=whole)

    def refresh(self) -> None:
        """Take up what another process has written since; of a buffer that is ``read_only``.

        Raises:
            ValueError: it is not.
            PersistenceError: it was closed.
            DamageError: something that was written is not what is read.
        """
        if not self.read_only:
            raise ValueError(f"{type(self).__name__}: only a buffer with read_only=True is refreshed")
        self._take_up_new()

    # On disk

    @property
    def position(self) -> EpisodePosition:
        """Commit and manifest record of the last commit, as plain data that :meth:`roll_back` takes.

        Raises:
            PersistenceError: a commit that was begun could not be written.
        """
        return self._directory.position

    def roll_back(self, position: EpisodePosition) -> None:
        """Restore the episodes of a commit, and drop later ones.

        Counters and the random generator are those of the commit; errors, and which episodes are in memory, are not
        part of a commit: :meth:`load_state_dict` restores them too.

        Raises:
            PersistenceError: the directory does not have it; nothing was changed.
        """
        directory, state = self._directory, None
        if self.read_only:
            directory.look_back(position)
        else:
            directory.writable()
            if self._segment_cache is None:
                return
            directory.settle(self.extra_state)
            state = directory.roll_back(position)
        self._know_all_errors()
        assert directory.flush_queue is not None
        self._cold = self._cold.since(directory.flush_queue.archive.live)
        self._restore(state)

    def pin(self, position: EpisodePosition) -> None:
        """Keep what is needed to roll back to a commit, instead of what was pinned before.

        Raises:
            PersistenceError: the directory does not have it, or is read only.
        """
        self._directory.pin(position)
        self.flush()

    def flush(self) -> None:
        """Commit what there is, and wait until it is on disk.

        Raises:
            PersistenceError: it could not be written; what is in memory stays usable.
        """
        if not self.read_only:
            self._flush()

    def close(self) -> None:
        """Flush, and let others have the directory; what is in memory can still be drawn.

        Raises:
            PersistenceError: not everything could be written; the directory is let go all the same.
        """
        try:
            if self._directory.held:
                self._flush(last=True)
        finally:
            self._let_go()

    def __del__(self) -> None:
        directory = getattr(self, "_directory", None)
        if directory is not None and directory.memtable is not None:
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """Where in the directory, and what stands beside it: the random generator, errors, what is in memory.

        What it needs is kept until :attr:`states_kept` later ones were asked for; of a buffer that is ``read_only``,
        for as long as the process that writes keeps it.

        Raises:
            PersistenceError: not everything could be written.
        """
        state = self._state_read() if self.read_only else self._flush(pin=self.states_kept)
        live = self._directory.live_range.live
        count = self._directory.live_range.next - live if self.priorities is not None else 0
        return state | {"errors": torch.from_numpy(self._cold.get(live, count)), "errors_first": live}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be as of a state: the next batch is the same batch. What was written later is dropped.

        Raises:
            PersistenceError: the directory does not have it; nothing was changed.
            ValueError: it was saved of another kind of storage.
        """
        if "archive" not in state:
            raise ValueError(
                f"{type(self).__name__}: the state refers to no directory of episodes; of storages of other kinds, "
                f"insert_data_slice(get_all_buffer_data()) takes what they hold"
            )
        if self.read_only:
            self._directory.look_back(state)
            said: Mapping[str, Any] | None = state
        else:
            self._directory.writable()
            if self._segment_cache is None:
                self.load_extra_state(state)
                return
            self._directory.settle(self.extra_state)
            said = self._directory.roll_back(state)
        self._cold = ColdPriorities(state["errors_first"])
        self._cold.put(state["errors_first"], state["errors"].numpy())
        self._hold(None if said is None else {**said, "memory": state["memory"]})
        self.load_extra_state(state)

    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> None:
        """Refused: what is on disk does not change."""
        raise ValueError(
            f"{type(self).__name__}: {key} cannot be replaced, because what is on disk does not change; add_episode() "
            f"stores a changed episode as another one"
        )

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

    @property
    def nbytes(self) -> int:
        """Bytes of memory: what is in memory, what runs, what waits to be written, what is read ahead."""
        return super().nbytes + self._directory.nbytes

    def _refuse_if_empty(self) -> None:
        if self._segment_cache is not None and len(self) == 0:
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

    # Inside

    def extra_state(self) -> dict[str, Any]:
        """State beside transitions and their errors: a few numbers, as JSON can keep them."""
        return super().extra_state() | self._directory.state() | {"memory": None}

    def _flush(self, pin: int = 0, last: bool = False) -> dict[str, Any]:
        cache = self._segment_cache
        self._directory.writable()
        if cache is None:
            return self.extra_state() | nothing_on_disk()
        self._know_all_errors()
        known = None if self.priorities is None else self._cold
        return self._directory.flush(lambda: self.extra_state() | {"memory": cache.state()}, known, pin=pin, last=last)

    def _state_read(self) -> dict[str, Any]:
        assert self._segment_cache is not None
        self._know_all_errors()
        beside = self.extra_state() | {"memory": self._segment_cache.state()}
        return beside | self._directory.state_read()

    # Inside: opening

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Say of whom it is that something cannot be opened."""
        owner = type(self).__name__
        try:
            yield
        except DamageError:
            raise
        except PersistenceError as error:
            raise PersistenceError(f"{owner}: {str(error).removeprefix(f'{owner}: ')}") from None
        except OSError as error:
            raise PersistenceError(
                f"{owner}: {self._directory.folder} cannot be written: {error}; name another one"
            ) from error

    def _open(self, manifest: EpisodeManifest | None) -> None:
        directory, plan = self._directory, None
        if manifest is not None:
            plan = self._planned(manifest, self._told_envs or directory.kept_environments or 1)
        if not self.read_only:
            steps = _STEPS_RUNNING if plan is None else plan.running_steps
            directory.open_wal(self._told_envs, self._stacked_frames, self.allow_nonfinite, self.commit_every, steps)
        if manifest is None or plan is None:
            return
        self._make(manifest, plan)
        with name_damage(directory.folder):
            state = directory.recover()
            self._cold = directory.known_errors(state)
            self._restore(state)

    def _restore(self, state: Mapping[str, Any] | None) -> None:
        """Hold the episodes of the directory, whose last commit has this state beside it; None for no commit."""
        self._hold(state)
        self._cold.drop_from(self._directory.live_range.next)
        if state is not None:
            self.load_extra_state(state)

    def _begin_with(self, memtable: Memtable) -> None:
        """Make everything that needs to know what transitions look like; the ring of those that run does."""
        ring = memtable.ring
        plan = self._planned(EpisodeManifest(ring.layout, ring.stacked, 1, None, {}), ring.envs)
        manifest = EpisodeManifest.made(ring.layout, ring.stacked, plan.segment_rows)
        self._directory.write_manifest(manifest)
        self._make(manifest, plan)
        memtable.make_room(max(plan.running_steps, ring.live_steps))

    def _planned(self, manifest: EpisodeManifest, num_envs: int) -> MemoryPlan:
        episodes = self.sequences if isinstance(self.sequences, Episodes) else None
        try:
            return MemoryPlan.of(
                manifest.layout, manifest.stacked, num_envs, self.size, self.memory_bytes, _STEPS_RUNNING, episodes
            )
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from None

    def _let_go(self) -> None:
        if self._segment_cache is not None:
            self._segment_cache.close()
        self._directory.close()
