"""Protocols of the parts that a storage is composed of.

A :class:`Sampler` draws the rows of a batch, a :class:`Window` maps rows to steps and steps to fields, a
:class:`Relabeler` replaces goals in the fields (hindsight), and a :class:`RingObserver` is notified of changes of the
ring buffer. A class that extends one of them inherits default implementations.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.uniform_draws import uniform_integers
from storages.core.ring.layout import FieldKey
from storages.core.ring.ring import Ring
from storages.transition import Batch, Sample

Gather: TypeAlias = Callable[..., dict[str, Any]]
"""A function with the signature of :meth:`storages.core.ring.ring.Ring.gather`."""


class RingObserver(Protocol):
    """Observer of changes of a ring: a write-ahead log, an index of episodes, priorities, a cache."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Called before a step is inserted, or several steps of which ``sample`` is the first.

        An exception refuses the insertion; nothing is stored then.
        """
        return

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Called after the newest ``steps`` were inserted."""
        return

    def after_end(self, ring: Ring, envs: NDArray[np.int64]) -> None:
        """Called after the running episodes of some environments were truncated at their newest transitions."""
        return

    def take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Use TD errors (N,), NaN if unknown, of the newest transitions, from number ``first`` on."""
        return

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many steps may be inserted between two calls of the methods above."""
        return sys.maxsize

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Called before a change, other than an insertion, of anything that batches depend on.

        Args:
            ring: the storage's.
            rows: whether rows of the ring are overwritten, dropped or loaded; otherwise a hyper-parameter, the progress
                of the run or the random generator changes.
        """
        return

    def after_change(self, ring: Ring) -> None:
        """Called after rows of the ring were overwritten, dropped or loaded."""
        return

    def after_states(self, ring: Ring, transitions: NDArray[np.int64]) -> None:
        """Called after the recurrent states before live transitions (N,) were replaced, which is a change of rows."""
        return

    def after_resize(self, ring: Ring) -> None:
        """Called after the capacity of the ring has changed, which moves its rows."""
        return

    def state_dict(self) -> dict[str, Any]:
        """Return entries of the storage's state, JSON-serialisable, under names that no other observer uses."""
        return {}

    def tensors(self) -> dict[str, Any]:
        """Return further entries, tensors, which only :meth:`Storage.state_dict` holds, and no directory."""
        return {}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the observer from the storage's full state; the ring is already restored."""
        return

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0

    @property
    def bytes_of_a_transition(self) -> int:
        """Approximate bytes of memory for each transition that fits into the ring."""
        return 0

    @property
    def bytes_apart(self) -> int:
        """Bytes of memory that are kept however many transitions fit."""
        return 0


