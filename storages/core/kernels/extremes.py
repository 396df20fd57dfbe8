"""Minimum and maximum mass of a sum tree's leaves, updated as leaves change.

A tree with a fan-out of 64: each block of 64 leaves has a minimum and a maximum, each block of 64 blocks too, and so on
up to the root. Usually a changed leaf is not an extreme of its block, neither before nor after, which two comparisons
show. Only if it was an extreme and no longer is, is its block searched.
"""

import math

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel, parallel_kernel
from storages.core.kernels.memory import address_of, prefetch_at

SMALLEST, LARGEST = 0, 1
"""Offsets of a block's smallest mass above 0 (infinity if there is none) and of its largest mass."""

_BLOCK, _SHIFT = 64, np.uint64(6)
_ONE = np.uint64(1)
_ITEM_BYTES = 8


def blocks_above(size: int, begin: int) -> NDArray[np.uint64]:
    """Return the offsets of the levels of extremes above ``size`` leaves, from ``begin`` on, and the end; root last."""
    starts, blocks = [begin], size
    while True:
        blocks = -(-blocks // _BLOCK)
        starts.append(starts[-1] + 2 * blocks)
        if blocks == 1:
            return np.array(starts, np.uint64)


@kernel
def follow_masses(
    nodes: NDArray[np.float64],
    blocks: NDArray[np.uint64],
    size: int,
    leaves: NDArray[np.int64],
    masses: NDArray[np.float64],
    step: int,
    changed: NDArray[np.uint64],
) -> None:
    """Set leaves ``leaves[i]`` to ``masses[i * step]``, in this order, and update the extremes.

    Args:
        nodes: leaves and, at ``blocks``, extremes; written.
        blocks: result of :func:`blocks_above`.
        size: number of leaves.
        leaves: (K,), indices in [0, size).
        masses: (K,), at least 0.
        step: 1, or 0 for one mass for all leaves.
        changed: (K,), overwritten.
    """
    for i in range(leaves.shape[0]):
        extreme = blocks[0] + (np.uint64(leaves[i]) >> _SHIFT << _ONE)
        prefetch_at(address_of(nodes) + np.int64(extreme) * _ITEM_BYTES)
    kept = 0
    for i in range(leaves.shape[0]):
        leaf = np.uint64(leaves[i])
        before, mass = nodes[leaf], masses[i * step]
        nodes[leaf] = mass
        block = leaf >> _SHIFT
        extreme = blocks[0] + (block << _ONE)
        smallest, largest = nodes[extreme], nodes[extreme + _ONE]
        alive = mass if mass > 0.0 else math.inf
        if (before != smallest) & (before != largest) & (alive >= smallest) & (mass <= largest):
            continue
        if (before == smallest and alive > smallest) or (before == largest and mass < largest):
            _update_from_leaves(nodes, size, block, extreme)
        else:
            nodes[extreme], nodes[extreme + _ONE] = min(smallest, alive), max(largest, mass)
        if nodes[extreme] != smallest or nodes[extreme + _ONE] != largest:
            changed[kept] = block
            kept += 1
    _follow_blocks(nodes, blocks, changed, kept)


@parallel_kernel
def rebuild_extremes(nodes: NDArray[np.float64], blocks: NDArray[np.uint64], size: int) -> None:
    """Recompute all extremes."""
    for block in range(np.int64(blocks[1] - blocks[0]) // 2):
        _update_from_leaves(nodes, size, np.uint64(block), blocks[0] + np.uint64(2 * block))
    for level in range(1, blocks.shape[0] - 1):
        for block in range(np.int64(blocks[level + 1] - blocks[level]) // 2):
            _update_from_blocks(nodes, blocks, level, np.uint64(block))


@kernel
def _follow_blocks(
    nodes: NDArray[np.float64], blocks: NDArray[np.uint64], changed: NDArray[np.uint64], count: int
) -> None:
    """Propagate the changed extremes of ``count`` blocks of leaves upwards, as far as they change anything."""
    for level in range(1, blocks.shape[0] - 1):
        kept = 0
        for i in range(count):
            block = changed[i] >> _SHIFT
            if _update_from_blocks(nodes, blocks, level, block):
                changed[kept] = block
                kept += 1
        count = kept


@kernel
def _update_from_leaves(nodes: NDArray[np.float64], size: int, block: np.uint64, extreme: np.uint64) -> None:
    first = np.int64(block) * _BLOCK
    smallest, largest = math.inf, 0.0
    for leaf in range(first, min(int(first) + _BLOCK, size)):
        mass = nodes[leaf]
        smallest = min(smallest, mass if mass > 0.0 else math.inf)
        largest = max(largest, mass)
    nodes[extreme], nodes[extreme + _ONE] = smallest, largest


@kernel
def _update_from_blocks(nodes: NDArray[np.float64], blocks: NDArray[np.uint64], level: int, block: np.uint64) -> bool:
    """Recompute a block's extremes from its child blocks; return whether they changed."""
    first = np.int64(blocks[level - 1]) + np.int64(block) * 2 * _BLOCK
    smallest, largest = math.inf, 0.0
    for position in range(first, min(first + 2 * _BLOCK, np.int64(blocks[level])), 2):
        smallest = min(smallest, nodes[position])
        largest = max(largest, nodes[position + 1])
    extreme = blocks[level] + (block << _ONE)
    changed: bool = nodes[extreme] != smallest or nodes[extreme + _ONE] != largest
    nodes[extreme], nodes[extreme + _ONE] = smallest, largest
    return changed
