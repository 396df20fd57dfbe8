"""Drawing leaves in proportion to their masses: what prioritised replay chooses rows by.

A tree over the leaves whose inner nodes hold the sum, the smallest live mass and the largest mass below them. Memory
latency is all the cost there is, and two things keep it low. Nodes have eight children, because one cache line holds
eight float64: a search among a million leaves reads seven lines instead of twenty. And a batch goes through the tree
level by level, not leaf by leaf: what one search reads does not depend on what another does, so that the processor
waits for many lines at once. ``benchmarks/sum_tree.py`` compares this with other arrangements.

Everything lies in one array of float64: the leaves, eight to a group, then the inner levels from the bottom up. A
group of eight inner nodes is four cache lines: bounds, sums, minima, maxima. Child ``k``'s bound is the sum of the
siblings before it, and infinity where that is the sum of all siblings already: a search takes the last child whose
bound is no greater than what it looks for, and whatever rounding did on the way, that child is alive.

What is above a changed leaf is computed anew from children, never by adding a difference, so that nothing drifts and
the tree is a function of its leaves alone.
"""

import math
from typing import Any, Self

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

LARGEST_MASS = 1e280
"""No leaf may be heavier, so that no sum of masses overflows."""

# Unsigned, because numba compiles a test for negative indices into every access by a signed one.
_FAN_OUT = np.uint64(8)
_SHIFT = np.uint64(3)
_CHILD = np.uint64(7)
_SUMS, _MINIMA, _MAXIMA, _GROUP = np.uint64(8), np.uint64(16), np.uint64(24), np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_CACHE_LINE = 64