@dataclass(frozen=True, slots=True)
class TransitionRange:
    """Transitions of consecutive steps, or of steps whose number is a multiple of a stride."""

    first: int
    """Number of the first one; with a stride above 1, that of the first environment."""
    end: int
    """Number after the last one."""
    envs: int = 1
    stride: int = 1

    @property
    def count(self) -> int:
        """Number of transitions."""
        if self.stride == 1:
            return self.end - self.first
        return -(-(self.end - self.first) // (self.envs * self.stride)) * self.envs

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers (N,) of the transitions at positions (N,), in increasing order."""
        if self.stride > 1:
            positions = positions + positions // self.envs * ((self.stride - 1) * self.envs)
        return self.first + positions

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (N,), whether each of some transitions (N,) is one of these."""
        found: NDArray[np.bool_] = (self.first <= transitions) & (transitions < self.end)
        return found if self.stride == 1 else found & (transitions // self.envs % self.stride == 0)


@dataclass(frozen=True, slots=True)
class TransitionList:
    """Transitions by their numbers."""

    numbers: NDArray[np.int64]
    """(N,), in increasing order."""

    @property
    def first(self) -> int:
        """Number of the first one."""
        return int(self.numbers[0])

    @property
    def end(self) -> int:
        """Number after the last one."""
        return int(self.numbers[-1]) + 1

    @property
    def count(self) -> int:
        """Number of transitions."""
        return len(self.numbers)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers (N,) of the transitions at positions (N,)."""
        return self.numbers[positions]

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (N,), whether each of some transitions (N,) is one of these."""
        if not self.count:
            return np.zeros(len(transitions), np.bool_)
        places = np.minimum(np.searchsorted(self.numbers, transitions), len(self.numbers) - 1)
        found: NDArray[np.bool_] = self.numbers[places] == transitions
        return found


Candidates: TypeAlias = TransitionRange | TransitionList
"""Transitions at which a row may begin."""


class Rows(NamedTuple):
    """Rows of a batch, drawn by a sampler."""

    transitions: NDArray[np.int64]
    """(B,): numbers of the first transition of each row."""
    weights: NDArray[np.float32]
    """(B, 1): their importance weights."""


class Mass(NamedTuple):
    """Size and total priority of the rows to draw from, by which several storages share a learner's batches."""

    rows: int
    """Number of rows."""
    total: float
    """The sum of their priorities, 0 where none has any; ``rows`` where they are drawn uniformly."""
    smallest: float = 1.0
    """Probability of the row whose importance weight is 1, as a multiple of the uniform one."""
    beta: float = 0.0
    """Exponent of importance weights; 0 where these do not depend on the other rows stored."""
    uniform_share: float = 0.0
    """Part of the rows that is drawn uniformly instead of by priority."""
    is_normalised: bool = True
    """Whether importance weights are divided by the largest one."""


class Request(NamedTuple):
    """Parameters of a sampler's draw."""

    generator: np.random.Generator
    ring: Ring
    window: "Window"
    batch_size: int
    first: int
    """Number of the oldest transition that may be drawn."""
    update: int
    """Number of the batch in the update phase, from 1."""
    updates: int
    """Number of batches in the update phase."""

    def uniform(self) -> Rows:
        """Draw the rows uniformly."""
        transitions = self.window.uniform(self.generator, self.ring, self.first, self.batch_size)
        weights = np.empty((self.batch_size, 1), np.float32)
        weights.fill(1)
        return Rows(transitions, weights)


class Sampler(RingObserver, Protocol):
    """Draws the rows of batches."""

    progress: Any = None
    """State that a draw changes besides the generator, JSON-serialisable; None for none. The storage saves it, and
    restores it where a prefetched batch is not requested."""

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore :attr:`progress` from the storage's state; see :class:`RingObserver`."""
        self.progress = state.get("progress")

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch; the request's generator must be the only source of randomness."""
        raise NotImplementedError

    def mass(self, ring: Ring, window: "Window") -> Mass:
        """Return the :class:`Mass` of a ring that is not empty."""
        rows = window.candidates(ring, ring.start).count
        return Mass(rows, float(rows))

    def after_update(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Use the TD errors in an update's ``info``, and return metrics."""
        return {}


class SelectedSteps(Protocol):
    """The steps of the rows of a batch."""

    @property
    def transitions(self) -> NDArray[np.int64]:
        """Numbers of their transitions."""

    @property
    def segments(self) -> "Segments":
        """The sequences or episodes to which they belong."""

    @property
    def learnt_steps(self) -> int:
        """Number of steps that are learnt from."""


class Segments(NamedTuple):
    """Runs of consecutive steps of one environment each, to which the steps of a batch belong."""

    first: NDArray[np.int64]
    """(B,): numbers of their first transitions."""
    last: NDArray[np.int64]
    """(B,): numbers of their last transitions."""
    segment_of_step: NDArray[np.int64] | None = None
    """(N,): index of each step's segment; None where step ``i`` belongs to segment ``i % B``."""

    def of_each(self, num_steps: int) -> NDArray[np.int64]:
        """Return (num_steps,), the index of each step's segment."""
        return np.arange(num_steps) % len(self.first) if self.segment_of_step is None else self.segment_of_step


class Window(Protocol):
    """Maps rows to their steps, and steps to the fields of a batch."""

    is_multi_step: ClassVar[bool] = False
    """Whether a row consists of the steps returned by :meth:`select`, instead of one."""
    is_indexed_by_first_step: ClassVar[bool] = True
    """Whether INDICES are the first transitions of these steps, rather than the row's."""

    def begins(self, ring: Ring, first: int) -> tuple[int, int]:
        """Return the range [first, end) of transitions at which a row may begin.

        Args:
            ring: of the transitions.
            first: the oldest one wanted; the result may begin earlier where no row can begin from there on.
        """
        return first, ring.end

    def candidates(self, ring: Ring, first: int) -> Candidates:
        """Return the transitions at which a row may begin, from ``first`` on; see :meth:`begins`."""
        return TransitionRange(*self.begins(ring, first))

    def uniform(self, generator: np.random.Generator, ring: Ring, first: int, batch_size: int) -> NDArray[np.int64]:
        """Draw (batch_size,) transitions at which rows may begin, from ``first`` on, uniformly."""
        candidates = self.candidates(ring, first)
        return candidates.at(uniform_integers(generator, 0, candidates.count, batch_size))

    def starts(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first transitions (B,) of the steps to select, for rows that a sampler has drawn."""
        return transitions

    def lengths(self, first: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of steps (B,) of rows that begin at transitions (B,)."""
        return np.ones_like(first)

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`SelectedSteps` of rows that begin at transitions (B,)."""
        return None

    def step_fields(
        self, ring: Ring, gather: Gather, transitions: NDArray[np.int64], gamma: float, keys: set[str] | None = None
    ) -> dict[str, Any]:
        """Return the fields of steps, (N, ...), and DISCOUNT.

        Args:
            ring: of the transitions.
            gather: as ``ring.gather``; for fields that are cached on a device, returns their rows in the cache.
            transitions: (N,).
            gamma: per-step discount factor.
            keys: names of fields; all where None.
        """
        raise NotImplementedError

    def spans(self, ring: Ring, transitions: NDArray[np.int64], gamma: float) -> Any:
        """Return the n-step windows of steps, see :class:`storages.core.windows.n_step.Spans`."""
        raise NotImplementedError

    def reach(self, ring: Ring) -> int:
        """Return how many following steps a step's fields depend on, n - 1 for n-step returns."""
        return 0

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Arrange the fields (N, ...) of the steps that :meth:`select` returned as the fields of a batch."""
        return fields


class Relabeler(RingObserver, Protocol):
    """Changes the fields of a batch as if another goal had been pursued."""

    changed: frozenset[FieldKey] = frozenset()
    """Leaves that it writes, and which therefore must not be cached on a device."""

    def choose(
        self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64], segments: Segments | None
    ) -> Any:
        """Draw the random choices for :meth:`relabel`; None for no change.

        Args:
            generator: the only source of randomness.
            ring: of the transitions.
            transitions: (N,), the steps of a batch.
            segments: sequences or episodes to which the steps belong; None where each step is a row.
        """
        raise NotImplementedError

    def relabel(
        self,
        ring: Ring,
        window: Window,
        fields: dict[str, Any],
        transitions: NDArray[np.int64],
        chosen: Any,
        gamma: float,
    ) -> None:
        """Change the fields (N, ...) of steps, in place, by what :meth:`choose` returned."""
        raise NotImplementedError
