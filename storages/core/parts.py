"""Protocols of the parts that a storage is composed of.

A :class:`Sampler` chooses the rows of a batch, a :class:`Window` says which steps a row consists of and which fields
they become, a :class:`Relabeler` changes the fields as if another goal had been meant, and a :class:`RingObserver`
follows what happens to the ring that holds the transitions. A class that extends one of them inherits what it does not
write.
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
"""As :meth:`storages.core.ring.ring.Ring.gather`."""


class RingObserver(Protocol):
    """Follows what a storage does to its ring: a write-ahead log, an index of episodes, priorities, a cache."""

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Called before a step is inserted, or several steps of which ``sample`` is the first.

        An exception refuses the insertion; nothing is stored then.
        """
        return

    def after_insert(self, ring: Ring, steps: int) -> None:
        """Called after the newest ``steps`` were inserted."""
        return

    def after_end(self, ring: Ring, envs: NDArray[np.int64]) -> None:
        """Called after the running episodes of some environments were ended with their newest transitions."""
        return

    def steps_at_once(self, ring: Ring) -> int:
        """Return how many steps may be inserted between two calls of the methods above."""
        return sys.maxsize

    def before_change(self, ring: Ring, rows: bool) -> None:
        """Called before a change, other than an insertion, of anything from which batches follow.

        Args:
            ring: the storage's.
            rows: whether rows of the ring are replaced, dropped or loaded; else it is a hyper-parameter, the progress
                of the run or the random generator that changes.
        """
        return

    def after_change(self, ring: Ring) -> None:
        """Called after rows of the ring were replaced, dropped or loaded."""
        return

    def after_resize(self, ring: Ring) -> None:
        """Called after the ring was given room for another number of steps; its rows lie elsewhere then."""
        return

    def state_dict(self) -> dict[str, Any]:
        """Entries of the storage's state, as JSON can keep them; their names are the observer's alone."""
        return {}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore a storage's state, of which :meth:`state_dict` returned entries; its ring is restored already."""
        return

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0

    @property
    def bytes_of_a_transition(self) -> int:
        """Bytes of memory that it takes for each transition that fits into the ring, about."""
        return 0


@dataclass(frozen=True, slots=True)
class TransitionRange:
    """Transitions of consecutive steps, or of those whose number is a multiple of a stride."""

    first: int
    """Number of the first one; with a stride above 1, that of the first environment."""
    end: int
    """Number after the last one."""
    envs: int = 1
    stride: int = 1

    @property
    def count(self) -> int:
        """How many there are."""
        if self.stride == 1:
            return self.end - self.first
        return -(-(self.end - self.first) // (self.envs * self.stride)) * self.envs

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,): those at some positions (N,), in rising order."""
        if self.stride > 1:
            positions = positions + positions // self.envs * ((self.stride - 1) * self.envs)
        return self.first + positions

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,): whether each of some transitions (N,) is one of them."""
        found: NDArray[np.bool_] = (self.first <= transitions) & (transitions < self.end)
        return found if self.stride == 1 else found & (transitions // self.envs % self.stride == 0)


@dataclass(frozen=True, slots=True)
class TransitionList:
    """Transitions by their numbers."""

    numbers: NDArray[np.int64]
    """(N,), in rising order."""

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
        """How many there are."""
        return len(self.numbers)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,): those at some positions (N,)."""
        return self.numbers[positions]

    def among(self, transitions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,): whether each of some transitions (N,) is one of them."""
        if not self.count:
            return np.zeros(len(transitions), np.bool_)
        places = np.minimum(np.searchsorted(self.numbers, transitions), len(self.numbers) - 1)
        found: NDArray[np.bool_] = self.numbers[places] == transitions
        return found


Candidates: TypeAlias = TransitionRange | TransitionList
"""Transitions with which a row may begin."""


class Rows(NamedTuple):
    """Rows of a batch, as a sampler draws them."""

    transitions: NDArray[np.int64]
    """(B,): numbers of the transitions with which the rows begin."""
    weights: NDArray[np.float32]
    """(B, 1): their importance weights."""


class Mass(NamedTuple):
    """What a storage's batches are drawn from: by how much several storages share the batches of a learner."""

    rows: int
    """How many rows there are."""
    total: float
    """The sum of their priorities, 0 where none has any; ``rows`` where they are drawn uniformly."""
    smallest: float = 1.0
    """The probability of the row whose importance weight is 1, as a multiple of a uniform draw's."""
    beta: float = 0.0
    """Exponent of importance weights; 0 where those do not depend on what else is stored."""
    uniform_share: float = 0.0
    """Part of the rows that is drawn uniformly beside those that are drawn by priority."""


