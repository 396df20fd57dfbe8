"""Samplers that draw rows uniformly: with replacement, without, or in passes over all rows."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Request, Rows, Sampler
from storages.core.ring.ring import Ring
from storages.errors import DamageError


class UniformSampler(Sampler):
    """Draws rows uniformly, with replacement."""

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch."""
        return request.uniform()


class DistinctSampler(Sampler):
    """Draws the rows of each batch uniformly without replacement.

    In a batch larger than the number of rows, the numbers of draws of any two rows differ by at most one.
    """

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch."""
        generator, ring, window, batch_size, first, _, _ = request
        candidates = window.candidates(ring, first)
        times, rest = divmod(batch_size, candidates.count)
        positions = generator.choice(candidates.count, rest, replace=False)
        if times:
            everything = np.repeat(np.arange(candidates.count), times)
            positions = generator.permutation(np.concatenate([everything, positions]))
        return Rows(candidates.at(positions), np.ones((batch_size, 1), np.float32))


class PassSampler(Sampler):
    """Draws every row once in each pass, in random order.

    A pass is over the transitions that may be drawn when it begins: later ones are drawn in the next pass, and
    overwritten ones are skipped. A batch in which a pass ends is completed from the next one.
    """

    def __init__(self) -> None:
        self.progress: Any = None
        """Seed of the current pass, its range of transitions [first, end), and its position."""
        self._order = np.empty(0, np.uint32)
        self._order_of: tuple[int, int] | None = None

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch."""
        generator, ring, window, missing, first, _, _ = request
        candidates = window.candidates(ring, first)
        drawn: list[NDArray[np.int64]] = []
        while missing:
            seed, begin, end, position = self.progress or (0, 0, 0, 0)
            if position == end - begin:
                seed, begin, end, position = int(generator.integers(2**63)), candidates.first, candidates.end, 0
            # Enough to contain, in expectation, as many candidates as are missing.
            looked_at = missing * -(-(end - begin) // candidates.count)
            numbers = begin + self._permutation(seed, end - begin)[position : position + looked_at].astype(np.int64)
            places = np.flatnonzero(candidates.among(numbers))[:missing]
            drawn.append(numbers[places])
            missing -= len(places)
            position += len(numbers) if missing else int(places[-1]) + 1
            self.progress = [seed, begin, end, position]
        return Rows(np.concatenate(drawn), np.ones((request.batch_size, 1), np.float32))

    def after_resize(self, ring: Ring) -> None:
        """End a pass over more transitions than fit any more, whose order would take memory that is needed."""
        if len(self._order) > ring.size * ring.envs:
            self.progress, self._order, self._order_of = None, self._order[:0].copy(), None

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the progress of a pass.

        Raises:
            DamageError: the progress is invalid for the ring.
        """
        super().load_state_dict(ring, state)
        match self.progress:
            case None:
                return
            case [int(seed), int(begin), int(end), int(position)]:
                fits = 0 <= begin < end <= ring.end and end - begin <= ring.size * ring.envs
                if fits and seed >= 0 and 0 <= position <= end - begin:
                    return
        raise DamageError(
            f"{ring.owner}: progress={self.progress!r} of the state does not match a pass over the stored transitions"
        )

    @property
    def bytes_of_a_transition(self) -> int:
        """Bytes of an entry in the order of a pass."""
        return self._order.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._order.nbytes

    def _permutation(self, seed: int, count: int) -> NDArray[np.unsignedinteger]:
        """Return the order (count,) of a pass, which the seed determines."""
        if self._order_of != (seed, count):
            self._order = np.arange(count, dtype=np.uint32 if count <= 2**32 else np.uint64)
            np.random.default_rng(seed).shuffle(self._order)
            self._order_of = seed, count
        return self._order


def permuted(generator: np.random.Generator, transitions: NDArray[np.int64], parts: int) -> Iterator[NDArray[np.int64]]:
    """Shuffle transitions, and split them into ``parts`` that differ in size by at most one."""
    return iter(np.array_split(generator.permutation(transitions), parts))
