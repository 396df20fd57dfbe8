"""The replay buffer, composed of a sampler, a window, a relabeler and observers of its ring buffer."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from storages.checks import checked_gamma, refuse_counts, refuse_if_empty
from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, CountOrZero, WholeCount
from storages.core.counts import saved_count
from storages.core.device.device_cache import DeviceCache
from storages.core.device.prefetch import Prefetcher
from storages.core.device.transfer import Sent, Transfer
from storages.core.kernels.priority_updates import mean_of
from storages.core.parts import Mass, Relabeler, Request, Rows, Sampler, Window
from storages.core.ring.memory_limit import MemoryLimit
from storages.core.ring.ring import Ring
from storages.core.sampling.draw_counter import DrawCounter
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.core.sampling.rate_limiter import RateLimit, RateLimiter
from storages.core.sampling.recency import Recency
from storages.core.sampling.uniform import DistinctSampler, PassSampler, UniformSampler
from storages.core.windows.n_step import NSteps
from storages.core.windows.segments import SequenceWindow, continued_steps, window_of
from storages.off_policy.batch_maker import BatchMaker, Draw
from storages.off_policy.capacity import MemoryBound, RingGrowth
from storages.persistent.replay.ring_log import RingLog, check_directory
from storages.protocols import Discounting, Environments, StorageLog
from storages.sequence_settings import Episodes, MultiStepRows, Sequences
from storages.storage import Storage
from storages.transforms import SEEDS, check_transforms
from storages.transition import (
    ACT,
    ACTPROBS,
    DONE,
    DONE2,
    EPISODE,
    INDICES,
    IREW,
    MASK,
    OBS,
    OBS2,
    REW,
    REWC,
    RHS,
    RHS2,
    TRUNC2,
    Batch,
)

_SAMPLERS: Mapping[str, Callable[[], Sampler]] = {
    "with replacement": UniformSampler,
    "without replacement": DistinctSampler,
    "passes": PassSampler,
}


class ReplayBuffer(Storage):
    """Uniform experience replay, after Lin, "Self-Improving Reactive Agents" (Machine Learning 8, 1992).

    Args:
        size: capacity in steps; the newest ``size * num_envs`` transitions are kept. None for as many as ``max_bytes``
            allows or, without it, for all: the capacity is doubled when it is reached.
        max_bytes: bound on the memory of the stored steps, including final observations of episodes and what samplers
            keep. With ``size``, the smaller bound applies. Where episodes are shorter than about 30 steps, the capacity
            is reduced. None for no bound.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        draws: how rows are drawn uniformly: "with replacement", "without replacement" within a batch, or in "passes",
            in each of which every row is drawn once, in random order.
        transforms: data augmentation or other functions of a batch's fields, applied on the device: see
            :mod:`storages.transforms`.
        prefetch: number of batches that a thread makes ahead of the learner in an update phase; results do not change.
        keep_on_device: cache observations and hidden states on ``device``, and gather batches of them there.
        directory: directory in which the buffer is persisted, see :mod:`storages.persistent`; None for memory only.
        commit_every: steps between commits, which is the most that can be lost.
        durable: whether commits survive a power failure, and not only the death of the process.
        rate_limit: ratio of rows drawn to transitions inserted; insertions and draws that violate it are refused, and
            a scheme schedules update phases by it. None for no limit.
        count_draws: count how often rows begin with each stored transition, and sum their importance weights, for
            inspection in a checkpoint; see :attr:`draw_counts`.
    """

    max_bytes: WholeCount | None = None
    sequences: MultiStepRows | None = None
    draws: Literal["with replacement", "without replacement", "passes"] = "with replacement"
    transforms: Mapping[str, Any] | None = None
    prefetch: CountOrZero = 0
    keep_on_device: bool = False
    directory: str | Path | None = None
    commit_every: WholeCount = 1_000
    durable: bool = False
    rate_limit: RateLimit | None = None
    count_draws: bool = False

    on_policy = False
    storage_tensors = (OBS, RHS, DONE, ACT, REW, IREW, REWC, OBS2, RHS2, DONE2, TRUNC2, ACTPROBS)
    knows_next_actions = True
    knows_returns_to_go = True
    knows_newest_steps = True
    unchangeable = frozenset(
        {
            "size",
            "max_bytes",
            "sequences",
            "draws",
            "keep_on_device",
            "directory",
            "commit_every",
            "durable",
            "rate_limit",
            "count_draws",
        }
    )
    state_names = (*Storage.state_names, "inserted", "sampled")
    follows_episodes: ClassVar[bool] = False
    """Whether an index of episodes is needed even if rows are not episodes."""
    holds_only_whole_episodes: ClassVar[bool] = False
    """Whether the ring holds no step of an episode that has not ended."""
    takes_newer_states: ClassVar[bool] = True
    """Whether the recurrent states of an update replace those stored."""

    def build(self, device: torch.device | str, actor: Any, algorithm: Discounting, envs: Environments | None) -> None:
        """Make the parts; hyper-parameters are set already."""
        super().build(device, actor, algorithm, envs)
        self._transfer = Transfer(torch.device(device))
        self._sampled = 0
        ring, episodes = self.ring, self.sequences if isinstance(self.sequences, Episodes) else None
        self._tracker = EpisodeTracker(ring, episodes) if episodes is not None or self.follows_episodes else None
        self.recency: Recency | None = None
        self.relabeler = self.make_relabeler()
        cache: DeviceCache | None = None
        if self.keep_on_device:
            on_host = frozenset() if self.relabeler is None else self.relabeler.changed
            cache = DeviceCache(ring, self._transfer, on_host)
        self._maker = BatchMaker(ring, self._transfer, self.relabeler, cache)
        self._prefetcher: Prefetcher[Draw, Sent] = Prefetcher(self._undo)
        self.sampler = self.make_sampler()
        self.rate_limiter = None if self.rate_limit is None else RateLimiter(self.rate_limit)
        self._draw_counter = DrawCounter(ring) if self.count_draws else None
        parts = (
            self.rate_limiter,
            self._draw_counter,
            self._prefetcher,
            self.relabeler,
            cache,
            self._tracker,
            self.recency,
        )
        growth = RingGrowth(self) if ring.grows else None
        bound = growth if self.max_bytes is None else MemoryBound(self)
        for part in (bound, *parts, self.sampler):
            if part is not None:
                self.observers.add(part)
        self.configure()
        if self.max_bytes is not None:
            beside = sum(part.bytes_of_a_transition for part in self.observers)
            apart = sum(part.bytes_apart for part in self.observers)
            least = 1 if self.sequences is None else self.sequences.least_size
            most, ring.grows = sys.maxsize if ring.grows else ring.size, False
            ring.limit = MemoryLimit(self.max_bytes, beside, apart, least, most)
        log = self.make_log(envs)
        if log is not None:
            self.observers.attach(log)

    def resize(self, size: Count) -> None:
        """Set the capacity to ``size`` steps, no fewer than are stored; called when a growing buffer is full.

        Raises:
            MemoryError: there is not enough memory; nothing was changed.
            DeviceMemoryError: the device cache would not fit into the device's memory; nothing was changed.
        """
        ring, before = self.ring, self.ring.size
        self.observers.before_change(rows=True)
        try:
            self._resize(ring, size)
        except BaseException:
            self._resize(ring, before)
            raise

    def _resize(self, ring: Ring, size: int) -> None:
        if ring.size != size:
            ring.resize(size)
        self.observers.after_resize()

    def shrink(self, size: int) -> None:
        """Reduce the capacity to ``size`` steps, and drop older ones; called where ``max_bytes`` would be exceeded."""
        self.observers.before_change(rows=True)
        self.ring.shrink(size)
        self.observers.after_resize()

    # Parts

    def make_sampler(self) -> Sampler:
        """Make the sampler, which draws rows."""
        return _SAMPLERS[self.draws]()

    def make_steps(self) -> Window:
        """Make the window that computes the fields of a step, such as n-step returns."""
        return NSteps()

    def make_window(self) -> Window:
        """Make the window that maps a row to its steps."""
        steps, sequences, tracker = self.make_steps(), self.sequences, self._tracker
        if sequences is None:
            return steps
        return window_of(sequences, steps, tracker, only_whole=self.holds_only_whole_episodes)

    def make_relabeler(self) -> Relabeler | None:
        """Make the part that relabels fields, as hindsight does; None for none."""
        return None

    def make_log(self, envs: Environments | None) -> StorageLog | None:
        """Make the log that persists the buffer in its directory; None without one."""
        return None if self.directory is None else RingLog(self, self.directory, self.commit_every, self.durable)

    def configure(self) -> None:
        """Pass the current hyper-parameters on to the parts; called after every change of one."""
        self.window = self.make_window()
        self._maker.transforms = self.transforms

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse invalid directories and transforms, and a size below the length of a sequence or piece."""
        super().check_hyper_parameters(hyper_parameters)
        check_directory(cls.__name__, hyper_parameters)
        check_transforms(hyper_parameters["transforms"], cls.__name__)
        size, sequences = hyper_parameters.get("size") or sys.maxsize, hyper_parameters["sequences"]
        if sequences is not None and size < (least := sequences.least_size):
            raise ValueError(f"{cls.__name__}: size must be at least {least} to draw {sequences}, got {size}")

    def include_next_actions(self) -> None:
        """Add ACT2 and TAKEN2 to batches from now on."""
        self.observers.before_change()
        self._maker.with_next_actions = True

    def include_returns_to_go(self) -> None:
        """Add RTG to batches from now on."""
        self.observers.before_change()
        self._maker.with_returns_to_go = True

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of ``num_epochs * num_mini_batch`` batches of ``mini_batch_size`` rows.

        Each batch is drawn when it is requested, or ``prefetch`` batches earlier. If transitions are inserted or
        changed in between, the remaining batches are drawn from the new contents. Besides the inserted fields, a batch
        holds DISCOUNT, WEIGHTS and INDICES.

        With ``sequences``, rows are sequences: fields are (T, B, ...), RHS (B, *hidden) is the recurrent state before
        the first step, there is no RHS2, and DONE marks where the recurrent state is reset. MASK, WINDOW, BURN_IN (with
        a burn-in) and LEAD_OUT (with ``n_step`` above 1) are added; WEIGHTS and INDICES, of the first step, stay
        (B, 1). Only sequences whose steps are all stored are drawn, as soon as there are any.

        ``Episodes`` make the same fields, with T steps each; LEAD_OUT exists only where longer episodes are cut. If
        ``packed``, fields are (N, ...) with N the steps of all episodes; instead of MASK there are EPISODE,
        BATCH_SIZES, SORTED_INDICES and UNSORTED_INDICES, which with a field make a ``PackedSequence``. RHS, WEIGHTS and
        INDICES are those of the episodes in the order in which they were drawn.

        Raises:
            EmptyStorageError: nothing is stored, now or when a batch is requested.
            RateLimitError: ``rate_limit`` allows no batches now. All rows requested count as drawn with this call.
            ValueError: a count is not an int of at least 1, or ``mini_batch_size`` is None, which only on-policy
                storages accept.
        """
        ring = self.ring
        # A call takes longer than the comparison.
        if ring.steps == ring.first:
            self._refuse_if_empty()
        if mini_batch_size is None:
            raise ValueError(f"{type(self).__name__}: a replay buffer needs a mini_batch_size, got None")
        counts_are_ints = type(num_mini_batch) is type(mini_batch_size) is type(num_epochs) is int
        if not (counts_are_ints and num_mini_batch >= 1 and mini_batch_size >= 1 and num_epochs >= 1):
            refuse_counts(num_mini_batch, mini_batch_size, num_epochs, type(self).__name__)
        if self.rate_limiter is not None:
            self.rate_limiter.draw(num_epochs * num_mini_batch * mini_batch_size, type(self).__name__)
        return self._batches(mini_batch_size, num_epochs * num_mini_batch)

    def newest_steps(self, steps: Count) -> Batch:
        """Return the newest steps of all environments, as a batch of sequences that continue across episodes.

        Fields are those of a batch of ``sequences``, (T, E, ...), with fewer steps where fewer are stored. Goals are
        not relabelled, and weights are 1.

        Raises:
            EmptyStorageError: nothing is stored.
            ValueError: ``steps`` is not an int of at least 1.
            NotImplementedError: the storage does not keep steps in temporal order.
        """
        if not self.knows_newest_steps:
            return super().newest_steps(steps)
        steps = conform_named(steps, Count, f"{type(self).__name__}: steps")
        self._prefetcher.cancel()
        self._refuse_if_empty()
        return self._newest(self.ring, steps)

    def _newest(self, ring: Ring, steps: int) -> Batch:
        """Return the newest steps of a ring, as :meth:`newest_steps`."""
        steps = min(steps, ring.live_steps)
        first = np.arange((ring.steps - steps) * ring.envs, (ring.steps - steps + 1) * ring.envs)
        window = SequenceWindow(Sequences(steps, across_episodes=True), self.make_steps(), reach=0)
        selected = window.select(ring, first)
        rows = Rows(first, np.ones((ring.envs, 1), np.float32))
        self._sampled += selected.learnt_steps
        seed = int(self._generator.integers(SEEDS)) if self.transforms else None
        gamma = checked_gamma(self.algorithm.gamma, ring.owner)
        draw = Draw(rows, window, selected, selected.transitions.ravel(), None, gamma, seed, None)
        return self._transfer.receive(self._maker.make(draw, ring))

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the progress of the run, in environment transitions, before an update phase; schedules follow it."""
        self.observers.before_change()
        super().set_progress(steps, target_steps)
        self.configure()

    def _use_parameters(self) -> None:
        super()._use_parameters()
        self.configure()

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Add the batch's mean age in steps and the replay ratio so far to the metrics; update the sampler.

        Recurrent states under RHS replace those stored before the steps of sequences and episodes, but for first steps.
        A storage that changes goals keeps those of acting, because an update's follow from the changed goals. With a
        ``directory``, they are on disk with the next state, :meth:`flush` or :meth:`close`.
        """
        if RHS in info:
            self._replace_states(batch, info[RHS])
        indices = batch[INDICES]
        # The host must not wait for a mean that is computed on the device.
        mean = indices.double().mean() if indices.is_cuda else mean_of(indices.numpy(force=True))
        age = self.ring.steps - 1 - mean / self.ring.envs
        replayed = self._sampled / max(1, self.inserted)
        metrics = {"storage/row_age": age, "storage/replay_ratio": replayed}
        return {**info, **metrics, **self.sampler.after_update(batch, info)}

    def _replace_states(self, batch: Batch, states: torch.Tensor) -> None:
        if not self.takes_newer_states or self.relabeler is not None:
            return
        if MASK not in batch and EPISODE not in batch:
            raise ValueError(f"{type(self).__name__}: the {RHS} of an update are states of sequences or episodes only")
        expected = (*batch[DONE].shape[:-1], *self.ring.layout[(RHS,)].shape)
        if tuple(states.shape) != expected:
            raise ValueError(
                f"{type(self).__name__}: {RHS} of an update must have shape {expected}, one state for each step of the "
                f"batch, got {tuple(states.shape)}; no state was replaced"
            )
        transitions, continues = continued_steps(batch, self.ring.envs)
        # Others may have been inserted since the batch was drawn.
        replaced = continues & (transitions >= self.ring.start)
        self.observers.before_change(rows=True)
        self.ring.replace_states(transitions[replaced], states.numpy(force=True)[replaced])
        self.observers.after_states(transitions[replaced])

    @property
    def mass(self) -> Mass:
        """Number of rows that batches are drawn from, and the sum of their priorities."""
        ring = self.ring
        return Mass(0, 0.0) if ring.steps == ring.first else self.sampler.mass(ring, self.window)

    # Batches

    def _batches(self, batch_size: int, updates: int) -> Iterator[Batch]:
        ahead = min(self.prefetch, updates - 1)
        if ahead == 0:
            for update in range(1, updates + 1):
                if self._prefetcher.turn is not None:
                    # Draws that another iterator made ahead must come after this one.
                    self._prefetcher.cancel()
                draw = self._draw(batch_size, update, updates)
                sent = self._maker.make(draw)
                self._count_drawn(draw)
                yield sent.batch if sent.arrived is None else self._transfer.receive(sent)
            return

        def draw_ahead(update: int) -> Draw:
            before = self._generator.bit_generator.state, self.sampler.progress
            return self._draw(batch_size, update, updates)._replace(before=before)

        for draw, sent in self._prefetcher.batches(draw_ahead, self._maker.make, updates, ahead):
            self._count_drawn(draw)
            yield self._transfer.receive(sent)

    def _count_drawn(self, draw: Draw) -> None:
        self.__dict__["_sampled"] += len(draw.transitions) if draw.steps is None else draw.steps.learnt_steps
        if self._draw_counter is not None:
            self._draw_counter.count(draw.rows)

    def draw_rows(self, batch_size: int, update: int = 1, updates: int = 1) -> Rows:
        """Draw the rows of the ``update``-th of ``updates`` batches of an update phase."""
        ring, recency = self.ring, self.recency
        if recency is None:
            oldest_that_fits = ring.steps - ring.size
            first = (ring.first if ring.first > oldest_that_fits else oldest_that_fits) * ring.envs
        else:
            first = recency.first(ring, update, updates)
        return self.sampler.draw(Request(self._generator, ring, self.window, batch_size, first, update, updates))

    def _refuse_if_empty(self) -> None:
        refuse_if_empty(self, self.ring)

    def _draw(self, batch_size: int, update: int, updates: int) -> Draw:
        ring, window = self.ring, self.window
        if ring.steps == ring.first:
            self._refuse_if_empty()
        rows = self.draw_rows(batch_size, update, updates)
        transitions, steps, segments, relabeled = rows.transitions, None, None, None
        if window.is_multi_step:
            transitions = window.starts(self._generator, ring, transitions)
            if window.is_indexed_by_first_step:
                rows = rows._replace(transitions=transitions)
            steps = window.select(ring, transitions)
            transitions, segments = steps.transitions.ravel(), steps.segments
        if self.relabeler is not None:
            relabeled = self.relabeler.choose(self._generator, ring, transitions, segments)
        gamma = self.algorithm.gamma
        if type(gamma) is not float or not 0 <= gamma <= 1:
            gamma = checked_gamma(gamma, type(self).__name__)
        seed = int(self._generator.integers(SEEDS)) if self.transforms else None
        return Draw(rows, window, steps, transitions, relabeled, gamma, seed, None)

    def _undo(self, draw: Draw) -> None:
        self._generator.bit_generator.state, self.sampler.progress = draw.before

    # State

    @property
    def draw_counts(self) -> dict[str, torch.Tensor] | None:
        """Draws of each stored transition and the sum of its weights, (steps, E); None without ``count_draws``.

        Oldest step first. Of sequences and episodes, only the first transition is counted.
        """
        return None if self._draw_counter is None else self._draw_counter.counted()

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than transitions and their errors, as JSON-serialisable data."""
        state = {"episodes_begun": None} | super().extra_state() | {"sampled": self._sampled}
        progress, oldest = self.sampler.progress, self._prefetcher.oldest
        if oldest is not None:
            # Prefetched batches that were not requested are drawn again.
            state["generator"], progress = oldest.before
        if progress is not None:
            state["progress"] = progress
        return state

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`extra_state` returned; the ring is restored already."""
        super().load_extra_state(state)
        self._sampled = saved_count(state, "sampled", type(self).__name__)

    def __getstate__(self) -> dict[str, Any]:
        self._prefetcher.cancel()
        return self.__dict__