class SumTree:
    """Masses over a fixed number of leaves: set many, draw many, in O(log n) each and without the GIL.

    A tree is not locked: threads that share one take turns. Copies and pickles hold the leaves and nothing else.

    Args:
        size: how many leaves there are, at least 1. All masses are 0 at first.

    Raises:
        ValueError: there would be no leaf.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"SumTree: size must be at least 1, got {size}")
        self._allocate(size)

    @classmethod
    def from_leaves(cls, leaves: NDArray[np.floating]) -> Self:
        """A tree over these masses, in O(n); the same tree that ``set`` makes of them.

        Args:
            leaves: (n,), masses, converted to float64.

        Raises:
            ValueError: the leaves are not one-dimensional, or there is none, or a mass is negative, NaN or larger than
                ``LARGEST_MASS``.
        """
        if leaves.ndim != 1:
            raise ValueError(f"SumTree: leaves must be (n,), got {leaves.shape}")
        tree = cls(len(leaves))
        wrong = np.flatnonzero(~((leaves >= 0) & (leaves <= LARGEST_MASS)))
        if len(wrong):
            raise _mass_error(int(wrong[0]), float(leaves[wrong[0]]))
        tree._nodes[: tree.size] = leaves
        _rebuild(tree._nodes, tree._levels, tree.size)
        return tree

    def _allocate(self, size: int) -> None:
        self.size = size
        """How many leaves there are."""
        self._levels, length = _layout(size)
        self._nodes = _aligned_zeros(length)
        groups = self._nodes[int(self._levels[1]) :].reshape(-1, 4, int(_FAN_OUT))
        groups[:, 0] = groups[:, 2] = math.inf
        self._root = int(self._levels[-1])

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, Any]:
        # The array is a view that begins with a cache line: a copy of it would begin anywhere.
        return {"leaves": self.leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        leaves = state["leaves"]
        self._allocate(len(leaves))
        self._nodes[: self.size] = leaves
        _rebuild(self._nodes, self._levels, self.size)

    @property
    def leaves(self) -> NDArray[np.float64]:
        """A copy of all masses, (size,) float64: ``from_leaves`` makes the same tree of it."""
        return self._nodes[: self.size].copy()

    @property
    def nbytes(self) -> int:
        """Bytes that the tree takes: about 1.6 times its leaves."""
        return self._nodes.nbytes + self._levels.nbytes

    @property
    def total(self) -> float:
        """The sum of all masses."""
        return float(self._nodes[self._root + int(_SUMS)])

    @property
    def minimum(self) -> float:
        """The smallest mass that is not 0; infinity where all are."""
        return float(self._nodes[self._root + int(_MINIMA)])

    @property
    def maximum(self) -> float:
        """The largest mass."""
        return float(self._nodes[self._root + int(_MAXIMA)])

    def clear(self) -> None:
        """Set all masses to 0."""
        self._nodes[: self.size] = 0
        _rebuild(self._nodes, self._levels, self.size)

    def set(self, leaves: NDArray[np.integer], masses: ArrayLike) -> None:
        """Give leaves new masses. Of a leaf that is named more than once, the last mass stays.

        Args:
            leaves: (K,), indices in [0, size).
            masses: (K,), or one mass for all; converted to float64. 0 makes a leaf that is never drawn.

        Raises:
            IndexError: a leaf is outside [0, size). Nothing was set.
            ValueError: a mass is negative, NaN or larger than ``LARGEST_MASS``, or the shapes do not fit. Nothing was
                set.
            TypeError: the indices are not integers.
        """
        indices = np.asarray(leaves)
        if indices.dtype.kind not in "iu":
            raise TypeError(f"SumTree: leaves must be integers, got {indices.dtype}")
        values = np.asarray(masses, np.float64)
        if indices.ndim != 1 or values.shape not in ((), indices.shape):
            raise ValueError(
                f"SumTree: leaves must be (K,) and masses (K,) or one number, got {indices.shape} and {values.shape}"
            )
        indices = np.ascontiguousarray(indices, np.int64)
        values = np.ascontiguousarray(values).reshape(-1)
        wrong = _set_leaves(self._nodes, self._levels, self.size, indices, values)
        if wrong >= 0:
            if not 0 <= indices[wrong] < self.size:
                raise IndexError(
                    f"SumTree: leaf {indices[wrong]} (position {wrong}) is not in [0, {self.size}); nothing was set. "
                    f"A number that goes round a ring is leaf number % {self.size}"
                )
            raise _mass_error(wrong, float(values[wrong if len(values) > 1 else 0]))

    def mass(self, first: int = 0, last: int | None = None) -> float:
        """The sum of the masses of a window.

        Args:
            first: number of the window's first leaf.
            last: number after its last one; see ``sample``.

        Raises:
            ValueError: the window is none.
        """
        return float(_window_mass(self._nodes, self._levels, self.size, *self._window(first, last)))

    def sample(
        self, uniforms: NDArray[np.float64], first: int = 0, last: int | None = None, stratified: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw leaves in proportion to their masses, with replacement; never one of mass 0.

        The leaves of a window only, if asked: the numbers [first, last), where number ``n`` is leaf ``n % size``. So a
        window may pass the end of the leaves and go on at the first one, and transitions of a ring that has wrapped are
        named by the numbers that they have there.

        Args:
            uniforms: (B,), random numbers in [0, 1), which decide what is drawn.
            first: number of the window's first leaf.
            last: number after its last one, at most ``first + size``; that is also what None stands for.
            stratified: draw ``i`` is made within the ``i``-th of B equal parts of the mass (Schaul et al., arXiv
                1511.05952, appendix B.2.1), which come in the order of the leaves, those of a window from its first
                on, those of all leaves from leaf 0 on. Otherwise draws are independent.

        Returns:
            The numbers of the leaves drawn, (B,) int64, in [first, last), and their masses, (B,) float64.

        Raises:
            ValueError: the window is none, or without mass, or a random number is outside [0, 1).
        """
        first, last = self._window(first, last)
        uniforms = np.ascontiguousarray(uniforms, np.float64)
        if uniforms.ndim != 1:
            raise ValueError(f"SumTree: uniforms must be (B,), got {uniforms.shape}")
        numbers = np.empty(len(uniforms), np.int64)
        masses = np.empty(len(uniforms), np.float64)
        wrong = _draw(self._nodes, self._levels, self.size, first, last, uniforms, stratified, numbers, masses)
        if wrong == _NO_MASS:
            raise ValueError(f"SumTree: leaves [{first}, {last}) hold no mass to draw by; set one of them above 0 first")
        if wrong >= 0:
            raise ValueError(
                f"SumTree: uniforms must lie in [0, 1), got {uniforms[wrong]} at position {wrong}; "
                f"a numpy Generator's random(B) gives such"
            )
        return numbers, masses

    def _window(self, first: int, last: int | None) -> tuple[int, int]:
        end = first + self.size if last is None else last
        if not 0 <= first <= end <= first + self.size:
            raise ValueError(
                f"SumTree: a window [first, last) needs 0 <= first <= last <= first + {self.size}, got [{first}, {end})"
            )
        return first, end


def _mass_error(position: int, mass: float) -> ValueError:
    return ValueError(
        f"SumTree: mass {mass} (position {position}) is not in [0, {LARGEST_MASS:g}]; nothing was set. "
        f"A leaf that must not be drawn has mass 0"
    )


