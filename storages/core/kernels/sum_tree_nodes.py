"""The nodes of a sum tree, in one array of float64, level by level.

They are the leaves, the sums of each eight of them, and so on up to the root; then the minima and maxima of
:mod:`storages.core.kernels.extremes`.
"""

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.extremes import follow_masses
from storages.core.kernels.memory import address_of, prefetch_at

LARGEST_MASS = 1e280
"""Largest mass of a leaf, so that no sum of masses overflows."""
NO_MASS = -2
"""Result of :func:`draw` where a window has no mass."""
OF_A_STRETCH = -1
"""As ``step`` of :func:`set_leaves`: the leaves are consecutive, and have one mass."""

# Unsigned, because numba checks every signed index for being negative, and mixed signedness becomes float64.
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_TWO, _FOUR, FAN_OUT, _SHIFT = np.uint64(2), np.uint64(4), np.uint64(8), np.uint64(3)
_ITEM_BYTES = 8


@inlined_kernel
def prefetch_node(nodes: NDArray[np.float64], index: np.uint64) -> None:
    """Prefetch the cache line of ``nodes[index]``."""
    prefetch_at(address_of(nodes) + np.int64(index) * _ITEM_BYTES)


@parallel_kernel
def set_leaves(
    nodes: NDArray[np.float64],
    levels: NDArray[np.uint64],
    blocks: NDArray[np.uint64],
    size: int,
    leaves: NDArray[np.int64],
    masses: NDArray[np.float64],
    step: int,
) -> int:
    """Set ``leaves[i]`` to ``masses[i * step]``; or set none and return the first invalid position. -1 if none is.

    Where ``step`` is ``OF_A_STRETCH``, ``leaves`` are the first leaf, the number to set and the number to clear of
    :meth:`SumTree.set_stretch`. A separate function, with all that it calls, would take a second more to compile.
    """
    if step == OF_A_STRETCH:
        leaves, masses, step = *_expanded(leaves, masses[0], size), 1
    for i in range(leaves.shape[0]):
        # NaN fails every comparison.
        if not (0 <= leaves[i] < size and 0.0 <= masses[i * step] <= LARGEST_MASS):
            return i
        leaf = np.uint64(leaves[i])
        prefetch_node(nodes, leaf)
        prefetch_node(nodes, levels[1] + (leaf >> _SHIFT))
    groups = np.empty(leaves.shape[0], np.uint64)
    follow_masses(nodes, blocks, size, leaves, masses, step, groups)
    count, latest = 0, ~_ZERO
    for i in range(leaves.shape[0]):
        group = np.uint64(leaves[i]) >> _SHIFT
        if group != latest:
            groups[count] = latest = group
            count += 1
    _update_sums(nodes, levels, groups, count, size)
    return -1


