"""The plain replay buffer: every stored transition is as likely as any other."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.hyper_parameters import Count, CountOrZero
from storages.core.device.device_cache import DeviceMemoryError, OnDevice
from storages.core.device.prefetch import Ahead
from storages.core.device.transfer import Sent, Transfer
from storages.core.kernels.priority_updates import mean_of
from storages.core.ring.insertion import Slice
from storages.core.ring.layout import FieldKey
from storages.core.sampling import uniform as samplers
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.episode_starts import EpisodeStarts
from storages.core.windows import n_step as windows
from storages.core.windows.hindsight import Goals
from storages.core.windows.packed import Packing, packing_of, put_together_packed
from storages.core.windows.sequence_batches import (
    Layout,
    Runs,
    episodes_laid_out,
    keys_of_steps,
    laid_out,
    put_together,
)
from storages.persistent.replay.journalled_storage import JournalledStorage
from storages.storage import Discounting, Environments
from storages.transition import INDICES, WEIGHTS, Array, Batch, Sample
from storages.windows import Episodes, Sequences


class Rows(NamedTuple):
    """What a batch is made of."""

    transitions: NDArray[np.int64]
    """(B,): numbers of the transitions that its rows begin with."""
    weights: NDArray[np.float32]
    """(B, 1): their importance weights."""


class Draw(NamedTuple):
    """All that decides of a batch, but what is stored."""

    rows: Rows
    layout: Layout | Packing | None
    """Of the sequences or episodes that begin with the rows; None where each row is one transition."""
    transitions: NDArray[np.int64]
    """(N,): numbers of all transitions, of sequences one step after the other."""
    goals: Goals | None
    """Other goals for some rows; None for none."""
    gamma: float
    before: Any
    """Where the random generator stood before; None where nobody will ask."""


class ReplayBuffer(JournalledStorage):
    """Uniform experience replay, after Lin, "Self-Improving Reactive Agents" (Machine Learning 8, 1992).

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        prefetch: batches of an update phase that a thread makes ahead of the learner; they are the same ones.
        keep_on_device: keep observations and hidden states on ``device`` too, and make batches of them there.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    on_policy = False
    knows_next_actions = True
    knows_newest_steps = True
    unchangeable = JournalledStorage.unchangeable | {"sequences", "keep_on_device"}
    state_names = (*JournalledStorage.state_names, "inserted", "sampled")
    n_step = 1
    _with_next_actions = False
    """Whether batches hold ACT2 and TAKEN2."""
    _on_host: frozenset[FieldKey] = frozenset()
    """Leaves that are changed when a batch is made of them, and therefore gathered where they can be."""

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        sequences: Sequences | Episodes | None = None,
        prefetch: CountOrZero = 0,
        keep_on_device: bool = False,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.sequences = sequences
        self.prefetch = prefetch
        self.keep_on_device = keep_on_device
        self._transfer = Transfer(torch.device(device))
        self._on_device: OnDevice | None = None
        self._ahead: Ahead[Draw, Sent] = Ahead(self._put_back)
        self._inserted = 0
        self._sampled = 0
        self._episodes: EpisodeIndex | None = None
        """None where nothing is asked of episodes, or nothing was inserted yet."""
        self._starts: EpisodeStarts | None = None
        """As well where batches are not of episodes."""
        super().__init__(device, actor, algorithm, envs, size, directory, commit_every, durable, allow_nonfinite)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse sequences and episodes that do not fit."""
        super().check_hyper_parameters(hyper_parameters)
        size, sequences = hyper_parameters.get("size", sys.maxsize), hyper_parameters["sequences"]
        if isinstance(sequences, Episodes) and sequences.longest is not None and size < sequences.longest:
            raise ValueError(
                f"{cls.__name__}: size must be at least {sequences.longest} to hold whole {sequences}, got {size}"
            )
        if isinstance(sequences, Sequences) and size < (needed := sequences.length + sequences.stride - 1):
            raise ValueError(
                f"{cls.__name__}: size must be at least {needed} for {sequences} to begin anywhere, got {size}"
            )
        if isinstance(sequences, Sequences) and size < sequences.burn_in:
            raise ValueError(f"{cls.__name__}: size must be at least burn_in={sequences.burn_in}, got {size}")

    def include_next_actions(self) -> None:
        """Let batches hold ACT2 and TAKEN2 from here on."""
        self._before_change()
        self._with_next_actions = True

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """``num_epochs * num_mini_batch`` batches of ``mini_batch_size`` transitions, drawn with replacement.

        Each is drawn when it is asked for, or ``prefetch`` batches before. Where something is stored or changed before
        all were asked for, the others are drawn anew from what is stored then. Beside what was inserted, a batch holds
        DISCOUNT, WEIGHTS and INDICES.

        Of ``sequences``, a batch holds ``mini_batch_size``: fields are (T, B, ...), RHS (B, *hidden) is the memory
        before the first step, RHS2 is not there; DONE says where memory starts anew. MASK, WINDOW, BURN_IN (where
        there is a burn-in) and LEAD_OUT (where ``n_step`` is above 1) are there too; WEIGHTS and INDICES, of the first
        step, stay (B, 1). Sequences begin where all of their steps are stored, as soon as that is possible.

        Of ``Episodes``, the same, T steps of each; LEAD_OUT is there only where longer episodes are cut. Where they are
        ``packed``, fields are (N, ...), N the steps of all; instead of MASK there are EPISODE, BATCH_SIZES,
        SORTED_INDICES and UNSORTED_INDICES, of which and of a field a ``PackedSequence`` is made. RHS, WEIGHTS and
        INDICES are of the episodes in the order in which they were drawn.

        Raises:
            EmptyStorageError: nothing is stored, now or when a batch is asked for.
            ValueError: a number is no int from 1 on, or ``mini_batch_size`` None, which only on-policy storages can
                make sense of.
        """
        self._refuse_if_empty()
        if mini_batch_size is None:
            raise ValueError(f"{type(self).__name__}: a replay buffer needs a mini_batch_size, got None")
        self._refuse_counts(num_mini_batch, mini_batch_size, num_epochs)
        updates = num_epochs * num_mini_batch
        return self._batches(mini_batch_size, updates)

    def newest_steps(self, steps: Count) -> Batch:
        """The newest steps of all environments, as a batch of sequences that go on across episodes.

        Fields are those of a batch of ``sequences``, (T, E, ...); there are fewer steps where fewer are stored. Goals
        are those that were meant, and weights are 1.

        Raises:
            EmptyStorageError: nothing is stored.
        """
        self._ahead.take_back()
        self._refuse_if_empty()
        ring = self._ring
        steps = min(steps, ring.live_steps)
        first = np.arange((ring.steps - steps) * ring.envs, (ring.steps - steps + 1) * ring.envs)
        layout = laid_out(ring, first, Sequences(steps, across_episodes=True), 0)
        rows = Rows(first, np.ones((ring.envs, 1), np.float32))
        drawn = Draw(rows, layout, layout.transitions.ravel(), None, self._gamma, None)
        self._count(drawn)
        return self._transfer.receive(self._send(drawn))

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adds how old the rows of the batch were, in steps, and how often a transition was replayed so far."""
        indices = batch[INDICES]
        # A tensor's mean on another device is not waited for.
        mean = indices.double().mean() if indices.is_cuda else mean_of(indices.numpy(force=True))
        return {**info, **self._ages(mean)}

    def _ages(self, mean_index: float | torch.Tensor) -> dict[str, Any]:
        age = self._ring.steps - 1 - mean_index / self._ring.envs
        return {"storage/row_age": age, "storage/replay_ratio": self._sampled / max(1, self._inserted)}

    def _batches(self, batch_size: int, updates: int) -> Iterator[Batch]:
        ahead = min(self.prefetch, updates - 1)
        if ahead == 0:
            for update in range(1, updates + 1):
                # What another iterator has begun is drawn later than this.
                self._ahead.take_back()
                self._refuse_if_empty()
                drawn = self._draw(self._choose(batch_size, update, updates), None)
                sent = self._send(drawn)
                self._count(drawn)
                yield self._transfer.receive(sent)
            return

        def draw(update: int) -> Draw:
            self._refuse_if_empty()
            before = self._generator.bit_generator.state
            return self._draw(self._choose(batch_size, update, updates), before)

        for drawn, sent in self._ahead.batches(draw, self._send, updates, ahead):
            self._count(drawn)
            yield self._transfer.receive(sent)

    def _count(self, drawn: Draw) -> None:
        self._sampled += len(drawn.transitions) if drawn.layout is None else drawn.layout.learnt_steps

    def _draw(self, rows: Rows, before: Any) -> Draw:
        layout = None if self.sequences is None else self._lay_out(rows.transitions, self.sequences)
        transitions = rows.transitions if layout is None else layout.transitions.ravel()
        goals = self._choose_goals(transitions, None if layout is None else layout.runs)
        return Draw(rows, layout, transitions, goals, self._gamma, before)

    def _put_back(self, draw: Draw) -> None:
        self._generator.bit_generator.state = draw.before

    def _before_change(self) -> None:
        self._ahead.take_back()

    def _before_insertion(self, sample: Sample) -> None:
        if self.keep_on_device and self._on_device is None:
            self._begin_on_device(sample)
        super()._before_insertion(sample)

    def _after_insertion(self, steps: int) -> None:
        self._inserted += steps * self._ring.envs
        if self._episodes is not None:
            self._episodes.put(self._ring.steps - steps)
            if self._starts is not None:
                self._starts.inserted()
        elif self._knows_episodes:
            self._index_episodes()

    def _slice_of(self, arrays: Mapping[FieldKey, Array]) -> Slice | None:
        # Which episodes may be drawn is known step by step.
        return super()._slice_of(arrays) if self._starts is None else None

    def _send(self, draw: Draw) -> Sent:
        """Make a batch; on another thread where there is a ``prefetch``: what changes what is read here waits."""
        rows, kept = draw.rows, self._on_device
        if kept is not None:
            kept.bring_up()
        fields = self._fields(draw) if draw.layout is None else self._fields_of_steps(draw, draw.layout)
        if self._with_next_actions and draw.layout is None:
            fields |= self._next_actions(draw)
        fields[WEIGHTS] = rows.weights
        fields[INDICES] = rows.transitions[:, None]
        return self._transfer.send(fields, None if kept is None else kept.look_up)

    def _lay_out(self, first: NDArray[np.int64], sequences: Sequences | Episodes) -> Layout | Packing:
        """The steps of the sequences or episodes that begin with some transitions (B,)."""
        beyond = min(self.n_step, self._ring.size) - 1
        if isinstance(sequences, Sequences):
            return laid_out(self._ring, first, sequences, beyond)
        assert self._starts is not None
        lengths = self._starts.lengths(first)
        if sequences.packed:
            return packing_of(self._ring, first, lengths)
        # Windows do not reach beyond an episode, only beyond a piece of one.
        lead_out = 0 if sequences.longest is None else beyond
        return episodes_laid_out(self._ring, first, lengths, sequences, lead_out)

    def _next_actions(self, draw: Draw) -> dict[str, Any]:
        last = draw.transitions
        if self.n_step > 1:
            last = windows.windows_of(self._ring, last, self.n_step, draw.gamma).last
        return windows.next_actions(self._ring, last)

    def _fields_of_steps(self, draw: Draw, layout: Layout | Packing) -> dict[str, Any]:
        ring = self._ring
        fields = self._fields(draw, keys_of_steps(ring))
        each = windows.windows_of(ring, draw.transitions, self.n_step, draw.gamma)
        if self._with_next_actions:
            fields |= windows.next_actions(ring, each.last)
        if isinstance(layout, Layout):
            return put_together(ring, self._gather, layout, fields, each.lengths)
        return put_together_packed(ring, self._gather, layout, fields, each.lengths)

    def _choose(self, batch_size: int, update: int, updates: int) -> Rows:
        """The rows of the ``update``-th of ``updates`` batches of an update phase."""
        return self._choose_uniformly(batch_size, self._ring.start)

    def _choose_uniformly(self, batch_size: int, first: int) -> Rows:
        sequences = self.sequences
        if sequences is not None and isinstance(sequences, Episodes):
            assert self._starts is not None
            transitions = self._starts.uniform(self._generator, first, batch_size)
        elif sequences is None or sequences.stride == 1:
            transitions = samplers.uniform(self._generator, *self._where_to_begin(first), batch_size)
        else:
            first, end = self._where_to_begin(first)
            stride, envs = sequences.stride, self._ring.envs
            transitions = samplers.uniform_in_steps(self._generator, first, end, envs, stride, batch_size)
        return Rows(transitions, np.ones((batch_size, 1), np.float32))

    def _where_to_begin(self, first: int) -> tuple[int, int]:
        """Numbers of the first transition, not before ``first``, and after the last that a row may begin with."""
        ring = self._ring
        if self.sequences is None:
            return first, ring.end
        if isinstance(self.sequences, Episodes):
            assert self._starts is not None
            return self._starts.where_to_begin(first), ring.end
        latest = max(ring.oldest, ring.steps - self.sequences.length)
        # At least one step whose number is a multiple of the stride, if there is any.
        multiple = max(ring.oldest, latest - latest % self.sequences.stride)
        return min(first // ring.envs, multiple) * ring.envs, (latest + 1) * ring.envs

    def _choose_goals(self, transitions: NDArray[np.int64], runs: Runs | None) -> Goals | None:
        """Other goals for some rows of a batch.

        Args:
            transitions: (N,), numbers of the transitions of all rows.
            runs: the sequences or episodes that rows are of; None where each row is for itself.
        """
        return None

    def _fields(self, draw: Draw, keys: set[str] | None = None) -> dict[str, Any]:
        """What the batch holds of its transitions (N, ...), DISCOUNT too; all fields where ``keys`` is None."""
        return windows.one_step(self._gather, draw.transitions, draw.gamma, keys)

    def _gather(
        self,
        transitions: NDArray[np.int64],
        keys: set[str] | None = None,
        last: NDArray[np.int64] | None = None,
    ) -> dict[str, Any]:
        return (self._on_device or self._ring).gather(transitions, keys, last)

    def _begin_on_device(self, sample: Sample) -> None:
        first_of_all = not self._ring.layout
        self._ring.init_columns(sample)
        try:
            self._on_device = OnDevice(self._ring, self._transfer, self._on_host)
        except DeviceMemoryError:
            if first_of_all:
                self._ring.forget_columns()
            raise

    @property
    def _knows_episodes(self) -> bool:
        """Whether episodes are followed from the first insertion on."""
        # Whether something is of an abstract class takes a tenth of an insertion to find out, which None need not pay.
        return self.sequences is not None and isinstance(self.sequences, Episodes)

    def _index_episodes(self, begun: NDArray[np.int64] | None = None) -> None:
        """Follow the episodes of what is stored, and of what comes."""
        self._episodes = EpisodeIndex(self._ring, begun)
        if isinstance(self.sequences, Episodes):
            self._starts = EpisodeStarts(self._ring, self._episodes, self.sequences)

    @property
    def nbytes(self) -> int:
        """Bytes that the stored fields take, free room included, where episodes are, and what is kept on the device."""
        parts = (self._episodes, self._starts, self._on_device)
        return super().nbytes + sum(part.nbytes for part in parts if part is not None)

    def _state_beside_the_ring(self) -> dict[str, Any]:
        state = super()._state_beside_the_ring() | {"inserted": self._inserted, "sampled": self._sampled}
        state["episodes_begun"] = None if self._episodes is None else self._episodes.begun.tolist()
        if self._ahead.oldest is not None:
            # As if nothing had been drawn that nobody has asked for yet.
            state["generator"] = self._ahead.oldest.before
        return state

    def __getstate__(self) -> dict[str, Any]:
        # Neither is a thread copied, nor what follows from the rest.
        self._ahead.take_back()
        return {name: value for name, value in self.__dict__.items() if name not in ("_ahead", "_on_device")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._ahead, self._on_device = Ahead(self._put_back), None
        if self.keep_on_device and self._ring.layout:
            self._on_device = OnDevice(self._ring, self._transfer, self._on_host)

    def _load_beside_the_ring(self, state: Mapping[str, Any]) -> None:
        super()._load_beside_the_ring(state)
        self._on_device = None
        if self.keep_on_device and self._ring.layout:
            self._on_device = OnDevice(self._ring, self._transfer, self._on_host)
        self._inserted, self._sampled = state["inserted"], state["sampled"]
        self._episodes, self._starts = None, None
        if self._knows_episodes and self._ring.layout:
            # Saved by a storage that asked nothing of episodes, the oldest steps may begin any.
            begun = state.get("episodes_begun")
            self._index_episodes(None if begun is None else np.array(begun, np.int64))
