"""Whole episodes on disk: data larger than memory, sampled as if it were in memory."""

import bisect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from storages.core.fields import leaves, nest
from storages.core.priorities import Priorities
from storages.hyper_parameters import Count, NonNegative, UnitIntervalOrSchedule, Within
from storages.off_policy.per_buffer import PERBuffer
from storages.off_policy.replay_buffer import Rows
from storages.persistent.archive import Archive, Record
from storages.persistent.archive_manifest import ArchiveManifest
from storages.persistent.episode import Episode
from storages.persistent.errors import DamageError, PersistenceError
from storages.persistent.journal import Position
from storages.persistent.journalled_storage import close_at_exit
from storages.persistent.known_errors import KnownErrors
from storages.persistent.ledger import Ledger
from storages.persistent.lock import Lock
from storages.persistent.manifest import Manifest
from storages.persistent.memory_plan import MemoryPlan
from storages.persistent.opening import manifest_to_read, manifest_to_write
from storages.persistent.recording import Recording, columns_of
from storages.persistent.resident import Resident, Stretch
from storages.persistent.running import Finished, Running
from storages.persistent.segments import sync_directory
from storages.persistent.shelving import Shelving
from storages.sequences import Sequences
from storages.storage import Discounting, Environments
from storages.transition import OBS, OBS2, RHS, RHS2, Leaf, Sample

_RUNNING = "running"
_STEPS_RUNNING = 1024
"""That there is room for at first."""
_DRAWS_EACH = 8.0
"""How often a transition is drawn, on average, before another takes its place in memory."""


class _OneEnvironment:
    """What the ring is told: episodes lie in it one after the other, whichever environment they are of."""

    num_envs = 1

    def __init__(self, envs: Environments | None) -> None:
        self.stacked_frames = getattr(envs, "stacked_frames", 0)


