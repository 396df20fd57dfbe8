"""The plain replay buffer: every stored transition is as likely as any other."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core import samplers, windows
from storages.core.sequences import keys_of_steps, laid_out, put_together
from storages.core.transfer import to_batch
from storages.hyper_parameters import Count
from storages.persistent.journalled_storage import JournalledStorage
from storages.sequences import Sequences
from storages.storage import Discounting, Environments
from storages.transition import INDICES, WEIGHTS, Batch, Sample


class Rows(NamedTuple):
    """What a batch is made of."""

    transitions: NDArray[np.int64]
    """(B,): numbers of the transitions that its rows begin with."""
    weights: NDArray[np.float32]
    """(B, 1): their importance weights."""


class ReplayBuffer(JournalledStorage):
    """Uniform experience replay, after Lin, "Self-Improving Reactive Agents" (Machine Learning 8, 1992).

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        sequences: make batches of sequences of steps, time first, instead of single transitions.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    on_policy = False
    unchangeable = JournalledStorage.unchangeable | {"sequences"}
    n_step = 1

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        sequences: Sequences | None = None,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.sequences = sequences
        self._inserted = 0
        self._sampled = 0
        super().__init__(device, actor, algorithm, envs, size, directory, commit_every, durable, allow_nonfinite)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse sequences that do not fit."""
        super().check_hyper_parameters(hyper_parameters)
        size, sequences = hyper_parameters["size"], hyper_parameters["sequences"]
        if sequences is not None and size < (needed := sequences.length + sequences.stride - 1):
            raise ValueError(
                f"{cls.__name__}: size must be at least {needed} for {sequences} to begin anywhere, got {size}"
            )

    def insert_transition(self, sample: Sample) -> None:
        """Store one step, a transition for each environment.

        Raises:
            SampleError: the sample does not fit; nothing of it was stored.
            PersistenceError: earlier steps could not be written to the directory; nothing of this one was stored.
        """
        super().insert_transition(sample)
        self._inserted += self.num_envs

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """``num_epochs * num_mini_batch`` batches of ``mini_batch_size`` transitions, drawn with replacement.

        Each is drawn when it is asked for. Beside what was inserted, a batch holds DISCOUNT, WEIGHTS and INDICES.

        Of ``sequences``, a batch holds ``mini_batch_size``: fields are (T, B, ...), RHS (B, *hidden) is the memory
        before the first step, RHS2 is not there; DONE says where memory starts anew. MASK, WINDOW, BURN_IN (where
        there is a burn-in) and LEAD_OUT (where ``n_step`` is above 1) are there too; WEIGHTS and INDICES, of the first
        step, stay (B, 1). Sequences begin where all of their steps are stored, as soon as that is possible.

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
            fields = self._fields_of_sequences(rows.transitions, self.sequences)
            self._sampled += batch_size * self.sequences.length
        fields[WEIGHTS] = rows.weights
        fields[INDICES] = rows.transitions[:, None]
        return to_batch(fields, self.device)

    def _fields_of_sequences(self, first: NDArray[np.int64], sequences: Sequences) -> dict[str, Any]:
        ring = self._ring
        layout = laid_out(ring, first, sequences, self.n_step - 1)
        transitions = layout.transitions.ravel()
        fields = self._fields(transitions, keys_of_steps(ring), len(first))
        lengths = windows.windows_of(ring, transitions, self.n_step, self.algorithm.gamma).lengths
        return put_together(ring, layout, fields, lengths, sequences)

    def _choose(self, batch_size: int, update: int, updates: int) -> Rows:
        """The rows of the ``update``-th of ``updates`` batches of an update phase."""
        return self._choose_uniformly(batch_size, self._ring.start)

    def _choose_uniformly(self, batch_size: int, first: int) -> Rows:
        first, end = self._where_to_begin(first)
        if self.sequences is None or self.sequences.stride == 1:
            transitions = samplers.uniform(self._generator, first, end, batch_size)
        else:
            stride, envs = self.sequences.stride, self._ring.envs
            transitions = samplers.uniform_in_steps(self._generator, first, end, envs, stride, batch_size)
        return Rows(transitions, np.ones((batch_size, 1), np.float32))

    def _where_to_begin(self, first: int) -> tuple[int, int]:
        """Numbers of the first transition, not before ``first``, and after the last that a row may begin with."""
        ring = self._ring
        if self.sequences is None:
            return first, ring.end
        latest = max(ring.oldest, ring.steps - self.sequences.length)
        # At least one step whose number is a multiple of the stride, if there is any.
        multiple = max(ring.oldest, latest - latest % self.sequences.stride)
        return min(first // ring.envs, multiple) * ring.envs, (latest + 1) * ring.envs

    def _fields(
        self, transitions: NDArray[np.int64], keys: set[str] | None = None, apart: int | None = None
    ) -> dict[str, Any]:
        """What the batch holds of rows, DISCOUNT too.

        Args:
            transitions: (N,), their numbers.
            keys: fields to fetch; all of them where None.
            apart: how many rows further the next step of a sequence is; None where each row is for itself.
        """
        return windows.one_step(self._ring, transitions, self.algorithm.gamma, keys)

    def _state_beside_the_ring(self) -> dict[str, Any]:
        return super()._state_beside_the_ring() | {"inserted": self._inserted, "sampled": self._sampled}

    def _load_beside_the_ring(self, state: Mapping[str, Any]) -> None:
        super()._load_beside_the_ring(state)
        self._inserted, self._sampled = state["inserted"], state["sampled"]