def _layout(size: int) -> tuple[NDArray[np.uint64], int]:
    """Where each level begins, the leaves first and last the root, a group of its own; and where all end."""
    starts, fan_out, nodes, end = [0], int(_FAN_OUT), size, 0
    while nodes > 1 or len(starts) == 1:
        groups = -(-nodes // fan_out)
        end += groups * (fan_out if len(starts) == 1 else int(_GROUP))
        starts.append(end)
        nodes = groups
    return np.array(starts, np.uint64), end + int(_GROUP)


def _aligned_zeros(length: int) -> NDArray[np.float64]:
    itemsize = np.dtype(np.float64).itemsize
    memory = np.zeros(length + _CACHE_LINE // itemsize)
    skipped = -memory.ctypes.data % _CACHE_LINE // itemsize
    return memory[skipped : skipped + length]


@intrinsic
def _prefetch(context: Any, nodes: Any, index: Any) -> Any:  # noqa: ARG001
    """Have the cache line of ``nodes[index]`` fetched; nothing waits for it."""

    def compiled(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        # To read, to keep as near as possible, data.
        how = [number(0), number(3), number(1)]
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [byte], function), [address, *how])
        return context.get_dummy_value()

    return types.void(nodes, index), compiled


@numba.njit(cache=True, nogil=True)
def _set_leaves(
    nodes: NDArray[np.float64],
    levels: NDArray[np.uint64],
    size: int,
    leaves: NDArray[np.int64],
    masses: NDArray[np.float64],
) -> int:
    """Set leaves and what is above them; or return the first position that is wrong, -1 where none is."""
    step = 1 if masses.shape[0] > 1 else 0
    for i in range(leaves.shape[0]):
        mass = masses[i * step]
        # A NaN passes neither comparison.
        if not (0 <= leaves[i] < size and 0.0 <= mass <= LARGEST_MASS):
            return i
        _prefetch(nodes, np.uint64(leaves[i]))
    groups = np.empty(leaves.shape[0], np.uint64)
    count = 0
    for i in range(leaves.shape[0]):
        leaf = np.uint64(leaves[i])
        nodes[leaf] = masses[i * step]
        group = leaf >> _SHIFT
        if count == 0 or group != groups[count - 1]:
            groups[count] = group
            count += 1
            _prefetch_group(nodes, levels[1] + (group >> _SHIFT) * _GROUP)
    _update(nodes, levels, size, groups, count)
    return -1


@numba.njit(cache=True, nogil=True)
def _rebuild(nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int) -> None:
    _update(nodes, levels, size, np.empty(0, np.uint64), size)


@numba.njit(cache=True, nogil=True)
def _update(
    nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int, groups: NDArray[np.uint64], count: int
) -> None:
    """Compute anew what is above ``count`` groups of leaves; above all of them if they are as many as there are.

    ``groups`` is overwritten.
    """
    there_are = size
    for level in range(levels.shape[0] - 1):
        start, above = levels[level], levels[level + 1]
        there_are = (there_are + 7) // 8
        if count >= there_are:
            # The way up from a big batch soon meets every node, most of them more than once.
            count = there_are
            for i in range(count):
                _update_parent(nodes, level, start, above, np.uint64(i))
        else:
            kept = 0
            for i in range(count):
                group = groups[i]
                _update_parent(nodes, level, start, above, group)
                # Leaves that were drawn in strata come in order, so that neighbours share parents.
                parents = group >> _SHIFT
                if kept == 0 or parents != groups[kept - 1]:
                    groups[kept] = parents
                    kept += 1
                    if level + 2 < levels.shape[0]:
                        _prefetch_group(nodes, levels[level + 2] + (parents >> _SHIFT) * _GROUP)
            count = kept


@numba.njit(cache=True, nogil=True)
def _prefetch_group(nodes: NDArray[np.float64], first: np.uint64) -> None:
    for line in range(_ZERO, _GROUP, _FAN_OUT):
        _prefetch(nodes, first + line)


@numba.njit(cache=True, nogil=True)
def _update_parent(
    nodes: NDArray[np.float64], level: int, start: np.uint64, above: np.uint64, group: np.uint64
) -> None:
    """Compute the parent of a group anew, and the group's bounds."""
    total, smallest, largest = 0.0, math.inf, 0.0
    if level == 0:
        first = group << _SHIFT
        for k in range(_FAN_OUT):
            mass = nodes[first + k]
            total += mass
            smallest = min(smallest, mass if mass > 0.0 else math.inf)
            largest = max(largest, mass)
    else:
        first = start + group * _GROUP
        for k in range(_FAN_OUT):
            total += nodes[first + _SUMS + k]
            smallest = min(smallest, nodes[first + _MINIMA + k])
            largest = max(largest, nodes[first + _MAXIMA + k])
        before = 0.0
        for k in range(_FAN_OUT):
            nodes[first + k] = before if before < total else math.inf
            before += nodes[first + _SUMS + k]
    parent = above + (group >> _SHIFT) * _GROUP + (group & _CHILD)
    nodes[parent + _SUMS] = total
    nodes[parent + _MINIMA] = smallest
    nodes[parent + _MAXIMA] = largest


_NO_MASS = -2


@numba.njit(cache=True, nogil=True)
def _draw(
    nodes: NDArray[np.float64],
    levels: NDArray[np.uint64],
    size: int,
    first: int,
    last: int,
    uniforms: NDArray[np.float64],
    stratified: bool,
    numbers: NDArray[np.int64],
    masses: NDArray[np.float64],
) -> int:
    """Write what was drawn; or return the first position that is wrong or ``_NO_MASS``, -1 where all is well."""
    draws = uniforms.shape[0]
    for i in range(draws):
        if not 0.0 <= uniforms[i] < 1.0:
            return i
    piece_levels, pieces, bounds, total = _pieces(nodes, levels, size, first, last)
    if total == 0.0:
        return _NO_MASS
    # Until they are numbers, these are the nodes reached so far; masses, what is looked for below them.
    reached = numbers.view(np.uint64)
    heights = np.empty(draws, np.int64)
    for i in range(draws):
        mass = ((i + uniforms[i]) / draws if stratified else uniforms[i]) * total
        piece = 0
        for j in range(1, bounds.shape[0]):
            piece += bounds[j] <= mass
        heights[i] = piece_levels[piece]
        reached[i] = pieces[piece]
        masses[i] = mass - bounds[piece]
    for level in range(levels.shape[0] - 2, 0, -1):
        start, below, width = levels[level], levels[level - 1], _GROUP if level > 1 else _FAN_OUT
        for i in range(draws):
            if heights[i] > level:
                group = start + reached[i] * _GROUP
                mass = masses[i]
                child = _ZERO
                for k in range(_ONE, _FAN_OUT):
                    child += np.uint64(nodes[group + k] <= mass)
                reached[i] = (reached[i] << _SHIFT) + child
                masses[i] = mass - nodes[group + child]
                _prefetch(nodes, below + reached[i] * width)
    origin = first - first % size
    for i in range(draws):
        leaf = reached[i]
        if heights[i] > 0:
            group = leaf << _SHIFT
            total = 0.0
            for k in range(_FAN_OUT):
                total += nodes[group + k]
            before, child = 0.0, _ZERO
            for k in range(_CHILD):
                before += nodes[group + k]
                child += np.uint64((before <= masses[i]) & (before < total))
            leaf = group + child
        masses[i] = nodes[leaf]
        number = origin + np.int64(leaf)
        numbers[i] = number if number >= first else number + size
    return -1


@numba.njit(cache=True, nogil=True)
def _window_mass(nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int, first: int, last: int) -> float:
    total: float = _pieces(nodes, levels, size, first, last)[3]
    return total


@numba.njit(cache=True, nogil=True)
def _pieces(
    nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64], float]:
    """The fewest live nodes that are a window: levels, nodes, masses before each in the window, mass of all.

    A window's mass is the sum of its pieces, not a difference of sums up to its ends: these may be so much heavier than
    the window that nothing of it would be left.
    """
    most = 4 * levels.shape[0] * 7
    at, found, bounds = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty(most, np.float64)
    if last - first == size:
        count, total = _add_pieces(nodes, levels, size, 0, size, at, found, bounds, 0, 0.0)
    else:
        begin = first % size
        end = begin + last - first
        count, total = _add_pieces(nodes, levels, size, begin, min(end, size), at, found, bounds, 0, 0.0)
        count, total = _add_pieces(nodes, levels, size, 0, end - size, at, found, bounds, count, total)
    return at[:count], found[:count], bounds[:count], total


