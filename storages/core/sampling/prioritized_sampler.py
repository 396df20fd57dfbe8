"""Prioritised sampling, with priorities from the TD errors of updates."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from storages.component.hyper_parameters import InitialError
from storages.core.device.transfer import Transfer
from storages.core.kernels.priority_updates import effective_sample_size, errors_of_starts
from storages.core.parts import Mass, Request, Rows, Sampler, Window
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.core.sampling.prioritized import (
    BYTES_OF_A_TRANSITION,
    Chosen,
    Priorities,
    importance_weights,
    state_without_errors,
)
from storages.core.sampling.priority_trees import BYTES_OF_A_HISTOGRAM, BYTES_OF_A_RANK, PrioritySettings
from storages.core.sampling.update_errors import (
    PendingErrors,
    errors_of_sequences,
    errors_of_update,
    tensor_of_errors,
)
from storages.sequence_settings import MultiStepRows
from storages.transition import EPISODE, INDICES, MASK, WEIGHTS, Batch

_ROUNDING_BYTES = 256
"""Most bytes by which a tree is larger than :attr:`PrioritizedSampler.bytes_of_a_transition` says."""


class PrioritizedSampler(Sampler):
    """Draws rows in proportion to their priorities.

    Priorities are made when ``alpha`` is first greater than 0; until then rows are drawn uniformly, at no extra cost.

    Args:
        ring: the ring of the transitions.
        transfer: fetches errors from the device.
        sequences: settings of rows of more than one step.
        tracker: index of the ring's episodes, for rows that are episodes.
    """

    def __init__(
        self,
        ring: Ring,
        transfer: Transfer,
        sequences: MultiStepRows | None = None,
        tracker: EpisodeTracker | None = None,
    ) -> None:
        self.priorities: Priorities | None = None
        self._ring, self._transfer, self._sequences = ring, transfer, sequences
        self._tracker = tracker if sequences is not None and sequences.is_of_episodes else None
        self._stride = 1 if sequences is None else sequences.stride
        self._eta = 1.0 if sequences is None else sequences.eta
        self.late = PendingErrors(self._eta)
        """Errors of updates on a device that the host does not wait for."""
        self._settings = PrioritySettings(alpha=0.0)
        self._default_error: InitialError = "largest"
        self._follows_schedule = False
        self.beta, self.stratified, self.uniform_share = 1.0, True, 0.0
        """Hyper-parameters, see :class:`storages.PERBuffer`."""
        self.weights_over: Literal["stored", "batch", "none"] = "stored"
        """Likewise."""

    def configure(self, settings: PrioritySettings, default_error: InitialError, smallest_change: float | None) -> None:
        """Set how priorities are computed from errors.

        Args:
            settings: of the priorities.
            default_error: error of transitions that have not been in an update yet.
            smallest_change: change of ``alpha`` up to which priorities are not recomputed, because a schedule changes
                ``alpha`` in small steps; None without a schedule.
        """
        self._settings, self._default_error = settings, default_error
        self._follows_schedule = smallest_change is not None
        priorities = self.priorities
        if priorities is None:
            return
        if priorities.default_error != default_error:
            priorities.set_default_error(default_error)
        change = abs(settings.alpha - priorities.settings.alpha)
        if change > (smallest_change or 0.0) or settings != priorities.settings._replace(alpha=settings.alpha):
            priorities.rescale(settings)

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch, and their importance weights."""
        priorities = self.priorities
        if self.late.updates and priorities is not None:
            self.late.begin_draw(priorities.update)
        if self._settings.alpha == 0:
            return request.uniform()
        if priorities is None:
            priorities = self._made_priorities()
        generator, ring, window, batch_size, first, _, _ = request
        count = batch_size
        if self.uniform_share:
            # Random rounding, so that the expected number of uniform rows is exactly the share.
            count -= int(self.uniform_share * batch_size + generator.random())
        chosen = priorities.choose(generator, *window.begins(ring, first), count, stratified=self.stratified)
        if chosen is None:
            return request.uniform()
        if self.uniform_share:
            return self._mixed(priorities, chosen, request)
        if self.weights_over == "stored":
            unit = priorities.tree.minimum
        elif self.weights_over == "batch":
            unit = chosen.priorities.min()
        else:
            unit = chosen.total / window.candidates(ring, first).count
        return Rows(chosen.transitions, importance_weights(chosen.priorities, self.beta, unit))

    def mass(self, ring: Ring, window: Window) -> Mass:
        """Return the number of rows and their current total priority."""
        uniform = super().mass(ring, window)
        if self._settings.alpha == 0:
            return uniform
        priorities = self._made_priorities()
        total = priorities.drawable_mass(*window.begins(ring, ring.start))[0]
        if total <= 0:
            return Mass(uniform.rows, 0.0)
        share = self.uniform_share
        if self.weights_over == "none":
            return Mass(uniform.rows, total, 1.0, self.beta, share, is_normalised=False)
        smallest = share + (1 - share) * uniform.rows / total * priorities.tree.minimum
        return Mass(uniform.rows, total, smallest, 0.0 if self.weights_over == "batch" else self.beta, share)

    def take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Set the errors (N,) of the newest transitions, from number ``first`` on, or those of sequences and episodes.

        Where an error is NaN, the transition, or the sequence or episode that it belongs to, keeps its initial error.
        Where a sequence or an episode is not stored as a whole yet, the errors of its stored steps are used.

        Raises:
            ValueError: an error is infinite as float32; no priority was changed.
        """
        if self._settings.alpha == 0:
            return
        priorities = self._made_priorities()
        transitions = np.arange(first, first + len(errors))
        if self._sequences is not None:
            transitions, errors = self._errors_of_starts(priorities, transitions, errors)
        known = ~np.isnan(errors)
        priorities.update(transitions[known], errors[known])

    def _mixed(self, priorities: Priorities, chosen: Chosen, request: Request) -> Rows:
        """Add uniform rows to the batch; importance weights are those of the mixture distribution."""
        generator, ring, window, batch_size, first, _, _ = request
        share, uniform_rows = self.uniform_share, batch_size - len(chosen.transitions)
        scale = window.candidates(ring, first).count / chosen.total
        uniform = window.uniform(generator, ring, first, uniform_rows)
        transitions = np.concatenate([chosen.transitions, uniform])
        masses = np.concatenate([chosen.priorities, priorities.of(uniform)])
        # Probability of each row, relative to a uniform draw.
        probabilities = share + (1 - share) * scale * masses
        if self.weights_over == "stored":
            unit = share + (1 - share) * scale * priorities.tree.minimum
        else:
            unit = probabilities.min() if self.weights_over == "batch" else 1.0
        return Rows(transitions, importance_weights(probabilities, self.beta, unit))

    def after_update(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Update priorities by the errors in ``info``, and return metrics."""
        priorities = self.priorities
        if priorities is None:
            return {}
        indices, weights, owner = batch[INDICES], batch[WEIGHTS], self._ring.owner
        steps = () if self._sequences is None else (batch[EPISODE if EPISODE in batch else MASK],)
        shape = (steps[0] if steps else indices).shape
        sample_size: Any
        if self._transfer.is_asynchronous:
            # The metric is a tensor, so that the host need not wait for the device.
            fetched = self._transfer.fetch(indices, tensor_of_errors(info, shape, owner), *steps)
            self.late.updates.append(fetched)
            weights = weights.double()
            sample_size = weights.sum() ** 2 / (weights.square().sum() * len(weights))
        else:
            errors = errors_of_update(info, shape, owner)
            if steps:
                errors = errors_of_sequences(errors, steps[0].numpy(force=True), len(indices), self._eta)
            priorities.update(indices.numpy(force=True)[:, 0], errors)
            sample_size = effective_sample_size(weights.numpy(force=True))
        return {
            "storage/mean_priority": priorities.mean,
            "storage/largest_priority": priorities.tree.maximum,
            "storage/effective_sample_size": sample_size,
        }

    # Observer of the ring

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Give the newest steps the initial error."""
        if self.priorities is not None:
            self.priorities.inserted(steps)
            if self.late.updates:
                self.settle()

    def after_end(self, ring: Ring, envs: NDArray[np.int64]) -> None:
        """Give episodes that can be drawn from now on the initial error."""
        if self.priorities is not None:
            self.priorities.ended()

    def after_resize(self, ring: Ring) -> None:
        """Keep the errors and priorities of stored transitions."""
        if self.priorities is not None:
            self.priorities.resized(None if self._tracker is None else self._tracker.starts)

    def steps_at_once(self, ring: Ring) -> int:
        """Return half of the ring, the most that :meth:`Priorities.inserted` takes."""
        return ring.size // 2

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Wait for errors in transfer from a device."""
        if rows:
            self.settle()

    def settle(self) -> None:
        """Wait for errors in transfer from a device, and update priorities."""
        if self.priorities is not None:
            self.late.settle(self.priorities.update)

    def after_change(self, ring: Ring) -> None:
        """Drop the priorities of a ring that was emptied."""
        if self.priorities is not None and ring.steps == ring.first:
            self.priorities.reset()

    def forget(self) -> None:
        """Drop all priorities, and errors in transfer."""
        self.priorities, self.late = None, PendingErrors(self._eta)

    def state_dict(self) -> dict[str, Any]:
        """Return a summary of the priorities; the errors of transitions are saved separately."""
        self.settle()
        return {"priorities": None if self.priorities is None else state_without_errors(self.priorities)}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the priorities, if the state has any."""
        saved = state.get("priorities")
        self.forget()
        if saved is not None:
            self.priorities = self._new_priorities()
            self.priorities.load_state_dict(saved)
            if self._follows_schedule:
                # Priorities were computed with an earlier value of the schedule.
                self.priorities.rescale(self._settings._replace(alpha=saved["alpha"]))

    @property
    def bytes_of_a_transition(self) -> int:
        """Bytes of an error and a priority; 0 where there are none."""
        settings = self._settings
        if settings.alpha == 0 and not self._follows_schedule:
            return 0
        return BYTES_OF_A_TRANSITION + (BYTES_OF_A_RANK if settings.by_rank else 0)

    @property
    def bytes_apart(self) -> int:
        """Bytes that levels of the tree are rounded by, and of the histogram from which ranks follow."""
        if not self.bytes_of_a_transition:
            return 0
        return _ROUNDING_BYTES + (BYTES_OF_A_HISTOGRAM if self._settings.by_rank else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0 if self.priorities is None else self.priorities.nbytes

    # Internals

    def _errors_of_starts(
        self, priorities: Priorities, transitions: NDArray[np.int64], errors: NDArray[np.floating]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the newest transitions, of consecutive ones, at which rows begin, and the errors of these rows."""
        ring, sequences, first = self._ring, self._sequences, int(transitions[0])
        assert sequences is not None
        if self._tracker is None:
            starts = transitions[transitions // ring.envs % self._stride == 0]
        else:
            starts = priorities.drawn
            starts = starts[starts >= first]
        longest, across = sequences.longest_row, sequences.across_episodes
        steps = np.arange(first // ring.envs, ring.steps)
        broken = (ring.columns.finals.numbers[steps % ring.rows] >= 0).ravel()
        return starts, errors_of_starts(errors, broken, starts - first, ring.envs, longest, across, self._eta)

    def _made_priorities(self) -> Priorities:
        """Return the priorities, made on first use."""
        if self.priorities is None:
            self.priorities = self._new_priorities()
            self.priorities.fill()
        return self.priorities

    def _new_priorities(self) -> Priorities:
        starts = None if self._tracker is None else self._tracker.starts
        return Priorities(self._ring, self._settings, self._stride, starts, self._default_error)
