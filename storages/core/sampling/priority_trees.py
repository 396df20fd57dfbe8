"""Priorities as functions of errors, over a sum tree: in proportion to an error's magnitude, or to that of its rank."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.priority_updates import BUCKETS, BUCKETS_OF_AN_OCTAVE, SHIFT_OF_BUCKETS, changed_ranks, move
from storages.core.kernels.sum_tree import SumTree

_LARGEST_INT32 = 2**31 - 1
BYTES_OF_A_RANK = 12
"""What ranks take of each leaf, beside its sums."""
BYTES_OF_A_HISTOGRAM = 12 * BUCKETS + 4 * (BUCKETS // BUCKETS_OF_AN_OCTAVE)
"""What ranks take beside that."""


class PrioritySettings(NamedTuple):
    """How priorities follow from errors."""

    epsilon: float = 0.0
    """Added to each error; ranks do not change by it."""
    alpha: float = 1.0
    """Exponent."""
    by_rank: bool = False
    """Whether a priority is the inverse of an error's rank, instead of the error."""
    error_min: float = 0.0
    """Errors count as at least this."""
    error_max: float = math.inf
    """Errors count as at most this."""
    smallest: float = 0.0
    """Smallest priority in proportion to an error."""


def tree_of(size: int, settings: PrioritySettings) -> "ProportionalTree":
    """Make the tree of some settings, without any leaf that has a priority."""
    return (RankTree if settings.by_rank else ProportionalTree)(size, settings)


