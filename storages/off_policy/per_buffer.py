"""Prioritised replay: what the algorithm was wrong about comes back more often."""

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
from storages.core.parts import Sampler
from storages.core.sampling.prioritized import Priorities
from storages.core.sampling.prioritized_sampler import PrioritizedSampler
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.storage import Discounting, Environments
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

    def make_sampler(self) -> Sampler:
        """Make the sampler by priority."""
        return PrioritizedSampler(self._ring, self._transfer, self.sequences, self._tracker)

    def configure(self) -> None:
        """Give the parts the present values of hyper-parameters; all priorities follow ``alpha`` and ``epsilon``."""
        super().configure()
        self._prioritized.configure(
            self.epsilon,
            self._current(self.alpha),
            self._current(self.beta),
            self.default_error,
            self.weights_over,
            self.stratified,
            _SMALLEST_CHANGE_OF_ALPHA if isinstance(self.alpha, Schedule) else None,
        )

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

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the stored transitions; None while ``alpha`` is 0 and none were needed."""
        return self._prioritized.priorities

    @property
    def _prioritized(self) -> PrioritizedSampler:
        assert isinstance(self.sampler, PrioritizedSampler)
        return self.sampler
