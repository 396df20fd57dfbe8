"""The plain replay buffer: every stored transition is as likely as any other."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core import samplers, windows
from storages.core.episode_starts import EpisodeStarts
from storages.core.episodes import EpisodeIndex
from storages.core.packed_episodes import Packing, packing_of, put_together_packed
from storages.core.sequences import Layout, Runs, episodes_laid_out, keys_of_steps, laid_out, put_together
from storages.core.transfer import to_batch
from storages.episodes import Episodes
from storages.hyper_parameters import Count
from storages.sequences import Sequences
from storages.storage import Discounting, Environments, Storage
from storages.transition import INDICES, WEIGHTS, Batch, Sample


class Rows(NamedTuple):
    """What a batch is made of."""

    transitions: NDArray[np.int64]
    """(B,): numbers of the transitions that its rows begin with."""
    weights: NDArray[np.float32]
    """(B, 1): their importance weights."""


class ReplayBuffer(Storage):
    """Uniform experience replay, after Lin, "Self-Improving Reactive Agents" (Machine Learning 8, 1992).

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    on_policy = False
    unchangeable = frozenset({"size", "sequences"})
    n_step = 1

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        sequences: Sequences | Episodes | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        super().__init__(device, actor, algorithm, envs, size, allow_nonfinite)
        self.sequences = sequences
        self._inserted = 0
        self._sampled = 0
        self._episodes: EpisodeIndex | None = None
        """None where nothing is asked of episodes, or nothing was inserted yet."""
        self._starts: EpisodeStarts | None = None
        """As well where batches are not of episodes."""

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse sequences and episodes that do not fit."""
        super().check_hyper_parameters(hyper_parameters)
        size, sequences = hyper_parameters["size"], hyper_parameters["sequences"]
        if isinstance(sequences, Episodes) and sequences.longest is not None and size < sequences.longest:
            raise ValueError(
                f"{cls.__name__}: size must be at least {sequences.longest} to hold whole {sequences}, got {size}"
            )
        if isinstance(sequences, Sequences) and size < (needed := sequences.length + sequences.stride - 1):
            raise ValueError(
                f"{cls.__name__}: size must be at least {needed} for {sequences} to begin anywhere, got {size}"
            )

    def insert_transition(self, sample: Sample) -> None:
        """Store one step, a transition for each environment.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
        """
        super().insert_transition(sample)
        self._inserted += self.num_envs
        if self._episodes is not None:
            self._episodes.inserted()
            if self._starts is not None:
                self._starts.inserted()
        elif self._knows_episodes:
            self._index_episodes()

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """``num_epochs * num_mini_batch`` batches of ``mini_batch_size`` transitions, drawn with replacement.

        Each is drawn when it is asked for. Beside what was inserted, a batch holds DISCOUNT, WEIGHTS and INDICES.

        Of ``sequences``, a batch holds ``mini_batch_size``: fields are (T, B, ...), RHS (B, *hidden) is the memory
        before the first step, RHS2 is not there; DONE says where memory starts anew. MASK, WINDOW, BURN_IN (where
        there is a burn-in) and LEAD_OUT (where ``n_step`` is above 1) are there too; WEIGHTS and INDICES, of the first
        step, stay (B, 1). Sequences begin where all of their steps are stored, as soon as that is possible.

        Of ``Episodes``, the same, T steps of each; LEAD_OUT is there only where longer episodes are cut. Where they are
        ``packed``, fields are (N, ...), N the steps of all; instead of MASK there are EPISODE, BATCH_SIZES,
        SORTED_INDICES and UNSORTED_INDICES, of which and of a field a ``PackedSequence`` is made. RHS, WEIGHTS and
        INDICES are of the episodes in the order in which they were drawn.

        Raises:
            EmptyStorageError: nothing is stored yet.
            ValueError: a number is less than 1, or ``mini_batch_size`` None, which only on-policy storages can make
                sense of.
        """
        self._refuse_if_empty()
        if mini_batch_size is None:
            raise ValueError(f"{type(self).__name__}: a replay buffer needs a mini_batch_size, got None")
        for name, number in (
            ("num_mini_batch", num_mini_batch),
            ("mini_batch_size", mini_batch_size),
            ("num_epochs", num_epochs),
        ):
            if number < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {number}")
        updates = num_epochs * num_mini_batch
        return (self._batch(mini_batch_size, update, updates) for update in range(1, updates + 1))

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adds how old the rows of the batch were, in steps, and how often a transition was replayed so far."""
        indices = batch[INDICES]
        # A tensor's mean on another device is not waited for; here numpy's is quicker.
        mean = indices.numpy().mean() if indices.device.type == "cpu" else indices.double().mean()
        age = self._ring.steps - 1 - mean / self._ring.envs
        return {**info, "storage/row_age": age, "storage/replay_ratio": self._sampled / max(1, self._inserted)}

    def _batch(self, batch_size: int, update: int, updates: int) -> Batch:
        rows = self._choose(batch_size, update, updates)
        if self.sequences is None:
            fields = self._fields(rows.transitions)
            self._sampled += batch_size
        else:
            layout = self._lay_out(rows.transitions, self.sequences)
            fields = self._fields_of_steps(layout)
            self._sampled += layout.learnt_steps
        fields[WEIGHTS] = rows.weights
        fields[INDICES] = rows.transitions[:, None]
        return to_batch(fields, self.device)

    def _lay_out(self, first: NDArray[np.int64], sequences: Sequences | Episodes) -> Layout | Packing:
        """The steps of the sequences or episodes that begin with some transitions (B,)."""
        if isinstance(sequences, Sequences):
            return laid_out(self._ring, first, sequences, self.n_step - 1)
        assert self._starts is not None
        lengths = self._starts.lengths(first)
        if sequences.packed:
            return packing_of(self._ring, first, lengths)
        # Windows do not reach beyond an episode, only beyond a piece of one.
        lead_out = 0 if sequences.longest is None else self.n_step - 1
        return episodes_laid_out(self._ring, first, lengths, sequences, lead_out)

    def _fields_of_steps(self, layout: Layout | Packing) -> dict[str, Any]:
        ring, transitions = self._ring, layout.transitions.ravel()
        fields = self._fields(transitions, keys_of_steps(ring), layout.runs)
        lengths = windows.windows_of(ring, transitions, self.n_step, self.algorithm.gamma).lengths
        if isinstance(layout, Layout):
            return put_together(ring, layout, fields, lengths)
        return put_together_packed(ring, layout, fields, lengths)

    def _choose(self, batch_size: int, update: int, updates: int) -> Rows:
        """The rows of the ``update``-th of ``updates`` batches of an update phase."""
        return self._choose_uniformly(batch_size, self._ring.start)

    def _choose_uniformly(self, batch_size: int, first: int) -> Rows:
        sequences = self.sequences
        if isinstance(sequences, Episodes):
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

    def _fields(
        self, transitions: NDArray[np.int64], keys: set[str] | None = None, runs: Runs | None = None
    ) -> dict[str, Any]:
        """What the batch holds of rows, DISCOUNT too.

        Args:
            transitions: (N,), their numbers.
            keys: fields to fetch; all of them where None.
            runs: the sequences or episodes that rows are of; None where each row is for itself.
        """
        return windows.one_step(self._ring, transitions, self.algorithm.gamma, keys)

    @property
    def _knows_episodes(self) -> bool:
        """Whether episodes are followed from the first insertion on."""
        return isinstance(self.sequences, Episodes)

    def _index_episodes(self, begun: NDArray[np.int64] | None = None) -> None:
        """Follow the episodes of what is stored, and of what comes."""
        self._episodes = EpisodeIndex(self._ring, begun)
        if isinstance(self.sequences, Episodes):
            self._starts = EpisodeStarts(self._ring, self._episodes, self.sequences)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the stored fields, and where episodes begin and end, take, free room included."""
        return super().nbytes + sum(part.nbytes for part in (self._episodes, self._starts) if part is not None)

    def state_dict(self) -> dict[str, Any]:
        """Everything, the random generator too, as tensors and plain data: the next batch is the same batch."""
        begun = None if self._episodes is None else torch.from_numpy(self._episodes.begun)
        return super().state_dict() | {"inserted": self._inserted, "sampled": self._sampled, "episodes_begun": begun}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved.

        Raises:
            ValueError: it was saved with another size or number of environments.
        """
        super().load_state_dict(state)
        self._inserted, self._sampled = state["inserted"], state["sampled"]
        begun = state["episodes_begun"]
        self._episodes, self._starts = None, None
        if begun is not None:
            self._index_episodes(begun.numpy())