class ProportionalTree(SumTree):
    """A sum tree of ``(|error| + epsilon)**alpha``, errors clipped: Schaul et al., arXiv 1511.05952, section 3.3.

    Args:
        size: number of leaves.
        settings: how priorities follow from errors.
    """

    _beside_leaves: ClassVar[tuple[str, ...]] = ("_settings", "_clips", "_initial")
    """What a copy has beside the leaves."""
    is_current = True
    """Whether all priorities follow from the present errors; else :meth:`settle` is called before any is read."""

    def __init__(self, size: int, settings: PrioritySettings) -> None:
        super().__init__(size)
        self._initial = 0.0
        self.follow(settings)

    def follow(self, settings: PrioritySettings) -> None:
        """Use other settings from here on; priorities of leaves that have one stay as they are."""
        self._settings = settings
        self._clips = settings.error_min > 0 or settings.error_max < math.inf

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {name: getattr(self, name) for name in self._beside_leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self).update((name, state[name]) for name in self._beside_leaves)

    def set_initial(self, error: np.float32) -> None:
        """Set the error of leaves that :meth:`insert` adds."""
        self._initial = float(self.priorities(np.array([error]).astype(np.float64))[0])

    def insert(self, first: int, count: int, cleared: int) -> None:
        """Give ``count`` leaves from one on the initial error, and ``cleared`` that follow no priority."""
        self.set_stretch(first, count, self._initial, cleared)

    def set_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Give leaves (K,) errors of some magnitudes (K,), float32 values, which are overwritten."""
        self.set(leaves, self.priorities(magnitudes))

    def drop(self, leaves: NDArray[np.int64]) -> None:
        """Give leaves (K,) no priority."""
        self.set(leaves, 0.0)

    def fill_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Give leaves (K,) errors as :meth:`set_errors` does, and all others no priority."""
        masses = np.zeros(self.size)
        masses[leaves] = self.priorities(magnitudes)
        self.fill(masses)

    def settle(self) -> None:
        """Let all priorities follow from the present errors."""

    def priorities(self, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """``(magnitude + epsilon)**alpha`` of each, after it was clipped, in place.

        Always of an array, so that a tree that is filled has the same bits as one that was set leaf by leaf.
        """
        settings = self._settings
        if self._clips:
            np.clip(magnitudes, settings.error_min, settings.error_max, out=magnitudes)
        if settings.epsilon:
            magnitudes += settings.epsilon
        np.power(magnitudes, settings.alpha, out=magnitudes)
        return np.maximum(magnitudes, settings.smallest, out=magnitudes) if settings.smallest else magnitudes


class RankTree(ProportionalTree):
    """A sum tree of ``(1 / rank)**alpha``, rank 1 being the largest error: Schaul et al., section 3.3, rank-based.

    Errors whose magnitudes differ by less than 1/512 share their mean rank, as equal ones do. Ranks up to 15 are exact,
    greater ones are rounded to three significant bits, by a ninth at most, so that few leaves change with an update.
    Priorities follow from the present errors alone, in which order these came makes no difference.

    A histogram of the errors has the ranks. Where the rounded rank of a bucket changes, its leaves are set anew.

    Args:
        size: number of leaves.
        settings: how priorities follow from ranks.
    """

    _histogram = ("_bucket_of", "_links", "_heads", "_counts", "_octaves", "_ranks")
    _beside_leaves = (*ProportionalTree._beside_leaves, *_histogram, "_initial_bucket", "is_current")

    def __init__(self, size: int, settings: PrioritySettings) -> None:
        super().__init__(size, settings)
        dtype: type[np.signedinteger] = np.int32 if size <= _LARGEST_INT32 else np.int64
        self._bucket_of = np.full(size, -1, np.int32)
        """(size,): the bucket of each leaf's error; -1 where it has no priority."""
        self._links: NDArray[np.signedinteger] = np.empty((size, 2), dtype)
        """(size, 2): the leaves before and after it in its bucket; -1 for none."""
        self._heads: NDArray[np.signedinteger] = np.full(BUCKETS, -1, dtype)
        """(buckets,): the first leaf of each; -1 for none."""
        self._counts: NDArray[np.signedinteger] = np.zeros(BUCKETS, dtype)
        """(buckets,): leaves in each."""
        self._octaves: NDArray[np.signedinteger] = np.zeros(BUCKETS // BUCKETS_OF_AN_OCTAVE, dtype)
        """Leaves in all buckets of a power of two."""
        self._ranks = np.full(BUCKETS, np.inf, np.float32)
        """(buckets,): the rounded rank that the leaves of each were set by."""
        self._initial_bucket = np.zeros(1, np.int32)
        self.is_current = True

    def set_initial(self, error: np.float32) -> None:
        """Set the error of leaves that :meth:`insert` adds."""
        self._initial_bucket = self._buckets(np.array([error]).astype(np.float64))

    def insert(self, first: int, count: int, cleared: int) -> None:
        """Give ``count`` leaves from one on the initial error, and ``cleared`` that follow no priority."""
        buckets = np.full(count + cleared, -1, np.int32)
        buckets[:count] = self._initial_bucket
        self._move(np.arange(first, first + count + cleared) % self.size, buckets)

    def set_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Give leaves (K,) errors of some magnitudes (K,), float32 values, which may be overwritten."""
        self._move(leaves, self._buckets(magnitudes))

    def drop(self, leaves: NDArray[np.int64]) -> None:
        """Give leaves (K,) no priority."""
        self._move(leaves, np.full(len(leaves), -1, np.int32))

    def fill_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Give leaves (K,) errors, and all others no priority."""
        self.clear()
        self._move(leaves, self._buckets(magnitudes))

    def clear(self) -> None:
        """Give no leaf a priority."""
        super().clear()
        self._bucket_of.fill(-1)
        self._heads.fill(-1)
        self._counts.fill(0)
        self._octaves.fill(0)
        self._ranks.fill(np.inf)

    def settle(self) -> None:
        """Let priorities follow from the ranks of the present errors."""
        self.is_current = True
        leaves, ranks = changed_ranks(self._links, self._heads, self._counts, self._octaves, self._ranks)
        self.set(leaves, ranks**-self._settings.alpha)

    @property
    def nbytes(self) -> int:
        """Bytes of memory: 12 for each leaf, and 1.5 MiB, beside those of the sums."""
        return super().nbytes + sum(int(getattr(self, name).nbytes) for name in self._histogram)

    def _move(self, leaves: NDArray[np.int64], to: NDArray[np.int32]) -> None:
        move(leaves, to, self._bucket_of, self._links, self._heads, self._counts, self._octaves)
        self.set(leaves, np.where(to < 0, 0.0, self._ranks[to].astype(np.float64) ** -self._settings.alpha))
        self.is_current = False

    def _buckets(self, magnitudes: NDArray[np.float64]) -> NDArray[np.int32]:
        # Numbers that are not negative are in the order of their bits.
        if self._clips:
            np.clip(magnitudes, self._settings.error_min, self._settings.error_max, out=magnitudes)
        bits: NDArray[np.int32] = magnitudes.astype(np.float32).view(np.int32)
        return bits >> SHIFT_OF_BUCKETS
