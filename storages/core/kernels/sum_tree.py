"""Sum tree for prioritised sampling: draws leaves in proportion to their masses.

Inner nodes hold the sum of their children. Memory latency dominates the cost, and three measures hide it. Nodes have
eight children, because a cache line holds eight float64: a search among a million leaves reads seven lines instead of
twenty. A batch descends level by level, not leaf by leaf, so that searches do not wait for each other. And each search
prefetches the line that it will read on the next level. ``benchmarks/storages/sum_tree.py`` compares other layouts.

The sums above a changed leaf are recomputed from children, never updated by a difference: there is no drift, and the
tree is a function of its leaves alone.

The layout of the nodes is that of :mod:`storages.core.kernels.sum_tree_nodes`.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from storages.core.kernels.extremes import LARGEST, SMALLEST, blocks_above, rebuild_extremes
from storages.core.kernels.sum_tree_nodes import (
    FAN_OUT,
    LARGEST_MASS,
    NO_MASS,
    OF_A_STRETCH,
    draw,
    rebuild,
    set_leaves,
    window_mass,
)

_CACHE_LINE = 64


class SumTree:
    """Sum tree over a fixed number of leaves: batched updates and draws in O(log n) each, without the GIL.

    A tree has no lock: threads that share one must synchronise. Copies and pickles hold the leaves alone.

    Args:
        size: number of leaves, at least 1. All masses are 0 at first.

    Raises:
        ValueError: there would be no leaf.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"SumTree: size must be at least 1, got {size}")
        self._allocate(size)

    @classmethod
    def from_leaves(cls, leaves: NDArray[np.floating]) -> Self:
        """Build the tree over these masses in O(n), bitwise equal to one made by ``set``.

        Args:
            leaves: (n,), masses, converted to float64.

        Raises:
            ValueError: there is no leaf, or more than one axis, or a mass is negative, NaN or above ``LARGEST_MASS``.
        """
        if leaves.ndim != 1:
            raise ValueError(f"SumTree: leaves must be (n,), got {leaves.shape}")
        tree = cls(len(leaves))
        tree.fill(leaves)
        return tree

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        # The nodes are aligned to a cache line; a copy of them would not be.
        return {"leaves": self.leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._allocate(len(state["leaves"]))
        self._fill(state["leaves"])

    @property
    def leaves(self) -> NDArray[np.float64]:
        """A copy of all masses, (size,) float64, from which ``from_leaves`` builds the same tree."""
        return self._nodes[: self.size].copy()

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self._nodes[self._root])

    @property
    def minimum(self) -> float:
        """The smallest mass that is not 0; infinity if all are 0."""
        return float(self._nodes[self._extremes + SMALLEST])

    @property
    def maximum(self) -> float:
        """The largest mass."""
        return float(self._nodes[self._extremes + LARGEST])

    @property
    def nbytes(self) -> int:
        """Bytes of memory: about 1.2 times those of the leaves."""
        return self._nodes.nbytes + self._levels.nbytes + self._blocks.nbytes

    def fill(self, masses: NDArray[np.floating]) -> None:
        """Set the masses of all leaves, in O(n).

        Args:
            masses: (size,).

        Raises:
            ValueError: there are more or fewer masses than leaves, or a mass is negative, NaN or above
                ``LARGEST_MASS``. Nothing was set.
        """
        if masses.shape != (self.size,):
            raise ValueError(f"SumTree: masses must be ({self.size},), one for each leaf, got {masses.shape}")
        wrong = np.flatnonzero(~((masses >= 0) & (masses <= LARGEST_MASS)))
        if len(wrong):
            raise _mass_error(int(wrong[0]), float(masses[wrong[0]]))
        self._fill(masses)

    def clear(self) -> None:
        """Set all masses to 0, in O(n)."""
        self._fill(0.0)

    def set(self, leaves: NDArray[np.integer], masses: ArrayLike) -> None:
        """Set the masses of leaves; if a leaf is repeated, its last mass stays.

        Args:
            leaves: (K,), indices in [0, size).
            masses: (K,), or one mass for all; converted to float64. A leaf of mass 0 is never drawn.

        Raises:
            IndexError: a leaf is outside [0, size). Nothing was set.
            TypeError: the leaves are not integers.
            ValueError: a mass is negative, NaN or above ``LARGEST_MASS``, or the shapes do not fit. Nothing was set.
        """
        indices, values = np.asarray(leaves), np.asarray(masses, np.float64)
        if indices.dtype.kind not in "iu":
            raise TypeError(f"SumTree: leaves must be integers, got {indices.dtype}")
        if indices.ndim != 1 or values.shape not in ((), indices.shape):
            raise ValueError(
                f"SumTree: leaves must be (K,) and masses (K,) or one number, got {indices.shape} and {values.shape}"
            )
        indices, values = np.ascontiguousarray(indices, np.int64), np.ascontiguousarray(values)
        step = 1 if len(values) == len(indices) else 0
        wrong = set_leaves(self._nodes, self._levels, self._blocks, self.size, indices, values, step)
        if wrong >= 0:
            if not 0 <= indices[wrong] < self.size:
                raise IndexError(
                    f"SumTree: leaf {indices[wrong]} (position {wrong}) is not in [0, {self.size}); nothing was set. "
                    f"A number that goes round a ring names leaf number % {self.size}"
                )
            raise _mass_error(wrong, float(values[wrong * step]))

    def set_stretch(self, first: int, count: int, mass: float, cleared: int) -> None:
        """Set consecutive leaves to one mass, and those after them to 0; indices wrap around.

        Args:
            first: the first leaf, in [0, size).
            count: number of leaves to set.
            mass: at least 0 and at most ``LARGEST_MASS``.
            cleared: number of leaves after them to set to 0.

        Raises:
            ValueError: the mass is negative, NaN or above ``LARGEST_MASS``, or there are fewer leaves. Nothing was set.
        """
        if not 0.0 <= mass <= LARGEST_MASS:
            raise _mass_error(first, mass)
        if not 0 <= first < self.size or count < 0 or cleared < 0 or count + cleared > self.size:
            raise ValueError(
                f"SumTree: a stretch of {count} and {cleared} leaves from {first} on is not in {self.size} leaves"
            )
        self._stretch[0], self._stretch[1], self._stretch[2], self._mass[0] = first, count, cleared, mass
        set_leaves(self._nodes, self._levels, self._blocks, self.size, self._stretch, self._mass, OF_A_STRETCH)

    def masses_of(self, leaves: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the masses (K,) of leaves (K,)."""
        return self._nodes[: self.size][leaves]

    def mass(self, first: int = 0, last: int | None = None) -> float:
        """Return the total mass of a window.

        Args:
            first: number of the window's first leaf.
            last: number after its last one; see ``sample``.

        Raises:
            ValueError: the numbers are not a valid window.
        """
        return float(window_mass(self._nodes, self._levels, self.size, *self._window(first, last)))

    def sample(
        self, uniforms: NDArray[np.float64], first: int = 0, last: int | None = None, stratified: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw leaves in proportion to their masses, with replacement; never one of mass 0.

        Draws may be limited to a window: the numbers [first, last), where number ``n`` is leaf ``n % size``. A window
        may wrap around the end of the leaves, so that the numbers of a ring buffer can be used as they are.

        Args:
            uniforms: (B,), random numbers in [0, 1), which determine the draws.
            first: number of the window's first leaf.
            last: number after its last one, at most ``first + size``, which is the default.
            stratified: take draw ``i`` from the ``i``-th of B equal strata of the mass (Schaul et al., arXiv
                1511.05952, appendix B.2.1), in the order of the window; a window of all leaves begins with leaf 0.
                Otherwise draws are independent.

        Returns:
            The numbers of the leaves drawn, (B,) int64, in [first, last), and their masses, (B,) float64.

        Raises:
            ValueError: the window is invalid or has no mass, or a random number is outside [0, 1).
        """
        first, last = self._window(first, last)
        uniforms = np.ascontiguousarray(uniforms, np.float64)
        if uniforms.ndim != 1:
            raise ValueError(f"SumTree: uniforms must be (B,), got {uniforms.shape}")
        numbers, masses = np.empty(len(uniforms), np.int64), np.empty(len(uniforms), np.float64)
        wrong = draw(self._nodes, self._levels, self.size, first, last, uniforms, stratified, numbers, masses)
        if wrong == NO_MASS:
            raise ValueError(
                f"SumTree: there is no mass in [{first}, {last}) to draw by; set a leaf of it above 0 first"
            )
        if wrong >= 0:
            raise ValueError(
                f"SumTree: uniforms must lie in [0, 1), got {uniforms[wrong]} (position {wrong}); "
                f"a numpy Generator's random(B) does"
            )
        return numbers, masses

    def _window(self, first: int, last: int | None) -> tuple[int, int]:
        begin = int(first)
        end = begin + self.size if last is None else int(last)
        if not 0 <= begin <= end <= begin + self.size:
            raise ValueError(
                f"SumTree: a window [first, last) has 0 <= first <= last <= first + {self.size}, got [{begin}, {end})"
            )
        return begin, end

    def _allocate(self, size: int) -> None:
        self.size = size
        """Number of leaves."""
        self._levels = _layout(size)
        self._blocks = blocks_above(size, int(self._levels[-1]))
        self._nodes = _aligned_zeros(int(self._blocks[-1]))
        # Arguments of compiled code; allocated once, because that takes as long as the call.
        self._stretch, self._mass = np.zeros(3, np.int64), np.zeros(1)
        self._root = int(self._levels[-2])
        self._extremes = int(self._blocks[-2])
        self._fill(0.0)

    def _fill(self, masses: ArrayLike) -> None:
        self._nodes[: self.size] = masses
        rebuild(self._nodes, self._levels, self.size)
        rebuild_extremes(self._nodes, self._blocks, self.size)


def _mass_error(position: int, mass: float) -> ValueError:
    return ValueError(
        f"SumTree: mass {mass} (position {position}) is not in [0, {LARGEST_MASS:g}]; nothing was set. "
        f"A leaf that must not be drawn has mass 0"
    )


def _layout(size: int) -> NDArray[np.uint64]:
    """Return the offsets of the levels, leaves first, root last, and the end; levels are padded to whole groups."""
    starts, nodes = [0], size
    while True:
        groups = -(-nodes // int(FAN_OUT))
        starts.append(starts[-1] + groups * int(FAN_OUT))
        if nodes == 1 and len(starts) > 2:
            return np.array(starts, np.uint64)
        nodes = groups


def _aligned_zeros(length: int) -> NDArray[np.float64]:
    itemsize = np.dtype(np.float64).itemsize
    memory = np.zeros(length + _CACHE_LINE // itemsize)
    skipped = -memory.ctypes.data % _CACHE_LINE // itemsize
    return memory[skipped : skipped + length]
