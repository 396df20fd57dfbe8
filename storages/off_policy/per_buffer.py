"""Prioritised replay: what the algorithm was wrong about comes back more often."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import (
    InitialError,
    NonNegative,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import Schedule
from storages.core.parts import Sampler
from storages.core.sampling.prioritized import Priorities
from storages.core.sampling.prioritized_sampler import PrioritizedSampler
from storages.core.sampling.priority_trees import PrioritySettings
from storages.off_policy.nstep_buffer import NStepReplayBuffer

_SMALLEST_CHANGE_OF_ALPHA = 0.005
# Of what only uniform rows can be, so that the largest importance weight is known.
_SMALLEST_PRIORITY = 1e-200


@with_hyper_parameters
class PERBuffer(NStepReplayBuffer):
    """Replay by priority, of errors or of their ranks: Schaul et al., arXiv 1511.05952.

    With ``prefetch``, a batch is drawn before the errors of the last ``prefetch`` updates are known, however fast the
    learner is.

    On a CUDA device no update is waited for: its errors travel to the host while the device goes on, and count from the
    second draw after it, or from when something is next inserted or saved.

    Args:
        epsilon: added to errors; with 0, a transition without an error is not drawn any more.
        alpha: 0 draws uniformly, and then costs nothing more; 1 in proportion to errors. All priorities follow a
            change, which takes time, so those of a schedule are followed in steps of 0.005.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; it counts as at most the largest error of any
            update so far, once there is one. "largest": that one. "first": such transitions are drawn before others.
        weights_over: what the largest weight is 1 of: all that is "stored", or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority (appendix B.2.1) instead of
            independently.
        prioritization: "proportional", priorities ``(|error| + epsilon)**alpha``, or "rank", ``(1 / rank)**alpha``,
            rank 1 being the largest error: outliers and the scale of rewards make no difference. ``epsilon`` does not
            change ranks; equal errors share their mean rank, and ranks above 15 are rounded, by a ninth at most.
        uniform_share: part of each batch that is drawn uniformly beside the prioritised rows, on average. Importance
            weights are those of the mixture, ``uniform_share / N + (1 - uniform_share) * P(i)``.
        error_min: smaller errors count as this one.
        error_max: larger errors count as this one; None for no bound.
    """

    epsilon: NonNegative = parameter(default=0.0, kw_only=False)
    alpha: UnitIntervalOrSchedule = parameter(default=0.0, kw_only=False)
    beta: UnitIntervalOrSchedule = parameter(default=1.0, kw_only=False)
    default_error: InitialError = parameter(default=1_000_000.0, kw_only=False)
    weights_over: Literal["stored", "batch"] = "stored"
    stratified: bool = True
    prioritization: Literal["proportional", "rank"] = "proportional"
    uniform_share: UnitInterval = 0.0
    error_min: NonNegative = 0.0
    error_max: Positive | None = None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse bounds of errors that exclude each other, and priorities without replacement, too."""
        super().check_hyper_parameters(hyper_parameters)
        draws, alpha = hyper_parameters["draws"], hyper_parameters["alpha"]
        if draws != "with replacement" and alpha != 0:
            raise ValueError(
                f"{cls.__name__}: alpha must be 0 with draws={draws!r}, got {alpha}: importance weights are of rows "
                f"that are drawn with replacement"
            )
        low, high = hyper_parameters["error_min"], hyper_parameters["error_max"]
        if high is not None and low > high:
            raise ValueError(f"{cls.__name__}: error_min must be at most error_max={high:g}, got {low:g}")

    def make_sampler(self) -> Sampler:
        """Make the sampler by priority; there are none where rows are drawn without replacement."""
        if self.draws != "with replacement":
            return super().make_sampler()
        return PrioritizedSampler(self._ring, self._transfer, self.sequences, self._tracker)

    def configure(self) -> None:
        """Give the parts the present values of hyper-parameters; all priorities follow ``alpha`` and ``epsilon``."""
        super().configure()
        if not isinstance(self.sampler, PrioritizedSampler):
            # Without replacement, or as a subclass says.
            return
        self.sampler.beta, self.sampler.stratified = self._current(self.beta), self.stratified
        self.sampler.over_batch, self.sampler.uniform_share = self.weights_over == "batch", self.uniform_share
        self.sampler.configure(
            PrioritySettings(
                self.epsilon,
                self._current(self.alpha),
                self.prioritization == "rank",
                self.error_min,
                math.inf if self.error_max is None else self.error_max,
                _SMALLEST_PRIORITY if self.uniform_share else 0.0,
            ),
            self.default_error,
            _SMALLEST_CHANGE_OF_ALPHA if isinstance(self.alpha, Schedule) else None,
        )

    def get_priority(self, error: Any) -> Any:
        """``(|error| + epsilon)**alpha`` of a number or an array of errors.

        Raises:
            ValueError: priorities are those of ranks, which follow from all errors together.
        """
        if self.prioritization == "rank":
            raise ValueError(
                f"{type(self).__name__}: with prioritization='rank' a priority follows from all stored errors; "
                f"priorities.values has those of what is stored"
            )
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
        return self.sampler.priorities if isinstance(self.sampler, PrioritizedSampler) else None

    @property
    def _prioritized(self) -> PrioritizedSampler:
        assert isinstance(self.sampler, PrioritizedSampler)
        return self.sampler