@numba.njit(cache=True, nogil=True)
def _add_pieces(
    nodes: NDArray[np.float64],
    levels: NDArray[np.uint64],
    size: int,
    left: int,
    right: int,
    at: NDArray[np.int64],
    found: NDArray[np.uint64],
    bounds: NDArray[np.float64],
    count: int,
    total: float,
) -> tuple[int, float]:
    """Append the pieces of leaves [left, right), which do not pass the end, in the order of the leaves."""
    top = levels.shape[0] - 1
    if right == size:
        # There is nothing behind the end, so a piece may reach behind it.
        right = 1 << (3 * top)
    if left >= right:
        return count, total
    level, rising = 0, True
    while level >= 0:
        # Up along the left end, until what is left has one parent; then down along the right end.
        end = right >> (3 * level)
        if rising:
            begin = left
            rising = level < top and (left + 7) >> 3 <= end >> 3
            if rising:
                left = (left + 7) >> 3
                end = left << 3
        else:
            begin = end & ~7
        for node in range(begin, end):
            piece = np.uint64(node)
            if level == 0:
                mass = nodes[piece]
            else:
                mass = nodes[levels[level] + (piece >> _SHIFT) * _GROUP + _SUMS + (piece & _CHILD)]
            if mass > 0.0:
                at[count], found[count], bounds[count] = level, piece, total
                count += 1
                total += mass
        level += 1 if rising else -1
    return count, total