@inlined_kernel
def _expanded(stretch: NDArray[np.int64], mass: float, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    first, count, cleared = stretch
    leaves, masses = np.empty(count + cleared, np.int64), np.zeros(count + cleared)
    for i in range(count + cleared):
        leaves[i] = first + i if first + i < size else first + i - size
        if i < count:
            masses[i] = mass
    return leaves, masses


@parallel_kernel
def rebuild(nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int) -> None:
    """Recompute all sums."""
    groups = np.empty((size + 7) // 8, np.uint64)
    for i in range(groups.shape[0]):
        groups[i] = i
    _update_sums(nodes, levels, groups, groups.shape[0], size)


@kernel
def _update_sums(
    nodes: NDArray[np.float64], levels: NDArray[np.uint64], groups: NDArray[np.uint64], count: int, size: int
) -> None:
    """Recompute the sums above ``count`` groups of leaves, or all sums if there are no more groups than that.

    ``groups`` is overwritten unless all sums are recomputed.
    """
    top = levels.shape[0] - 2
    there_are = size
    for level in range(top):
        # The paths of a big batch soon cover every node, so that all nodes of a level are quicker to recompute.
        there_are = (there_are + 7) // 8
        every = count >= there_are
        if every:
            count = there_are
        kept, latest = 0, ~_ZERO
        for i in range(count):
            group = np.uint64(i) if every else groups[i]
            first = levels[level] + (group << _SHIFT)
            nodes[levels[level + 1] + group] = _sum_of_four(nodes, first) + _sum_of_four(nodes, first + _FOUR)
            parents = group >> _SHIFT
            # Stratified draws are in order, so that neighbours share parents.
            if not every and parents != latest:
                groups[kept] = latest = parents
                kept += 1
                if level + 2 <= top:
                    prefetch_node(nodes, levels[level + 2] + parents)
        if not every:
            count = kept


@inlined_kernel
def _sum_of_four(nodes: NDArray[np.float64], first: np.uint64) -> float:
    total: float = (nodes[first] + nodes[first + _ONE]) + (nodes[first + _TWO] + nodes[first + _TWO + _ONE])
    return total


@parallel_kernel
def draw(
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
    """Write the draws and return -1; or return the first invalid position, or ``NO_MASS``."""
    draws = uniforms.shape[0]
    for i in range(draws):
        if not 0.0 <= uniforms[i] < 1.0:
            return i
    heights, reached = np.empty(draws, np.int64), np.empty(draws, np.uint64)
    piece_levels, pieces, bounds, count, total = _pieces(nodes, levels, size, first, last)
    if count == 0:
        return NO_MASS
    for i in range(draws):
        mass = ((i + uniforms[i]) / draws if stratified else uniforms[i]) * total
        piece = 0
        for j in range(1, count):
            piece += bounds[j] <= mass
        heights[i], reached[i], masses[i] = piece_levels[piece], pieces[piece], mass - bounds[piece]
    # Binary search within a group, without branches, which would be unpredictable.
    for level in range(levels.shape[0] - 3, -1, -1):
        start, below = levels[level], levels[level - 1] if level > 0 else _ZERO
        for i in range(draws):
            if heights[i] > level:
                group, mass = start + (reached[i] << _SHIFT), masses[i]
                half = _sum_of_four(nodes, group)
                child = np.uint64(half <= mass) << _TWO
                mass -= half if half <= mass else 0.0
                quarter = nodes[group + child] + nodes[group + child + _ONE]
                child += np.uint64(quarter <= mass) << _ONE
                mass -= quarter if quarter <= mass else 0.0
                eighth = nodes[group + child]
                child += np.uint64(eighth <= mass)
                mass -= eighth if eighth <= mass else 0.0
                while not nodes[group + child] > 0.0:
                    # Rounding may leave more mass than the group has; then take its last leaf or node with mass.
                    child -= _ONE
                    mass = nodes[group + child]
                masses[i] = mass
                reached[i] = (reached[i] << _SHIFT) + child
                if level > 0:
                    prefetch_node(nodes, below + (reached[i] << _SHIFT))
    origin = first - first % size
    for i in range(draws):
        masses[i] = nodes[reached[i]]
        number = origin + np.int64(reached[i])
        numbers[i] = number if number >= first else number + size
    return -1


@kernel
def window_mass(nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int, first: int, last: int) -> float:
    """Return the mass of the leaves [first, last)."""
    total: float = _pieces(nodes, levels, size, first, last)[4]
    return total


@kernel
def _pieces(
    nodes: NDArray[np.float64], levels: NDArray[np.uint64], size: int, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64], int, float]:
    """Return the fewest nodes with mass that cover a window: levels, nodes, masses before each; their number and mass.

    A window's mass is the sum of these pieces, not a difference of prefix sums, which can be so much larger than the
    window's mass that it cancels completely.
    """
    most = 4 * 7 * levels.shape[0]
    at, pieces, bounds = np.empty(most, np.int64), np.empty(most, np.uint64), np.empty(most, np.float64)
    top = levels.shape[0] - 2
    count, total = 0, 0.0
    begin = first % size
    end = begin + last - first
    for turn in range(2):
        left, right = (begin, min(end, size)) if turn == 0 else (0, end - size)
        if last - first == size:
            left, right = (0, size) if turn == 0 else (0, 0)
        if left >= right:
            continue
        if right == size:
            # Nodes beyond the last leaf have no mass, so that pieces may reach beyond it.
            right = 1 << (3 * top)
        level, rising = 0, True
        while level >= 0:
            # Ascend along the left end until one parent remains, then descend along the right end.
            stop = right >> (3 * level)
            if rising:
                start = left
                rising = level < top and (left + 7) >> 3 <= stop >> 3
                if rising:
                    left = (left + 7) >> 3
                    stop = left << 3
            else:
                start = stop & ~7
            for node in range(start, stop):
                piece = np.uint64(node)
                place = levels[level] + piece
                if nodes[place] > 0.0:
                    at[count], pieces[count], bounds[count] = level, piece, total
                    total += nodes[place]
                    count += 1
            level += 1 if rising else -1
    return at, pieces, bounds, count, total
