"""Prioritised replay: what the algorithm was wrong about comes back more often."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    InitialError,
    NonNegative,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import Schedule
from storages.core.kernels.priority_updates import effective_sample_size, mean_of
from storages.core.sampling.late_errors import LateUpdate
from storages.core.sampling.prioritized import Priorities, importance_weights
from storages.core.sampling.update_errors import errors_of_sequences, errors_of_update, tensor_of_errors
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.off_policy.replay_buffer import Rows
from storages.storage import Discounting, Environments
from storages.transition import EPISODE, INDICES, MASK, WEIGHTS, Batch
from storages.windows import Episodes, Sequences

_SMALLEST_CHANGE_OF_ALPHA = 0.005


class PERBuffer(NStepReplayBuffer):
    """Replay by priority ``(|error| + epsilon)**alpha``: Schaul et al., arXiv 1511.05952, the proportional variant.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        n_step: rewards in a return.
        epsilon: added to errors; with 0, a transition without an error is not drawn any more.
        alpha: 0 draws uniformly, and then costs nothing more; 1 in proportion to errors. All priorities follow a
            change, which takes time, so those of a schedule are followed in steps of 0.005.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; it counts as at most the largest error of any
            update so far, once there is one. "largest": that one. "first": such transitions are drawn before others.
        weights_over: what the largest weight is 1 of: all that is "stored", or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority (appendix B.2.1) instead of
            independently.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        prefetch: how many batches of an update phase a thread makes ahead while the learner computes with one. A batch
            is then drawn before the errors of the last ``prefetch`` updates are known, however fast the learner is.
        keep_on_device: keep observations and hidden states on ``device`` too, and make batches of them there.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
    """

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        n_step: Count = 1,
        epsilon: NonNegative = 0.0,
        alpha: UnitIntervalOrSchedule = 0.0,
        beta: UnitIntervalOrSchedule = 1.0,
        default_error: InitialError = 1_000_000.0,
        *,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | Episodes | None = None,
        prefetch: CountOrZero = 0,
        keep_on_device: bool = False,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.alpha = alpha
        self.beta = beta
        self.default_error = default_error
        self.weights_over = weights_over
        self.stratified = stratified
        self._priorities: Priorities | None = None
        """None while ``alpha`` is 0 and nobody asks for priorities."""
        super().__init__(
            device,
            actor,
            algorithm,
            envs,
            size,
            n_step,
            sequences=sequences,
            prefetch=prefetch,
            keep_on_device=keep_on_device,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    # What the learner calls

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Priorities follow the errors in ``info``; those of transitions that were overwritten since are left out.

        Adds the mean and the largest priority of what is stored, and the effective sample size of the batch's weights,
        1 where all are equal.

        On a CUDA device nothing is waited for: errors travel to the host while the device goes on, and count from the
        second draw after this, or from when something is next inserted or saved.

        Raises:
            ValueError: ``alpha`` is not 0, and ``info`` has no errors, errors of another shape than the batch has rows,
                or some that are not finite as float32, which on a CUDA device the draw says that they would count
                from. No priority was changed.
        """
        if self._priorities is None:
            return super().after_gradients(batch, info)
        if self._transfer.is_asynchronous:
            return super().after_gradients(batch, info) | self._update_later(self._priorities, batch, info)
        indices, owner = batch[INDICES].numpy(force=True), type(self).__name__
        if self.sequences is None:
            errors = errors_of_update(info, indices.shape, owner)
        else:
            steps = batch[EPISODE if EPISODE in batch else MASK].numpy(force=True)
            errors = errors_of_update(info, steps.shape, owner)
            errors = errors_of_sequences(errors, steps, len(indices), self.sequences.eta)
        self._priorities.update(indices[:, 0], errors)
        return {
            **info,
            **self._ages(mean_of(indices)),
            "storage/mean_priority": self._priorities.mean,
            "storage/largest_priority": self._priorities.largest,
            "storage/effective_sample_size": effective_sample_size(batch[WEIGHTS].numpy(force=True)),
        }

    def reset(self) -> None:
        """Empty, ready, memory kept."""
        self._settle_errors()
        super().reset()
        if self._priorities is not None:
            self._priorities.reset()

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Called before an update phase: how far the run has come, in environment transitions; schedules follow."""
        super().set_progress(steps, target_steps)
        if isinstance(self.alpha, Schedule):
            self._follow_alpha(_SMALLEST_CHANGE_OF_ALPHA)

    # What anyone may ask

    def get_priority(self, error: Any) -> Any:
        """``(|error| + epsilon)**alpha`` of a number or an array of errors."""
        return (np.abs(error) + self.epsilon) ** self._current(self.alpha)

    def get_sequence_priority(self, errors: NDArray[np.floating], eta: UnitInterval = 0.9) -> NDArray[np.floating]:
        """The priority of each sequence of errors (T, B): (B,), between that of its largest and of its mean error.

        Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section
        2.3: ``eta * max + (1 - eta) * mean``.
        """
        errors = np.abs(errors)
        priority: NDArray[np.floating] = self.get_priority(eta * errors.max(axis=0) + (1 - eta) * errors.mean(axis=0))
        return priority

    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the storage is in use; all priorities follow ``alpha`` and ``epsilon``.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range.
        """
        super().update_storage_parameter(name, value)
        if self._priorities is not None:
            self._priorities.default_error = self.default_error
        self._follow_alpha(0.0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the stored fields and their priorities take, free room included."""
        return super().nbytes + (self._priorities.nbytes if self._priorities is not None else 0)

    # Inside

    def _after_insertion(self, steps: int) -> None:
        super()._after_insertion(steps)
        if self._priorities is not None:
            self._priorities.inserted(steps)

    def _state_beside_the_ring(self) -> dict[str, Any]:
        self._settle_errors()
        summary = None if self._priorities is None else self._priorities.summary()
        return super()._state_beside_the_ring() | {"priorities": summary}

    def _load_beside_the_ring(self, state: Mapping[str, Any]) -> None:
        super()._load_beside_the_ring(state)
        self._priorities, saved = None, state.get("priorities")
        if saved is not None:
            self._priorities = self._new_priorities()
            self._priorities.load_state_dict(saved)
            if isinstance(self.alpha, Schedule):
                # Schedules are followed in steps: what priorities were made with is not what the schedule says now.
                self._priorities.rescale(self.epsilon, saved["alpha"])

    def _kept_priorities(self) -> Priorities | None:
        return self._priorities

    def _choose(self, batch_size: int, update: int, updates: int) -> Rows:
        first = self._first_of(update, updates)
        if self._priorities is not None and self._priorities.late.updates:
            self._priorities.begin_draw()
        if self._current(self.alpha) == 0:
            return self._choose_uniformly(batch_size, first)
        if self._priorities is None:
            self._begin_priorities()
        assert self._priorities is not None
        chosen = self._priorities.choose(
            self._generator, *self._where_to_begin(first), batch_size, stratified=self.stratified
        )
        if chosen is None:
            return self._choose_uniformly(batch_size, first)
        smallest = self._priorities.smallest if self.weights_over == "stored" else chosen.priorities.min()
        weights = importance_weights(chosen.priorities, self._current(self.beta), smallest)
        return Rows(chosen.transitions, weights)

    def _update_later(self, priorities: Priorities, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Begin the way of an update's errors to the host; returns what there is to say of priorities, in tensors."""
        indices, weights = batch[INDICES], batch[WEIGHTS].double()
        rows = [indices] if self.sequences is None else [indices, batch[EPISODE if EPISODE in batch else MASK]]
        errors = tensor_of_errors(info, tuple(rows[-1].shape), type(self).__name__)
        eta = 1.0 if self.sequences is None else self.sequences.eta
        priorities.late.add(LateUpdate(self._transfer.fetch(indices, errors, *rows[1:]), eta))
        return {
            "storage/mean_priority": priorities.mean,
            "storage/largest_priority": priorities.largest,
            "storage/effective_sample_size": weights.sum() ** 2 / (weights.square().sum() * len(weights)),
        }

    def _settle_errors(self) -> None:
        """Wait for the errors that are on their way from a device, and let them count."""
        if self._priorities is not None:
            self._priorities.settle()

    def _first_of(self, update: int, updates: int) -> int:
        """Number of the oldest transition that a batch may hold."""
        return self._ring.start

    def _begin_priorities(self) -> None:
        """Make priorities of what was stored while nobody asked for any."""
        self._priorities = self._new_priorities()
        self._priorities.fill()

    def _new_priorities(self) -> Priorities:
        stride = self.sequences.stride if isinstance(self.sequences, Sequences) else 1
        alpha = self._current(self.alpha)
        return Priorities(self._ring, self.epsilon, alpha, stride, self._starts, self.default_error)

    def _follow_alpha(self, smallest_change: float) -> None:
        priorities, alpha = self._priorities, self._current(self.alpha)
        if priorities is None:
            return
        if abs(alpha - priorities.alpha) > smallest_change or self.epsilon != priorities.epsilon:
            priorities.rescale(self.epsilon, alpha)
