"""Priorities of transitions, from the TD errors of their last updates.

Schaul et al., "Prioritized Experience Replay" (arXiv 1511.05952), the proportional and the rank-based variant.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from storages.component.hyper_parameters import InitialError
from storages.core.kernels.priority_updates import store_errors
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_starts import EpisodeStarts
from storages.core.sampling.priority_trees import PrioritySettings, ProportionalTree, tree_of

_LARGEST_BEFORE_ANY = 1.0
_FIRST = 1_000_000.0
_MOST_WAITING = 1_000
_LARGEST_RATIO = 1e37
"""Of two priorities: its inverse, a weight, is above 0 in float32."""
_NONE = np.empty(0, np.int64)
BYTES_OF_A_TRANSITION = 16
"""Bytes of an error, a leaf in the sum tree, and its share of inner nodes."""


class Chosen(NamedTuple):
    """Rows drawn by priority."""

    transitions: NDArray[np.int64]
    """(B,): their transition numbers."""
    priorities: NDArray[np.float64]
    """(B,): their priorities."""
    total: float
    """The total priority that they were drawn from."""


class Priorities:
    """The error of each live transition of a ring, and a sum tree of the priorities computed from them.

    Args:
        ring: the ring of the transitions; its number of environments must be known.
        settings: how priorities are computed from errors.
        stride: only steps whose number is a multiple of it have a priority; the others are not drawn.
        starts: starts of episodes, where only these have a priority.
        default_error: error of transitions that have not been in an update yet, bounded by the largest error of any
            update so far. "largest" is that one, "first" is a million, without a bound.
    """

    def __init__(
        self,
        ring: Ring,
        settings: PrioritySettings,
        stride: int = 1,
        starts: EpisodeStarts | None = None,
        default_error: InitialError = "largest",
    ) -> None:
        self._ring = ring
        self._stride = stride
        self._starts = starts
        self.settings = settings
        self._make_room()
        self.largest_error = _LARGEST_BEFORE_ANY
        """The largest error of any update; 1 before the first that is not 0."""
        self.knows_errors = False
        """Whether any update had an error that is not 0."""
        self.default_error = default_error
        self.initial_error = np.nan
        """The error of a transition that has not been in an update yet."""
        self._set_initial_error()
        self._changed: NDArray[np.bool_] | None = None
        """(leaves,): whether an error changed since the last call of :meth:`changes`; None before the first."""
        self._any_changed = False

    # Changes of the ring

    def inserted(self, steps: int) -> None:
        """Give the transitions of the newest steps, at most half of the ring, the initial error.

        The row of the next step loses its priority. Insertions into the tree are batched, and done before it is read.
        """
        if self._starts is not None:
            starts, envs = self._starts, self._ring.envs
            rows = (np.arange((steps + 1) * envs) + (self._ring.steps - steps) * envs) % self._leaves
            self._errors[rows[:-envs]] = self.initial_error
            # An episode whose first step was overwritten keeps its error, at its new first step.
            self._errors[starts.moved % self._leaves] = self._errors[(starts.moved - envs) % self._leaves]
            self._add(starts, rows)
        else:
            self._waiting += steps
            if self._waiting >= self._most_waiting:
                self._catch_up()

    def ended(self) -> None:
        """Give the episodes that were truncated after their newest steps the initial error."""
        if self._starts is not None:
            self._add(self._starts, _NONE)

    def resized(self, starts: EpisodeStarts | None) -> None:
        """Follow a change of the ring's capacity, with the same steps stored.

        Args:
            starts: starts of its episodes, where only these have a priority.
        """
        self._catch_up()
        live = np.arange(self._ring.start, self._ring.end)
        errors, changed = self._errors[live % self._leaves], self._changed
        changed = None if changed is None else changed[live % self._leaves]
        self._starts = starts
        self._make_room()
        self._errors[live % self._leaves] = errors
        if changed is not None:
            self._changed = np.zeros(self._leaves, np.bool_)
            self._changed[live % self._leaves] = changed
        self.rescale(self.settings)

    def _make_room(self) -> None:
        # One row more than is live: the next step is inserted before the oldest one is dropped.
        self._leaves = (self._ring.size + 1) * self._ring.envs
        self._tree = tree_of(self._leaves, self.settings)
        self._errors = np.zeros(self._leaves, np.float32)
        self._waiting, self._most_waiting = 0, min(_MOST_WAITING, max(1, self._ring.size // 2))
        """How many of the newest steps are not in the tree yet, and how many may be."""

    def _catch_up(self) -> None:
        """Insert pending steps into the tree."""
        waiting, self._waiting = self._waiting, 0
        if not waiting:
            return
        end, envs, stride = self._ring.steps, self._ring.envs, self._stride
        first, count = (end - waiting) * envs % self._leaves, waiting * envs
        self._errors[first : first + count] = self.initial_error
        if first + count > self._leaves:
            self._errors[: first + count - self._leaves] = self.initial_error
        self._tree.insert(first, count, envs)
        if stride > 1:
            transitions = np.arange((end - waiting) * envs, end * envs)
            self._tree.drop(transitions[transitions // envs % stride != 0] % self._leaves)

    def replace(self, gone: tuple[int, int], first: int, errors: NDArray[np.float32]) -> None:
        """Drop the transitions [``gone``), and add others from ``first`` on with their errors."""
        self._catch_up()
        transitions = np.arange(first, first + len(errors))
        rows = transitions % self._leaves
        if self._starts is None:
            drawn = transitions // self._ring.envs % self._stride == 0
        else:
            drawn = self._starts.among(transitions)
        self._errors[rows] = errors
        self._tree.drop(np.append(np.arange(*gone) % self._leaves, rows[~drawn]))
        self._tree.set_errors(rows[drawn], np.abs(errors[drawn]).astype(np.float64))

    def errors_of(self, first: int, end: int) -> NDArray[np.float32]:
        """Return the errors of the transitions [first, end), which must be live."""
        self._catch_up()
        return self._errors[np.arange(first, end) % self._leaves]

    def update(self, transitions: NDArray[np.int64], errors: NDArray[np.floating]) -> None:
        """Set the errors (B,) of transitions after an update; overwritten transitions are ignored.

        Raises:
            ValueError: the numbers of errors and transitions differ, or an error is not finite as float32. Nothing
                was changed.
        """
        if errors.shape != transitions.shape:
            # Compiled code does not check bounds of indices.
            raise ValueError(
                f"{self._ring.owner}: each transition needs one error, got errors of shape {errors.shape} for "
                f"transitions of shape {transitions.shape}; no priority was changed"
            )
        if self._waiting:
            self._catch_up()
        if self._stride > 1:
            # The first step of an episode between two rows shares the priority of the row before it.
            transitions = transitions - transitions // self._ring.envs % self._stride * self._ring.envs
        if self._starts is not None:
            drawn = self._starts.among(transitions)
            transitions, errors = transitions[drawn], errors[drawn]
        rows, magnitudes = np.empty(len(errors), np.int64), np.empty(len(errors), np.float64)
        live, largest = store_errors(
            transitions, errors, self._ring.start, self._ring.end, self._errors, rows, magnitudes
        )
        if live < 0:
            beyond = ", beyond what float32 holds" if np.isfinite(errors[live]) else ""
            raise ValueError(
                f"{self._ring.owner}: error {live + len(errors)} of the update is {errors[live]}{beyond}; no priority "
                f"was changed. The update has diverged"
            )
        self._tree.set_errors(rows[:live], magnitudes[:live])
        if self._changed is not None:
            self._changed[rows[:live]] = self._any_changed = True
        if largest > 0 and not self.knows_errors:
            # Bound the initial errors by the first known error that is not 0.
            self.largest_error, self.knows_errors = largest, True
            self._set_initial_error()
            if self.default_error != "first":
                np.minimum(self._errors, np.float32(largest), out=self._errors)
            self._changed = None
            self.rescale(self.settings)
        elif largest > self.largest_error:
            self.largest_error = largest
            self._set_initial_error()

    def bounded(self, errors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return errors, some of them initial ones, clipped to the largest error of any update."""
        if self.default_error == "first" or not self.knows_errors:
            return errors
        return np.minimum(errors, np.float32(self.largest_error))

    def fill(self) -> None:
        """Give all live transitions the initial error."""
        self._waiting = 0
        self._errors.fill(self.initial_error)
        self._changed = None
        self.rescale(self.settings)

    def reset(self) -> None:
        """Drop all transitions."""
        self._waiting = 0
        self._tree.clear()

    def rescale(self, settings: PrioritySettings) -> None:
        """Recompute all priorities with other settings."""
        self._catch_up()
        if settings.by_rank != self.settings.by_rank:
            self._tree = tree_of(self._leaves, settings)
        self.settings = settings
        self._tree.follow(settings)
        self._set_initial_error()
        live = self.drawn % self._leaves
        self._tree.fill_errors(live, np.abs(self._errors[live]).astype(np.float64))

    # Queries

    @property
    def tree(self) -> ProportionalTree:
        """The tree for reading, with all pending steps inserted and all priorities up to date."""
        if self._waiting:
            self._catch_up()
        if not self._tree.is_current:
            self._tree.settle()
        return self._tree

    def set_default_error(self, default_error: InitialError) -> None:
        """Change the default error of later transitions."""
        self._catch_up()
        self.default_error = default_error
        self._set_initial_error()

    @property
    def drawn(self) -> NDArray[np.int64]:
        """(N,): numbers of the live transitions that have a priority, in increasing order."""
        if self._starts is not None:
            return self._starts.numbers
        transitions = np.arange(self._ring.start, self._ring.end)
        return transitions if self._stride == 1 else transitions[transitions // self._ring.envs % self._stride == 0]

    def choose(
        self, generator: np.random.Generator, first: int, end: int, batch_size: int, *, stratified: bool
    ) -> Chosen | None:
        """Draw ``batch_size`` of the transitions [first, end), in proportion to their priorities.

        None if the total priority is 0: all errors and epsilon are 0, or no episode is whole yet.
        """
        mass, end = self.drawable_mass(first, end)
        if mass <= 0:
            return None
        return Chosen(*self._tree.sample(generator.random(batch_size), first, end, stratified), mass)

    def drawable_mass(self, first: int, end: int) -> tuple[float, int]:
        """Return the total priority of transitions [first, end), and the end of the range of leaves to draw from."""
        ring, tree = self._ring, self.tree
        if end == ring.steps * ring.envs and first == max(ring.first, ring.steps - ring.size) * ring.envs:
            # Leaves that are not live have no mass, and drawing from the whole tree is quicker than from a window.
            end = first + self._leaves
        mass = tree.total
        if mass > 0 and end - first < self._leaves:
            mass = tree.mass(first, end)
        return mass, end

    def of(self, transitions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the priorities (B,) of live transitions; 0 for those that are not drawn."""
        return self.tree.masses_of(transitions % self._leaves)

    @property
    def values(self) -> NDArray[np.float64]:
        """(N,): the priorities of :attr:`drawn`."""
        return self.of(self.drawn)

    @property
    def smallest(self) -> float:
        """The smallest priority that is not zero."""
        return self.tree.minimum

    @property
    def largest(self) -> float:
        """The largest priority."""
        return self.tree.maximum

    @property
    def mean(self) -> float:
        """Mean priority of all live transitions, or of all episodes; 0 where no episode is whole yet."""
        number = self._ring.live_transitions if self._starts is None else len(self._starts.numbers)
        return self.tree.total / max(1, number)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._tree.nbytes + self._errors.nbytes

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the errors of all live transitions, oldest first, from which priorities are recomputed."""
        errors = torch.from_numpy(self.errors(self._ring.oldest).ravel())
        return {"errors": errors, **state_without_errors(self)}

    def errors(self, first: int) -> NDArray[np.float32]:
        """Return the errors (steps, E) of all transitions from step ``first`` on."""
        envs = self._ring.envs
        return self.errors_of(first * envs, self._ring.end).reshape(-1, envs)

    def changes(self, everything: bool) -> tuple[NDArray[np.uint32] | None, NDArray[np.float32]]:
        """Return the errors that updates have changed since the last call.

        Args:
            everything: return the errors of all live transitions instead.

        Returns:
            The offset of each changed transition from the oldest live one, and its error; None instead of offsets
            where the errors are those of all live transitions, as in the first call.
        """
        self._catch_up()
        start, changed = self._ring.start, self._changed
        if changed is None or everything:
            self._changed, self._any_changed = np.zeros(self._leaves, np.bool_), False
            return None, self.errors(self._ring.oldest).ravel()
        leaves = np.flatnonzero(changed) if self._any_changed else _NONE
        changed[leaves], self._any_changed = False, False
        offsets = (leaves - start) % self._leaves
        live = offsets < self._ring.live_transitions
        return offsets[live].astype(np.uint32), self._errors[leaves[live]]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, after the ring; an error of NaN stands for the initial error."""
        self._waiting = 0
        self.largest_error, self.knows_errors = state["largest_error"], state["knows_errors"]
        self._set_initial_error()
        errors = state["errors"].numpy()
        live = np.arange(self._ring.start, self._ring.end) % self._leaves
        self._errors[live] = self.bounded(np.where(np.isnan(errors), np.float32(self.initial_error), errors))
        self.rescale(self.settings)

    # Internals

    def _set_initial_error(self) -> None:
        default = self.default_error
        if default == "first":
            self.initial_error = _FIRST
        elif default == "largest":
            self.initial_error = self.largest_error
        else:
            self.initial_error = min(float(default), self.largest_error) if self.knows_errors else float(default)
        self._tree.set_initial(np.float32(self.initial_error))

    def _add(self, starts: EpisodeStarts, cleared: NDArray[np.int64]) -> None:
        """Give the episode starts added last the initial error, after clearing some leaves."""
        self._errors[starts.added % self._leaves] = self.initial_error
        drawn = np.concatenate([starts.moved, starts.added]) % self._leaves
        if self._changed is not None:
            self._changed[drawn] = self._any_changed = True
        self._tree.drop(cleared)
        self._tree.set_errors(drawn, np.abs(self._errors[drawn]).astype(np.float64))


def state_without_errors(priorities: Priorities) -> dict[str, float]:
    """Return the state of priorities other than the errors, as plain data."""
    return {
        "largest_error": priorities.largest_error,
        "knows_errors": priorities.knows_errors,
        "alpha": priorities.settings.alpha,
    }


def importance_weights(priorities: NDArray[np.float64], beta: float, unit: float) -> NDArray[np.float32]:
    """Return weights (B, 1): ``(N P)**-beta`` over that of the priority ``unit``; section 3.4 of the paper.

    ``N`` and the total priority cancel.
    """
    ratios = np.minimum(priorities / unit, _LARGEST_RATIO)
    weights: NDArray[np.float32] = ratios.astype(np.float32) ** np.float32(-beta)
    return weights[:, None]
