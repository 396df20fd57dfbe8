"""Rows that are sequences or episodes: batches (T, B, ...), time first, or of packed episodes."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.step_windows import lay_out
from storages.core.parts import Candidates, Gather, Segments, TransitionList, TransitionRange, Window
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.sequence_settings import Episodes, MultiStepRows, Sequences
from storages.transition import (
    ACT,
    BATCH_SIZES,
    BURN_IN,
    DISCOUNT,
    DONE,
    EPISODE,
    INDICES,
    LEAD_OUT,
    MASK,
    OBS,
    RHS,
    RHS2,
    SORTED_INDICES,
    UNSORTED_INDICES,
    WINDOW,
    Array,
    Batch,
)


def window_of(
    setting: MultiStepRows, steps: Window, tracker: EpisodeTracker | None, only_whole: bool = False
) -> Window:
    """Return the window of a setting.

    Args:
        setting: what rows are.
        steps: the window that computes the fields of each step.
        tracker: index of the ring's episodes, where rows are episodes.
        only_whole: whether the ring holds only whole episodes, so that a sequence may begin at any of its steps.

    Raises:
        TypeError: the setting is of another class than those of :mod:`storages.sequence_settings`.
    """
    if isinstance(setting, Sequences):
        return SequenceWindow(setting, steps, only_whole=only_whole)
    if isinstance(setting, Episodes):
        assert tracker is not None
        return (PackedWindow if setting.packed else EpisodeWindow)(setting, steps, tracker)
    raise TypeError(f"there is no window for {setting}; override make_window() of the storage to return one")


class SequenceWindow(Window):
    """Fixed-length sequences of steps.

    Args:
        sequences: their settings.
        steps: the window that computes the fields of each step.
        reach: bootstrap steps (lead-out) after a sequence; as many as its last step's n-step window needs where None.
        only_whole: whether the ring holds only whole episodes, so that a sequence may begin at any of its steps.
    """

    is_multi_step = True

    def __init__(self, sequences: Sequences, steps: Window, reach: int | None = None, only_whole: bool = False) -> None:
        self.sequences, self.steps = sequences, steps
        self._reach, self._only_whole = reach, only_whole

    def begins(self, ring: Ring, first: int) -> tuple[int, int]:
        """Return the range of transitions at which a sequence may begin, with all its steps stored."""
        if self._only_whole:
            return first, ring.end
        latest = max(ring.oldest, ring.steps - self.sequences.length)
        # The range must contain a multiple of the stride, if one is stored.
        multiple = max(ring.oldest, latest - latest % self.sequences.stride)
        return min(first // ring.envs, multiple) * ring.envs, (latest + 1) * ring.envs

    def candidates(self, ring: Ring, first: int) -> Candidates:
        """Return the transitions at which a sequence may begin; those of the range's first step if none."""
        first, end = self.begins(ring, first)
        stride, envs = self.sequences.stride, ring.envs
        if stride == 1:
            return TransitionRange(first, end)
        multiple = -(-(first // envs) // stride) * stride * envs
        return TransitionRange(multiple, end, envs, stride) if multiple < end else TransitionRange(first, first + envs)

    def starts(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first transitions (B,) of sequences, those of episodes that begin before the next row included.

        A sequence is padded from the end of its episode, so that it does not reach the beginning of the next one, which
        a row a stride later misses. Of the starts that a row stands for, each is chosen with the same probability.
        """
        between = self.sequences.stride - 1
        if not between or self.sequences.across_episodes:
            return transitions
        envs, numbers = ring.envs, ring.columns.final_numbers
        end = ring.end if self._only_whole else (ring.steps - self.sequences.length + 1) * ring.envs
        following = transitions + np.arange(1, between + 1)[:, None] * envs
        begins = (numbers[(following - envs) % len(numbers), 0] >= 0) & (following < end)
        chosen = generator.integers(0, begins.sum(0), endpoint=True)
        shift: NDArray[np.int64] = np.where(chosen > 0, (begins.cumsum(0) < chosen).sum(0) + 1, 0)
        return transitions + envs * shift

    def lengths(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the length of a sequence for each of some transitions (B,)."""
        return np.full_like(first, self.sequences.length)

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`SequenceLayout` of sequences that begin at transitions (B,)."""
        sequences, lead_out = self.sequences, self._bootstrap_steps(ring)
        burn_in, end = sequences.burn_in, sequences.burn_in + sequences.length
        laid_out = _lay_out_steps(ring, first, burn_in, end + lead_out, sequences.across_episodes)
        segments = Segments(laid_out.numbers[0], laid_out.numbers[-1])
        learnt_steps = int(np.count_nonzero(laid_out.real[burn_in:end]))
        return SequenceLayout(*laid_out, slice(burn_in, end), segments, learnt_steps)

    def _bootstrap_steps(self, ring: Ring) -> int:
        return self.steps.reach(ring) if self._reach is None else self._reach

    def step_fields(
        self, ring: Ring, gather: Gather, transitions: NDArray[np.int64], gamma: float, keys: set[str] | None = None
    ) -> dict[str, Any]:
        """Return the fields of steps, without hidden states, which only the first step of a sequence needs."""
        if keys is None:
            keys = {path[0] for path in ring.layout} - {RHS, RHS2} | {DISCOUNT}
        return self.steps.step_fields(ring, gather, transitions, gamma, keys)

    def spans(self, ring: Ring, transitions: NDArray[np.int64], gamma: float) -> Any:
        """Return the n-step windows of steps."""
        return self.steps.spans(ring, transitions, gamma)

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Arrange the fields of steps as those of sequences, time first."""
        lengths = self.window_lengths(ring, steps, fields, gamma)
        shape, learnt = steps.transitions.shape, steps.learnt
        burn_in = learnt.start
        parts = {key: in_time(value, shape) for key, value in fields.items()}
        parts[DONE] = np.maximum(parts[DONE], steps.resets[..., None])
        batch = {key: _cut(value, learnt) for key, value in parts.items()}
        batch[MASK] = np.ascontiguousarray(steps.real[learnt, :, None])
        batch[WINDOW] = np.ascontiguousarray(lengths.reshape(*shape, 1)[learnt])
        first = {RHS: steps.transitions[burn_in]}
        if burn_in:
            batch[BURN_IN] = {key: _cut(parts[key], slice(0, burn_in)) for key in (OBS, DONE, ACT)}
            batch[BURN_IN][MASK] = np.ascontiguousarray(steps.real[:burn_in, :, None])
            first[BURN_IN] = steps.transitions[0]
        if shape[0] > learnt.stop:
            batch[LEAD_OUT] = {key: _cut(parts[key], slice(learnt.stop, shape[0])) for key in (OBS, DONE)}
        if (RHS,) in ring.layout:
            for key, transitions in first.items():
                (batch if key == RHS else batch[key])[RHS] = gather(transitions, {RHS})[RHS]
        return batch

    def window_lengths(self, ring: Ring, steps: Any, fields: dict[str, Any], gamma: float) -> NDArray[np.int64]:
        """Return the lengths (N,) of the steps' n-step windows, which a relabeler may have shortened."""
        if WINDOW in fields:
            lengths: NDArray[np.int64] = fields[WINDOW][:, 0]
            return lengths
        found: NDArray[np.int64] = self.spans(ring, steps.transitions.ravel(), gamma).lengths
        return found


def continued_steps(batch: Batch, envs: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the transitions of a batch of sequences or episodes, and which continue the step before in their row.

    Args:
        batch: padded, or of packed episodes.
        envs: environments of the ring.

    Returns:
        Their numbers, and the mask, (T, B), or (N,) of packed episodes; numbers of padding have no meaning.
    """
    first, done = batch[INDICES].numpy(force=True)[:, 0], batch[DONE].numpy(force=True)[..., 0] > 0
    if BATCH_SIZES in batch:
        sizes = batch[BATCH_SIZES].numpy(force=True)
        step, width = np.repeat(np.arange(len(sizes)), sizes), int(sizes[0])
        first = first[batch[EPISODE].numpy(force=True)[:, 0]]
        continues = ~done
    else:
        step, width = np.arange(len(done))[:, None], 1
        continues = ~done & (batch[MASK].numpy(force=True)[..., 0] > 0)
    continues[:width] = False
    return first + step * envs, continues


class EpisodeWindow(SequenceWindow):
    """Whole episodes, or pieces of them, padded to the longest.

    Args:
        episodes: their settings.
        steps: the window that computes the fields of each step.
        tracker: index of the ring's episodes.
    """

    is_indexed_by_first_step = False

    def __init__(self, episodes: Episodes, steps: Window, tracker: EpisodeTracker) -> None:
        self.episodes, self.steps, self.tracker = episodes, steps, tracker
        # n-step windows reach beyond a piece, but never beyond an episode.
        self._reach = None if episodes.in_pieces else 0

    def begins(self, ring: Ring, first: int) -> tuple[int, int]:
        """Return the range of transitions in which episodes begin."""
        return self.tracker.starts.first_candidate(first), ring.end

    def candidates(self, ring: Ring, first: int) -> Candidates:
        """Return the transitions at which episodes begin."""
        return TransitionList(self.tracker.starts.since(first))

    def lengths(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths (B,) of the rows that begin at some transitions."""
        lengths, most = self.tracker.starts.lengths(first), self.episodes.max_steps
        return lengths if most is None else np.minimum(lengths, most)

    def starts(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first transitions (B,) of rows, random pieces with ``max_steps``, from those of their episodes."""
        most = self.episodes.max_steps
        if most is None:
            return transitions
        spare = np.maximum(self.tracker.starts.lengths(transitions) - most, 0)
        starts: NDArray[np.int64] = transitions + generator.integers(0, spare, endpoint=True) * ring.envs
        return starts

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`SequenceLayout` of episodes, or pieces of episodes, that begin at transitions (B,).

        A piece is padded with the steps after it, if any, because n-step windows reach there.
        """
        lengths, episodes, lead_out = self.lengths(first), self.episodes, self._bootstrap_steps(ring)
        length = episodes.longest or episodes.max_steps or int(lengths.max())
        laid_out = _lay_out_steps(ring, first, 0, length + lead_out, across_episodes=False)
        laid_out.real[np.arange(length + lead_out)[:, None] >= lengths] = 0
        segments = Segments(first, first + (lengths - 1) * ring.envs)
        return SequenceLayout(*laid_out, slice(0, length), segments, int(lengths.sum()))


class SequenceLayout(NamedTuple):
    """The steps of sequences, (steps, B): burn-in steps, training steps, bootstrap steps (lead-out)."""

    transitions: NDArray[np.int64]
    """Numbers of their transitions."""
    real: NDArray[np.float32]
    """1, or 0 where a step is padding: a repetition of the last real step, or a step after the row."""
    resets: NDArray[np.float32]
    """1 where a step does not continue the one before it, and the recurrent state is reset."""
    learnt: slice
    """Range of the steps that are learnt from."""
    segments: Segments
    learnt_steps: int
    """Number of steps that are learnt from, in all sequences, without padding."""


def in_time(value: Any, shape: tuple[int, ...]) -> Any:
    """Reshape an array (T * B, ...), or a dict of such, to (T, B, ...)."""
    if isinstance(value, dict):
        return {name: leaf.reshape(*shape, *leaf.shape[1:]) for name, leaf in value.items()}
    return value.reshape(*shape, *value.shape[1:])


class _LaidOut(NamedTuple):
    numbers: NDArray[np.int64]
    real: NDArray[np.float32]
    resets: NDArray[np.float32]


def _lay_out_steps(
    ring: Ring, first: NDArray[np.int64], before: int, num_steps: int, across_episodes: bool
) -> _LaidOut:
    shape = (num_steps, len(first))
    found = _LaidOut(np.empty(shape, np.int64), np.empty(shape, np.float32), np.empty(shape, np.float32))
    lay_out(first, before, ring.start, ring.end, ring.envs, across_episodes, ring.columns.final_numbers, *found)
    return found


def _cut(value: Any, steps: slice) -> Any:
    if isinstance(value, dict):
        return {name: np.ascontiguousarray(leaf[steps]) for name, leaf in value.items()}
    cut: Array = np.ascontiguousarray(value[steps])
    return cut


class PackedWindow(EpisodeWindow):
    """Whole episodes without padding."""

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`Packing` of episodes that begin at transitions (B,)."""
        lengths = self.lengths(first)
        order = np.argsort(-lengths, kind="stable")
        shortest_first = lengths[order[::-1]]
        sizes = len(lengths) - np.searchsorted(shortest_first, np.arange(shortest_first[-1]), side="right")
        step = np.repeat(np.arange(len(sizes)), sizes)
        of = order[np.arange(len(step)) - (np.cumsum(sizes) - sizes)[step]]
        segments = Segments(first, first + (lengths - 1) * ring.envs, of)
        return Packing(first[of] + step * ring.envs, segments, sizes, order)

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Add the fields of a ``PackedSequence`` to those of steps, which are in packed order already."""
        lengths = self.window_lengths(ring, steps, fields, gamma)
        unsorted = np.empty_like(steps.order)
        unsorted[steps.order] = np.arange(len(unsorted))
        batch = fields | {
            WINDOW: lengths[:, None],
            EPISODE: steps.segments.of_each(len(lengths))[:, None],
            BATCH_SIZES: steps.sizes,
            SORTED_INDICES: steps.order,
            UNSORTED_INDICES: unsorted,
        }
        if (RHS,) in ring.layout:
            batch[RHS] = gather(steps.segments.first, {RHS})[RHS]
        return batch


class Packing(NamedTuple):
    """The N steps of B episodes in packed order: all first steps, longest episode first; all second ones; and so on."""

    transitions: NDArray[np.int64]
    """(N,): numbers of their transitions."""
    segments: Segments
    sizes: NDArray[np.int64]
    """(T,): number of episodes that have a step t."""
    order: NDArray[np.int64]
    """(B,): the episodes, the longest first."""

    @property
    def learnt_steps(self) -> int:
        """Number of steps that are learnt from."""
        return len(self.transitions)