class Request(NamedTuple):
    """A batch that a sampler is to draw."""

    generator: np.random.Generator
    ring: Ring
    window: "Window"
    batch_size: int
    first: int
    """Number of the oldest transition that may be drawn."""
    update: int
    """Which batch of the update phase it is, from 1."""
    updates: int
    """How many batches the update phase has."""

    def uniform(self) -> Rows:
        """Rows that are drawn uniformly."""
        transitions = self.window.uniform(self.generator, self.ring, self.first, self.batch_size)
        weights = np.empty((self.batch_size, 1), np.float32)
        weights.fill(1)
        return Rows(transitions, weights)


class Sampler(RingObserver, Protocol):
    """Chooses the rows of batches."""

    progress: Any = None
    """What a draw changes beside the generator, as JSON can keep it: saved by the storage, and restored where a batch
    that was drawn ahead is not asked for. None for nothing."""

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore a storage's state, which has :attr:`progress`; see :class:`RingObserver`."""
        self.progress = state.get("progress")

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch, with no other random numbers than those of the request's generator."""
        raise NotImplementedError

    def mass(self, ring: Ring, window: "Window") -> Mass:
        """Return what is drawn from; of a ring that holds something."""
        rows = window.candidates(ring, ring.start).count
        return Mass(rows, float(rows))

    def take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Follow errors (N,) that came with the newest transitions, from number ``first`` on."""
        return

    def after_update(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Follow the errors that an update reports in ``info``, and return metrics."""
        return {}


class Steps(Protocol):
    """Steps of which the rows of a batch consist."""

    @property
    def transitions(self) -> NDArray[np.int64]:
        """Their numbers."""

    @property
    def segments(self) -> "Segments":
        """What they are parts of."""

    @property
    def learnt_steps(self) -> int:
        """How many are learnt from."""


class Segments(NamedTuple):
    """Consecutive steps of one environment each, to which the steps of a batch belong."""

    first: NDArray[np.int64]
    """(B,): numbers of the transitions that they begin with."""
    last: NDArray[np.int64]
    """(B,): numbers of the transitions that they end with."""
    of: NDArray[np.int64] | None = None
    """(N,): the segment of each step; None where step ``i`` is of segment ``i % B``."""

    def of_each(self, num_steps: int) -> NDArray[np.int64]:
        """(num_steps,): the segment of each step."""
        return np.arange(num_steps) % len(self.first) if self.of is None else self.of


class Window(Protocol):
    """Says which steps a row consists of, and which fields they become."""

    selects_steps: ClassVar[bool] = False
    """Whether a row consists of the steps that :meth:`select` returns, rather than of one."""

    def begins(self, ring: Ring, first: int) -> tuple[int, int]:
        """Return the range [first, end) of transitions with which a row may begin.

        Args:
            ring: of the transitions.
            first: the oldest that is wanted; an older one is returned where no row may begin later.
        """
        return first, ring.end

    def candidates(self, ring: Ring, first: int) -> Candidates:
        """Return the transitions with which a row may begin, from ``first`` on; see :meth:`begins`."""
        return TransitionRange(*self.begins(ring, first))

    def uniform(self, generator: np.random.Generator, ring: Ring, first: int, batch_size: int) -> NDArray[np.int64]:
        """(batch_size,): transitions with which rows may begin, from ``first`` on, drawn uniformly."""
        candidates = self.candidates(ring, first)
        return candidates.at(uniform_integers(generator, 0, candidates.count, batch_size))

    def starts(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B,): transitions with which the selected steps begin, of rows that a sampler has drawn."""
        return transitions

    def select(self, ring: Ring, first: NDArray[np.int64]) -> Any:
        """Return the :class:`Steps` of rows that begin with transitions (B,)."""
        return None

    def step_fields(
        self, ring: Ring, gather: Gather, transitions: NDArray[np.int64], gamma: float, keys: set[str] | None = None
    ) -> dict[str, Any]:
        """Return the fields of steps, (N, ...), and DISCOUNT.

        Args:
            ring: of the transitions.
            gather: as ``ring.gather``; of fields that are cached on a device, returns where they are.
            transitions: (N,).
            gamma: discount factor of one step.
            keys: which fields; all where None.
        """
        raise NotImplementedError

    def spans(self, ring: Ring, transitions: NDArray[np.int64], gamma: float) -> Any:
        """Return the n-step windows of steps, see :class:`storages.core.windows.n_step.Spans`."""
        raise NotImplementedError

    def reach(self, ring: Ring) -> int:
        """Return how many steps beyond its first one a step's fields depend on."""
        return 0

    def arrange(self, ring: Ring, gather: Gather, steps: Any, fields: dict[str, Any], gamma: float) -> dict[str, Any]:
        """Arrange the fields (N, ...) of the steps that :meth:`select` returned as the fields of a batch."""
        return fields


class Relabeler(RingObserver, Protocol):
    """Changes the fields of a batch as if something else had been meant."""

    changed: frozenset[FieldKey] = frozenset()
    """Leaves that it writes, which are therefore not cached on a device."""

    def choose(
        self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64], segments: Segments | None
    ) -> Any:
        """Draw what :meth:`relabel` needs; None changes nothing.

        Args:
            generator: the only source of random numbers.
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
