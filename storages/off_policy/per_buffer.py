"""Prioritised experience replay."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.annotations import conform_named
from storages.component.declared import parameter
from storages.component.hyper_parameters import (
    InitialError,
    NonNegative,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import Schedule, value_at
from storages.core.kernels.step_windows import sequence_errors
from storages.core.parts import Sampler
from storages.core.sampling.prioritized import Priorities
from storages.core.sampling.prioritized_sampler import PrioritizedSampler
from storages.core.sampling.priority_trees import PrioritySettings, compute_priorities
from storages.core.sampling.update_errors import finite_errors
from storages.off_policy.nstep_buffer import NStepReplayBuffer

_SMALLEST_CHANGE_OF_ALPHA = 0.005
# With a uniform share, rows of priority 0 can be drawn too; a lower bound keeps the largest weight known.
_SMALLEST_PRIORITY = 1e-200


class PERBuffer(NStepReplayBuffer):
    """Prioritised experience replay, proportional or rank-based: Schaul et al., arXiv 1511.05952.

    With ``prefetch``, a batch is drawn without the TD errors of the last ``prefetch`` updates.

    On a CUDA device the host does not wait for updates: their TD errors are copied asynchronously, and change
    priorities at the second draw after the update, or at the next insertion or save if that is earlier.

    Args:
        epsilon: added to the magnitude of each TD error; with 0, a transition whose error is 0 is not drawn any more.
        alpha: exponent of priorities: 0 draws uniformly, at no extra cost, 1 in proportion to errors. A change
            recomputes all priorities, so a schedule is followed in steps of 0.005.
        beta: exponent of importance weights, from 0 (no correction) to 1 (full correction).
        default_error: error of a transition that has not been in an update yet, bounded by the largest error of any
            update so far. "largest": that one. "first": such transitions are drawn before others, as in PyTorchRL,
            which has no bound.
        weights_over: normalise weights by the largest one of all "stored" transitions, or of the "batch"; "none" leaves
            ``(N P(i))**-beta``.
        stratified: draw each row of a batch from its own stratum of the total priority (appendix B.2.1) instead of
            independently.
        prioritization: "proportional", priorities ``(|error| + epsilon)**alpha``, or "rank", ``(1 / rank)**alpha``,
            rank 1 being the largest error: outliers and the scale of rewards make no difference. ``epsilon`` does not
            change ranks; equal errors share their mean rank, and ranks above 15 are rounded, by a ninth at most.
        uniform_share: expected part of each batch that is drawn uniformly instead of by priority. Importance
            weights are those of the mixture, ``uniform_share / N + (1 - uniform_share) * P(i)``.
        error_min: lower bound to which errors are clipped.
        error_max: upper bound to which errors are clipped; None for no bound.
    """

    epsilon: NonNegative = parameter(default=0.0, kw_only=False)
    alpha: UnitIntervalOrSchedule = parameter(default=0.0, kw_only=False)
    beta: UnitIntervalOrSchedule = parameter(default=1.0, kw_only=False)
    default_error: InitialError = parameter(default=1_000_000.0, kw_only=False)
    weights_over: Literal["stored", "batch", "none"] = "stored"
    stratified: bool = True
    prioritization: Literal["proportional", "rank"] = "proportional"
    uniform_share: UnitInterval = 0.0
    error_min: NonNegative = 0.0
    error_max: Positive | None = None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse contradictory bounds of errors, and priorities with draws without replacement, too."""
        super().check_hyper_parameters(hyper_parameters)
        draws, alpha = hyper_parameters["draws"], hyper_parameters["alpha"]
        if draws != "with replacement" and alpha != 0:
            raise ValueError(
                f"{cls.__name__}: alpha must be 0 with draws={draws!r}, got {alpha}: importance weights assume "
                f"draws with replacement"
            )
        low, high = hyper_parameters["error_min"], hyper_parameters["error_max"]
        if high is not None and low > high:
            raise ValueError(f"{cls.__name__}: error_min must be at most error_max={high:g}, got {low:g}")

    def make_sampler(self) -> Sampler:
        """Make the prioritised sampler, or a uniform one for draws without replacement."""
        if self.draws != "with replacement":
            return super().make_sampler()
        return PrioritizedSampler(self.ring, self._transfer, self.sequences, self._tracker)

    def configure(self) -> None:
        """Pass the current hyper-parameters on to the parts; priorities are recomputed where they depend on them."""
        super().configure()
        if not isinstance(self.sampler, PrioritizedSampler):
            # Draws without replacement, or a sampler of a subclass.
            return
        self.sampler.beta, self.sampler.stratified = value_at(self.beta, *self.progress), self.stratified
        self.sampler.weights_over, self.sampler.uniform_share = self.weights_over, self.uniform_share
        self.sampler.configure(
            self._priority_settings(),
            self.default_error,
            _SMALLEST_CHANGE_OF_ALPHA if isinstance(self.alpha, Schedule) else None,
        )

    def _priority_settings(self) -> PrioritySettings:
        return PrioritySettings(
            self.epsilon,
            value_at(self.alpha, *self.progress),
            self.prioritization == "rank",
            self.error_min,
            math.inf if self.error_max is None else self.error_max,
            _SMALLEST_PRIORITY if self.uniform_share else 0.0,
        )

    def get_priority(self, error: Any) -> NDArray[np.float64]:
        """Return the priorities ``(|error| + epsilon)**alpha`` that TD errors give, as :attr:`priorities` holds them.

        They are what an update with these errors sets; nothing is changed. Errors are clipped to ``error_min`` and
        ``error_max``, and rounded to float32.

        Args:
            error: a number, an array or a tensor of TD errors, of any shape.

        Returns:
            The priorities, in the shape of the errors.

        Raises:
            ValueError: an error is no finite number, or priorities are ranks among all stored errors.
        """
        if self.prioritization == "rank":
            raise ValueError(
                f"{type(self).__name__}: with prioritization='rank' a priority depends on all stored errors; see "
                f"priorities.values"
            )
        settings = self._priority_settings() if self.priorities is None else self.priorities.settings
        magnitudes = np.abs(finite_errors(error, type(self).__name__)).astype(np.float64)
        return compute_priorities(magnitudes.reshape(-1), settings).reshape(magnitudes.shape)

    def get_sequence_priority(self, sequence_data: Any, eta: UnitInterval = 0.9) -> NDArray[np.float32]:
        """Return the errors ``eta * max + (1 - eta) * mean`` of sequences, from those of their steps.

        An update with ``sequences`` computes the errors of its rows in this way, by ``eta`` of :class:`Sequences` or
        :class:`Episodes`, and their priorities by :meth:`get_priority`.

        Args:
            sequence_data: array or tensor (T, ...) of the TD errors of the steps, of which the magnitudes count, or of
                priorities.
            eta: weight of the largest, in [0, 1].

        Returns:
            The errors (...) of the sequences.

        Raises:
            ValueError: there are no steps, a value is no finite number, or ``eta`` lies outside [0, 1].
        """
        owner = type(self).__name__
        eta, errors = conform_named(eta, UnitInterval, f"{owner}: eta"), finite_errors(sequence_data, owner)
        if errors.ndim == 0 or len(errors) == 0:
            raise ValueError(f"{owner}: sequence_data must have a first axis of at least one step, got {errors.shape}")
        steps, count = len(errors), errors[0].size
        of_sequences = np.tile(np.arange(count), steps)
        return sequence_errors(errors.reshape(-1), of_sequences, count, eta).reshape(errors.shape[1:])

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the stored transitions; None until an ``alpha`` above 0 first needs them."""
        return self.sampler.priorities if isinstance(self.sampler, PrioritizedSampler) else None

    @property
    def _prioritized(self) -> PrioritizedSampler:
        assert isinstance(self.sampler, PrioritizedSampler)
        return self.sampler
