"""Sum trees of priorities computed from TD errors: proportional and rank-based."""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.priority_updates import BUCKETS, BUCKETS_OF_AN_OCTAVE, SHIFT_OF_BUCKETS, changed_ranks, move
from storages.core.kernels.sum_tree import SumTree

_LARGEST_INT32 = 2**31 - 1
BYTES_OF_A_RANK = 12
"""Bytes of ranks per leaf, besides those of the sum tree."""
BYTES_OF_A_HISTOGRAM = 12 * BUCKETS + 4 * (BUCKETS // BUCKETS_OF_AN_OCTAVE)
"""Bytes of the histogram of ranks, independent of the number of leaves."""


class PrioritySettings(NamedTuple):
    """Settings for computing priorities from errors."""

    epsilon: float = 0.0
    """Added to each error; does not change ranks."""
    alpha: float = 1.0
    """Exponent."""
    by_rank: bool = False
    """Whether priorities are rank-based instead of proportional."""
    error_min: float = 0.0
    """Lower bound to which errors are clipped."""
    error_max: float = math.inf
    """Upper bound to which errors are clipped."""
    smallest: float = 0.0
    """Lower bound of proportional priorities."""

    def clip(self, magnitudes: NDArray[np.float64]) -> None:
        """Clip the magnitudes of errors to the bounds, in place."""
        if self.error_min > 0 or self.error_max < math.inf:
            np.clip(magnitudes, self.error_min, self.error_max, out=magnitudes)


def compute_priorities(magnitudes: NDArray[np.float64], settings: PrioritySettings) -> NDArray[np.float64]:
    """Compute ``(magnitude + epsilon)**alpha`` of clipped magnitudes, in place.

    Always on an array, so that a filled tree is bitwise equal to one that was set leaf by leaf.
    """
    settings.clip(magnitudes)
    if settings.epsilon:
        magnitudes += settings.epsilon
    np.power(magnitudes, settings.alpha, out=magnitudes)
    return np.maximum(magnitudes, settings.smallest, out=magnitudes) if settings.smallest else magnitudes


def tree_of(size: int, settings: PrioritySettings) -> "ProportionalTree":
    """Make the tree for some settings, with all priorities 0."""
    return (RankTree if settings.by_rank else ProportionalTree)(size, settings)


class ProportionalTree(SumTree):
    """A sum tree of ``(|error| + epsilon)**alpha``, errors clipped: Schaul et al., arXiv 1511.05952, section 3.3.

    Args:
        size: number of leaves.
        settings: how priorities are computed from errors.
    """

    _beside_leaves: ClassVar[tuple[str, ...]] = ("_settings", "_initial")
    """Attributes that are copied and pickled besides the leaves."""
    is_current = True
    """Whether all priorities are up to date; otherwise :meth:`settle` must be called before any is read."""

    def __init__(self, size: int, settings: PrioritySettings) -> None:
        super().__init__(size)
        self._initial = 0.0
        self.follow(settings)

    def follow(self, settings: PrioritySettings) -> None:
        """Use other settings from now on; existing priorities are not recomputed."""
        self._settings = settings

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {name: getattr(self, name) for name in self._beside_leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self).update((name, state[name]) for name in self._beside_leaves)

    def set_initial(self, error: np.float32) -> None:
        """Set the error of leaves that :meth:`insert` adds."""
        self._initial = float(compute_priorities(np.array([error]).astype(np.float64), self._settings)[0])

    def insert(self, first: int, count: int, cleared: int) -> None:
        """Give ``count`` leaves from ``first`` on the initial error, and clear the ``cleared`` leaves after them."""
        self.set_stretch(first, count, self._initial, cleared)

    def set_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Set the errors of leaves (K,) to magnitudes (K,), float32 values in an array that is overwritten."""
        self.set(leaves, compute_priorities(magnitudes, self._settings))

    def drop(self, leaves: NDArray[np.int64]) -> None:
        """Set the priorities of leaves (K,) to 0."""
        self.set(leaves, 0.0)

    def fill_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Set the errors of leaves (K,) as :meth:`set_errors` does, and all other priorities to 0."""
        masses = np.zeros(self.size)
        masses[leaves] = compute_priorities(magnitudes, self._settings)
        self.fill(masses)

    def settle(self) -> None:
        """Bring all priorities up to date."""


class RankTree(ProportionalTree):
    """A sum tree of ``(1 / rank)**alpha``, rank 1 being the largest error: Schaul et al., section 3.3, rank-based.

    Errors in the same bucket of a histogram, with magnitudes within 1/512 of each other, share their mean rank, as
    equal ones do. Ranks up to 15 are exact, greater ones are rounded to three significant bits, by a ninth at most, so
    that few leaves change with an update. Priorities depend on the present errors alone, not on their history.

    Ranks are computed from the histogram. Where the rounded rank of a bucket changes, its leaves are set again.

    Args:
        size: number of leaves.
        settings: how priorities are computed from ranks.
    """

    _histogram = ("_bucket_of", "_links", "_heads", "_counts", "_octaves", "_ranks")
    _beside_leaves = (*ProportionalTree._beside_leaves, *_histogram, "_initial_bucket", "is_current")

    def __init__(self, size: int, settings: PrioritySettings) -> None:
        super().__init__(size, settings)
        dtype: type[np.signedinteger] = np.int32 if size <= _LARGEST_INT32 else np.int64
        self._bucket_of = np.full(size, -1, np.int32)
        """(size,): the bucket of each leaf's error; -1 where it has no priority."""
        self._links: NDArray[np.signedinteger] = np.empty((size, 2), dtype)
        """(size, 2): previous and next leaf in each leaf's bucket, a linked list; -1 for none."""
        self._heads: NDArray[np.signedinteger] = np.full(BUCKETS, -1, dtype)
        """(buckets,): the first leaf in each; -1 for none."""
        self._counts: NDArray[np.signedinteger] = np.zeros(BUCKETS, dtype)
        """(buckets,): number of leaves in each."""
        self._octaves: NDArray[np.signedinteger] = np.zeros(BUCKETS // BUCKETS_OF_AN_OCTAVE, dtype)
        """(octaves,): number of leaves in all buckets between two powers of two."""
        self._ranks = np.full(BUCKETS, np.inf, np.float32)
        """(buckets,): the rounded rank from which the leaves in each were set."""
        self._initial_bucket = np.zeros(1, np.int32)
        self.is_current = True

    def set_initial(self, error: np.float32) -> None:
        """Set the error of leaves that :meth:`insert` adds."""
        self._initial_bucket = self._buckets(np.array([error]).astype(np.float64))

    def insert(self, first: int, count: int, cleared: int) -> None:
        """Give ``count`` leaves from ``first`` on the initial error, and clear the ``cleared`` leaves after them."""
        buckets = np.full(count + cleared, -1, np.int32)
        buckets[:count] = self._initial_bucket
        self._move(np.arange(first, first + count + cleared) % self.size, buckets)

    def set_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Set the errors of leaves (K,) to magnitudes (K,), float32 values in an array that may be overwritten."""
        self._move(leaves, self._buckets(magnitudes))

    def drop(self, leaves: NDArray[np.int64]) -> None:
        """Set the priorities of leaves (K,) to 0."""
        self._move(leaves, np.full(len(leaves), -1, np.int32))

    def fill_errors(self, leaves: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
        """Set the errors of leaves (K,), and all other priorities to 0."""
        self.clear()
        self._move(leaves, self._buckets(magnitudes))

    def clear(self) -> None:
        """Set all priorities to 0."""
        super().clear()
        self._bucket_of.fill(-1)
        self._heads.fill(-1)
        self._counts.fill(0)
        self._octaves.fill(0)
        self._ranks.fill(np.inf)

    def settle(self) -> None:
        """Recompute the priorities whose rounded ranks have changed."""
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
        # The bits of non-negative floats, as integers, are in the same order.
        self._settings.clip(magnitudes)
        bits: NDArray[np.int32] = magnitudes.astype(np.float32).view(np.int32)
        return bits >> SHIFT_OF_BUCKETS