class PersistentEpisodicBuffer(PERBuffer):
    """Replay of whole episodes that live on disk, in a zarr group, of which as much as fits is in memory.

    An episode goes into the buffer when it ends, is broken off, or gets so long that it is kept in pieces: longer than
    ``size``, or than a small part of ``memory_bytes``. Before the first has, there is nothing to draw. What is on disk,
    what of a process that is killed is still there, and what is said of damage, is as :mod:`storages.persistent`
    promises; episodes that run are journalled and go on where the same environments do.

    Where ``memory_bytes`` hold all of it, batches are those of :class:`PERBuffer`, of episodes in the order in which
    they ended. Where not, batches are drawn from what is in memory, which is exchanged all the time, a volume of
    episodes for each 8 draws of each of its transitions. What is new comes into memory at once. Then, in each pass,
    every volume comes back once, in an order drawn for the pass, and stays until as much came after it as memory holds:
    over whole passes, every transition is as likely as any other; within a batch, those in memory are. Priorities
    decide among what is in memory, and weights are relative to that; errors of the rest are kept, four bytes for each
    transition beyond ``memory_bytes``. Which rows a batch holds follows from the seed alone.

    Made again with the same directory, it holds the same episodes. Counters and the random generator are those of the
    last commit, errors those of the last :meth:`flush` or :meth:`close`.

    Args:
        size: transitions that stay; beyond it, the oldest episodes go. None for no bound.
        directory: where it is kept.
        n_step: rewards in a return.
        epsilon: added to errors; with 0, a transition without an error is not drawn any more.
        alpha: 0 draws uniformly; 1 in proportion to errors.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; "largest": the largest of any update so far.
        weights_over: what the largest weight is 1 of: all that is in memory ("stored"), or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority instead of independently.
        sequences: make batches of sequences of steps, time first, instead of single transitions. They begin anywhere.
            ``across_episodes`` goes on into the episode that ended next.
        size_bytes: bytes on disk, beyond which the oldest volumes of episodes go; None for no bound.
        memory_bytes: how much of memory it may take. None for as much as ``size`` takes, or 1 GiB.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut, too, and not only the death of the process.
        read_only: only sample from what another process may be writing; :meth:`refresh` takes up what is new.
        ancestor: directory of another such buffer, whose episodes come before its own. They are read where they are,
            and not changed; episodes that are added there later are not seen here.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    unchangeable = PERBuffer.unchangeable | {"size_bytes", "memory_bytes", "read_only", "ancestor"}

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
        default_error: Annotated[float, Within(0, open=True)] | Literal["largest"] = 1_000_000.0,
        *,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | None = None,
        size_bytes: Count | None = None,
        memory_bytes: Count | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        read_only: bool = False,
        ancestor: str | Path | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        self._folder = Path(directory).absolute()
        self._lock: Lock | None = None
        self._running: Running | None = None
        self._shelving: Shelving | None = None
        self._resident: Resident | None = None
        self._stacked_frames = getattr(envs, "stacked_frames", 0)
        self._told_envs = envs.num_envs if envs is not None else None
        self._known = KnownErrors()
        self._ledger = Ledger()
        super().__init__(
            device,
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
            allow_nonfinite=allow_nonfinite,
        )
        self.size = size  # type: ignore[assignment]
        self.directory, self.commit_every, self.durable = directory, commit_every, durable
        self.size_bytes, self.memory_bytes = size_bytes, memory_bytes
        self.read_only, self.ancestor = read_only, ancestor
        self._state_as_made = self._state_beside_the_ring()
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise
        close_at_exit(self)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse what cannot be kept, or read."""
        size = sys.maxsize if hyper_parameters["size"] is None else hyper_parameters["size"]
        super().check_hyper_parameters({**hyper_parameters, "size": size})
        ancestor, directory = hyper_parameters["ancestor"], hyper_parameters["directory"]
        if ancestor is not None and Path(ancestor).absolute() == Path(directory).absolute():
            raise ValueError(f"{cls.__name__}: ancestor must be another directory than directory={directory!r}")
        if hyper_parameters["read_only"] and ancestor is not None:
            raise ValueError(
                f"{cls.__name__}: read_only=True takes the ancestor that {directory} has; leave out ancestor="
            )

    # What the learner calls

    def init_tensors(self, sample: Sample) -> None:
        """Fix shapes and dtypes by a sample, which is not stored; the first insertion does so by itself."""
        running = self._open_running()
        running.ring.init_columns(sample)
        self._begin_with(running)

    def insert_transition(self, sample: Sample) -> None:
        """Store one step, a transition for each environment; episodes that it ends can be drawn from then on.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            PersistenceError: earlier steps could not be written to the directory, or it is read only; nothing of this
                one was stored.
        """
        running = self._open_running()
        shelving = self._shelving
        if shelving is not None:
            self._advance(running, shelving)
        finished = running.insert(sample, self._state_beside_the_ring)
        if shelving is None:
            self._begin_with(running)
            finished += running.cut()
        for one in finished:
            self._add(running.recording(one), one)
        self._inserted += running.ring.envs

    def add_episode(self, episode: Episode) -> None:
        """Store a whole episode; it is on disk with the next :meth:`flush`, or with a volume full of such.

        Raises:
            SampleError: it does not fit what is stored.
            PersistenceError: earlier ones could not be written, or the buffer is read only.
        """
        running = self._open_running()
        if self._shelving is not None:
            self._advance(running, self._shelving)
        columns, length = columns_of(episode), len(episode)
        sample = nest({path: column[:1] for path, column in columns.items()})
        sample[OBS2] = nest({path: column[1:2] for path, column in columns.items() if path[0] == OBS})[OBS]
        if (RHS,) in columns:
            sample[RHS2] = columns[(RHS,)][1:2]
        if not self._ring.layout:
            envs = running.ring.num_envs or 1
            running.ring.init_columns(nest({path: np.repeat(leaf, envs, 0) for path, leaf in leaves(sample)}))
            self._begin_with(running)
        self._ring.init_columns(sample)
        depths = self._ring.stacked
        most = self._ring.size if running.longest is None else running.longest
        if length > most:
            raise PersistenceError(
                f"{type(self).__name__}: an episode of {length} steps is longer than the {most} that fit; make it with "
                f"a larger size or memory_bytes"
            )
        kept = {path: column for path, column in columns.items() if path[0] not in (OBS2, RHS2)}
        self._add(Recording.of_episode(kept, depths, dict(episode.facts)), None)
        self._inserted += length

    def reset(self) -> None:
        """Empty, ready, memory kept; what is on disk is deleted."""
        running, shelving = self._open_running(), self._shelving
        if shelving is None or self._resident is None:
            return
        self._settle(running, shelving)
        running.reset()
        marks = running.begun.tolist()
        self._written(lambda: shelving.archive.begin_anew(marks, self._ledger.next))
        shelving.begin_anew()
        following = self._ledger.next
        self._ledger.begin(following, following)
        self._resident.forget(following)
        if self._priorities is not None:
            self._priorities.reset()
        self.flush()

    # Whole episodes

    def episodes(self) -> Iterator[Episode]:
        """All stored episodes, the oldest first, read from disk volume by volume.

        Those that run are not among them. One that was kept in pieces is several.

        Raises:
            DamageError: one cannot be read; the text names the file and the episodes.
        """
        if self._shelving is None:
            return
        layout = self._ring.layout
        for first, volume in sorted(self._shelving.volumes.items()):
            if volume.end > self._ledger.live:
                number = first
                for episode in self._shelving.read(volume).episodes(layout):
                    if number >= self._ledger.live:
                        yield episode
                    number += len(episode)
        for first, recording in list(self._shelving.loose()):
            if first >= self._ledger.live:
                yield from recording.episodes(layout)

    def refresh(self) -> None:
        """Take up what another process has written since; of a buffer that is ``read_only``.

        Raises:
            ValueError: it is not.
            DamageError: something that was written is not what is read.
        """
        if not self.read_only:
            raise ValueError(f"{type(self).__name__}: only a buffer with read_only=True is refreshed")
        shelving = self._shelving
        if shelving is None or self._resident is None:
            self._open_archive(manifest_to_read(self._folder))
            return
        known = set(shelving.volumes)
        shelving.archive.refresh()
        shelving.begin_anew()
        new = [volume for first, volume in sorted(shelving.volumes.items()) if first not in known]
        for volume in new:
            self._ledger.count(volume.first, volume.lengths.tolist())
        shelving.forget(shelving.archive.live)
        self._gone(self._ledger.let_go(shelving.archive.live))
        for volume in new:
            if volume.end > self._ledger.live:
                self._changed(*self._resident.add_volume(volume, self._ledger.live))

    # On disk

    @property
    def position(self) -> None:
        """There is none to be told apart from :meth:`state_dict`."""
        return

    def roll_back(self, position: Position) -> None:
        """Refused: :meth:`load_state_dict` does it, as of :meth:`state_dict`."""
        raise ValueError(f"{type(self).__name__}: load_state_dict(state) rolls back to what state_dict() said")

    def pin(self, position: Position) -> None:
        """Refused: :meth:`state_dict` does it."""
        raise ValueError(f"{type(self).__name__}: state_dict() keeps what is needed to roll back to it")

    def flush(self) -> None:
        """Commit what there is, and wait until it is on disk.

        Raises:
            PersistenceError: it could not be written; what is in memory stays usable.
        """
        if not self.read_only:
            self._flush(pin=False)

    def close(self) -> None:
        """Flush, and let others have the directory; what is in memory can still be drawn.

        Raises:
            PersistenceError: not everything could be written; the directory is let go all the same.
        """
        if self._lock is None or not self._lock.held:
            self._let_go()
            return
        try:
            if self._shelving is not None:
                self._shelving.close_volume(self._ledger.live)
            self._flush(pin=False, last=True)
        finally:
            self._let_go()

    def __del__(self) -> None:
        if getattr(self, "_running", None) is not None:
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """Where in the directory, and what stands beside it: the random generator, errors, what is in memory.

        What it needs is kept until two later ones were asked for.

        Raises:
            PersistenceError: not everything could be written, or the buffer is read only.
        """
        self._open_running()
        return self._flush(pin=True)

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
        running, shelving = self._open_running(), self._shelving
        if shelving is None:
            self._load_beside_the_ring(state)
            return
        self._settle(running, shelving)
        shelving.archive.refuse_unless_there(state["archive"])
        self._known = KnownErrors(state["errors_first"])
        self._known.put(state["errors_first"], state["errors"].numpy())
        said = running.roll_back(state["position"])
        shelving.archive.roll_back(state["archive"])
        shelving.begin_anew()
        self._hold(shelving, None if said is None else {**said, "memory": state["memory"]})
        self._load_beside_the_ring(state)

    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> None:
        """Refused: what is on disk does not change."""
        raise ValueError(
            f"{type(self).__name__}: {key} cannot be replaced, what is on disk does not change; add_episode() stores "
            f"episodes that are others"
        )

    # What anyone may ask

    def __len__(self) -> int:
        """Transitions of finished episodes, in memory or not."""
        return self._ledger.stored

    @property
    def capacity(self) -> int:
        """Transitions that fit; more than there can be where there is no bound."""
        return sys.maxsize if self.size is None else self.size

    @property
    def num_envs(self) -> int:
        """Transitions in a step that is inserted; 0 before it is known."""
        return 0 if self._running is None else self._running.ring.num_envs or 0

    @property
    def allow_nonfinite(self) -> bool:
        """Whether NaN and infinity are kept."""
        return self._ring.allow_nonfinite

    @allow_nonfinite.setter
    def allow_nonfinite(self, allow: bool) -> None:
        self._ring.allow_nonfinite = allow
        if self._running is not None:
            self._running.ring.allow_nonfinite = allow

    @property
    def nbytes(self) -> int:
        """Bytes of memory: what is in memory, what runs, what waits to be written, what is read ahead."""
        parts = [super().nbytes, self._known.nbytes]
        parts += [part.nbytes for part in (self._resident, self._shelving) if part is not None]
        return sum(parts) + (self._running.ring.nbytes if self._running is not None else 0)

    def __repr__(self) -> str:
        bound = "any number of" if self.size is None else self.size
        return (
            f"{type(self).__name__}({len(self)} of {bound} transitions, {self._ring.live_steps} in memory, "
            f"{self.num_envs} environments)"
        )

    # Inside: batches

    def _choose(self, batch_size: int, update: int, updates: int) -> Rows:
        resident = self._resident
        if resident is not None and not resident.is_everything:
            self._exchange(resident)
            resident.drawn(batch_size * (self.sequences.length if isinstance(self.sequences, Sequences) else 1))
        return super()._choose(batch_size, update, updates)

    def _where_to_begin(self, first: int) -> tuple[int, int]:
        # Every episode is whole, so a sequence may begin at any of its steps.
        return first, self._ring.end

    def _exchange(self, resident: Resident) -> None:
        while resident.due():
            changed = resident.bring(self._ledger.live, self._generator)
            if changed is None:
                return
            self._changed(*changed)

    # Inside: episodes come and go

    def _add(self, recording: Recording, journalled: Finished | None) -> None:
        assert self._shelving is not None
        assert self._resident is not None
        first = self._ledger.next
        self._ledger.count(first, recording.lengths.tolist())
        if self.size is not None:
            self._gone(self._ledger.keep(self.size))
        self._shelving.add(first, recording, journalled, self._ledger.live)
        self._changed(*self._resident.add(recording, first))

    def _gone(self, episodes: int) -> None:
        """So many of the oldest episodes are not live any more."""
        if episodes and self._shelving is not None and self._resident is not None:
            live = self._ledger.live
            self._changed(self._resident.drop_before(live, episodes), None)
            self._shelving.forget(live)
            self._known.drop_before(live)

    def _changed(self, gone: list[Stretch], came: Stretch | None) -> None:
        priorities, resident = self._priorities, self._resident
        if priorities is None or resident is None:
            return
        if not resident.is_everything:
            for at, first, count in gone:
                self._known.put(first, priorities.errors_of(at, at + count))
        left = (gone[0].at, gone[-1].at + gone[-1].steps) if gone else (0, 0)
        errors = np.zeros(0, np.float32) if came is None else self._known_or_initial(came, priorities)
        priorities.replace(left, 0 if came is None else came.at, errors)

    def _known_or_initial(self, stretch: Stretch, priorities: Priorities) -> Any:
        errors = self._known.get(stretch.first, stretch.steps)
        errors[np.isnan(errors)] = self._initial_error(priorities)
        return errors

    def _know_all_errors(self) -> None:
        if self._priorities is not None and self._resident is not None:
            for at, first, count in self._resident.merged():
                self._known.put(first, self._priorities.errors_of(at, at + count))

    # Inside: the disk

    def _advance(self, running: Running, shelving: Shelving) -> None:
        written = shelving.advance(running.journal.written)
        while shelving.is_full:
            running.journal.flush(running.ring, self._state_beside_the_ring(), None)
            shelving.settle(running.journal.written, only_the_first=True)
            written = True
        if written:
            running.release(shelving.unwritten())
            if self.size_bytes is not None:
                self._let_go_of_bytes(shelving, self.size_bytes)

    def _let_go_of_bytes(self, shelving: Shelving, most: int) -> None:
        volumes = sorted(shelving.volumes.items())
        total, place = sum(volume.nbytes for _, volume in volumes), 0
        while total > most and place < len(volumes) - 1:
            total -= volumes[place][1].nbytes
            place += 1
        if place:
            self._gone(self._ledger.let_go(volumes[place][0]))

    def _settle(self, running: Running, shelving: Shelving) -> None:
        shelving.close_volume(self._ledger.live)
        running.journal.flush(running.ring, self._state_beside_the_ring(), None)
        shelving.settle(running.journal.written)
        running.release(shelving.unwritten())

    def _flush(self, pin: bool, last: bool = False) -> dict[str, Any]:
        running, shelving = self._open_running(), self._shelving
        beside = self._state_beside_the_ring()
        if shelving is None or self._resident is None:
            return beside | _nothing_on_disk()
        if shelving.has_what_no_journal_has:
            shelving.close_volume(self._ledger.live)
        beside = self._state_beside_the_ring() | {"memory": self._resident.state()}
        running.journal.flush(running.ring, beside, None)
        shelving.settle(running.journal.written)
        running.release(shelving.unwritten())
        self._know_all_errors()
        archive = shelving.archive

        def write() -> None:
            if pin or self._ledger.live > archive.live:
                archive.note(self._ledger.live, shelving.marks_on_disk(), pin=pin)
            archive.manifest.tell_zarr(self._folder, archive.next_row, self.durable)
            if self._priorities is not None:
                self._known.write(self._folder, self._ledger.next)

        self._written(write)
        if last:
            running.journal.flush(running.ring, beside | {"marks": shelving.marks_on_disk()}, None, anew=True)
        if not pin:
            return {}
        running.journal.flush(running.ring, beside, None, pin=True)
        errors = self._known.get(
            self._ledger.live, self._ledger.next - self._ledger.live if self._priorities is not None else 0
        )
        return beside | {
            "position": dict(running.journal.position),
            "archive": dict(archive.record),
            "errors": torch.from_numpy(errors),
            "errors_first": self._ledger.live,
        }

    def _written(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            raise PersistenceError(
                f"{type(self).__name__}: {self._folder} cannot be written: {error}. What was committed there is safe; "
                f"make room, or give permission, and flush() again"
            ) from error

    def _state_beside_the_ring(self) -> dict[str, Any]:
        shelving = self._shelving
        return super()._state_beside_the_ring() | {
            "live": self._ledger.live,
            "unwritten": self._ledger.next if shelving is None else shelving.first_unwritten(self._ledger.next),
            "marks": [] if shelving is None else shelving.marks_on_disk(),
            "memory": None,
        }

    def _load_beside_the_ring(self, state: Mapping[str, Any]) -> None:
        saved = state.get("priorities")
        if saved is not None and self._resident is not None:
            known = np.concatenate(
                [self._known.get(first, count) for _, first, count in self._resident.merged()]
                or [np.zeros(0, np.float32)]
            )
            initial = saved["largest_error"] if self.default_error == "largest" else float(self.default_error)
            known[np.isnan(known)] = initial
            saved = {**saved, "errors": torch.from_numpy(known)}
        super()._load_beside_the_ring({**state, "priorities": saved})

    # Inside: opening

    def _open(self) -> None:
        owner = type(self).__name__
        try:
            if self.read_only:
                self._open_archive(manifest_to_read(self._folder))
                return
            ArchiveManifest.read(self._folder)
            if not self._folder.exists():
                self._folder.mkdir(parents=True)
                if self.durable:
                    sync_directory(self._folder.parent)
            self._lock = Lock(self._folder)
            ancestor = None if self.ancestor is None else Path(self.ancestor).absolute()
            self._open_archive(manifest_to_write(self._folder, ancestor, self.durable))
        except DamageError:
            raise
        except PersistenceError as error:
            raise PersistenceError(f"{owner}: {error}") from None
        except OSError as error:
            raise PersistenceError(f"{owner}: {self._folder} cannot be written: {error}; name another one") from error

    def _open_archive(self, manifest: ArchiveManifest | None) -> None:
        plan = None
        if manifest is not None:
            kept = Manifest.read(self._folder / _RUNNING)
            plan = self._planned(manifest, self._told_envs or (kept.num_envs if kept is not None else 1))
        if not self.read_only:
            steps = _STEPS_RUNNING if plan is None else plan.running_steps
            self._running = Running(
                self._folder / _RUNNING,
                type(self).__name__,
                self._told_envs,
                self._stacked_frames,
                self.allow_nonfinite,
                self.commit_every,
                self.durable,
                steps,
            )
        if manifest is None or plan is None:
            return
        shelving = self._make(manifest, plan)
        state: dict[str, Any] | None = None
        if self._running is not None:
            self._running.longest = plan.longest
            state = self._running.recover()
        self._known = KnownErrors.read(self._folder)
        self._hold(shelving, state)
        if state is not None:
            self._load_beside_the_ring(state)

    def _planned(self, manifest: ArchiveManifest, num_envs: int) -> MemoryPlan:
        try:
            return MemoryPlan.of(
                manifest.layout, manifest.stacked, num_envs, self.size, self.memory_bytes, _STEPS_RUNNING
            )
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from None

    def _begin_with(self, running: Running) -> None:
        """Make everything that needs to know what transitions look like; the ring of those that run does."""
        ring = running.ring
        plan = self._planned(ArchiveManifest(ring.layout, ring.stacked, 1, None, {}), ring.envs)
        manifest = ArchiveManifest.made(ring.layout, ring.stacked, plan.volume_rows)
        self._written(lambda: manifest.write(self._folder, self.durable))
        self._make(manifest, plan)
        running.longest = plan.longest
        running.make_room(max(plan.running_steps, ring.live_steps))

    def _make(self, manifest: ArchiveManifest, plan: MemoryPlan) -> Shelving:
        self._ring.resize(plan.steps)
        try:
            self._ring.prepare(manifest.layout, 1)
        except ValueError as error:
            raise PersistenceError(f"{self._folder} holds other observations: {error}") from None
        if self._ring.stacked != manifest.stacked:
            raise PersistenceError(
                f"{self._folder} holds stacked frames {manifest.stacked}, this storage is told of "
                f"{self._ring.stacked}; make it for the same environments, or name another directory"
            )
        archive = Archive(self._folder, manifest, self.durable, self.read_only)
        flaws = manifest.flaws_of_zarr(self._folder) if archive.next_row else []
        if flaws:
            raise DamageError(
                f"{type(self).__name__}: {flaws[0]}. storages.persistent.repair({str(self._folder)!r}) makes it anew"
            )
        if not self.read_only:
            archive.tidy()
        self._shelving = Shelving(archive, type(self).__name__, plan.waiting_bytes)
        largest = max((volume.rows for volume in archive.volumes), default=0)
        if (needed := plan.memory_for(largest, manifest)) > (self.memory_bytes or needed):
            raise ValueError(
                f"{type(self).__name__}: memory_bytes must be at least {needed} for the longest episodes in "
                f"{self._folder}, got {self.memory_bytes}"
            )
        self._resident = Resident(self._ring, plan.episodes, _DRAWS_EACH, self._shelving)
        return self._shelving

    def _marks_of(self, state: dict[str, Any]) -> list[int]:
        assert self._shelving is not None
        assert self._running is not None
        envs, steps = self._running.ring.envs, self._running.ring.steps
        said, recorded = ([*marks, *[0] * envs][:envs] for marks in (state["marks"], self._shelving.archive.marks))
        return [min(max(one, two), steps) for one, two in zip(said, recorded, strict=True)]

    def _hold(self, shelving: Shelving, state: dict[str, Any] | None) -> None:
        """Be what the archive and the journal hold."""
        archive, resident, running = shelving.archive, self._resident, self._running
        assert resident is not None
        live = archive.live if state is None else max(archive.live, state["live"])
        ledger = self._ledger
        ledger.begin(live, archive.end if state is None else max(archive.end, state["unwritten"], live))
        self._priorities = None
        for volume in archive.volumes:
            ledger.count(volume.first, volume.lengths.tolist())
        resident.forget(live)
        finished: list[Finished] = []
        if state is not None and running is not None:
            marks = self._marks_of(state)
            shelving.go_on_from(marks)
            finished = running.go_on_from(marks)
        for one in finished:
            assert running is not None
            recording, first = running.recording(one), ledger.next
            ledger.count(first, recording.lengths.tolist())
            shelving.add(first, recording, one, ledger.live)
        if self.size is not None:
            ledger.keep(self.size)
        shelving.forget(ledger.live)
        memory = None if state is None else state["memory"]
        if self._ledger.stored <= self._ring.size and ledger.episodes <= resident.most_episodes:
            resident.fill(self._ledger.live)
        elif memory is not None and memory["stretches"]:
            resident.restore(memory, self._recording_of)
        else:
            resident.fill_in_part(self._ledger.live, self._generator)

    def _recording_of(self, first: int, count: int) -> Recording:
        """Whole episodes by the numbers of their transitions."""
        assert self._shelving is not None
        firsts = self._shelving.firsts()
        found = self._shelving.volume(firsts[bisect.bisect_right(firsts, first) - 1])
        assert found is not None
        volume, recording = found
        ends = volume.first + np.cumsum(volume.lengths)
        begin, end = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, first + count, side="left") + 1
        return (self._shelving.read(volume) if recording is None else recording).select(int(begin), int(end))

    def _open_running(self) -> Running:
        if self._running is None or self._running.journal.closed:
            why = "it is read only" if self.read_only else "it was closed, or this process was forked"
            raise PersistenceError(
                f"{type(self).__name__}: nothing can be written to {self._folder}: {why}; make a buffer with another "
                f"directory"
            )
        return self._running

    def _let_go(self) -> None:
        if self._resident is not None:
            self._resident.close()
        if self._shelving is not None:
            self._shelving.close()
        if self._running is not None:
            self._running.journal.close()
        if self._lock is not None:
            self._lock.release()


def _nothing_on_disk() -> dict[str, Any]:
    record: Record = {"record": 0, "checksum": 0}
    position: Position = {"commit": 0, "checksum": 0}
    return {"position": position, "archive": record, "errors": torch.zeros(0), "errors_first": 0}
