"""The sum tree beside other arrangements of one, and beside the trees of other libraries: 256 leaves drawn and set.

    python benchmarks/storages/sum_tree.py

Ours was chosen from these arrangements. All keep sums and minima in plain levels: two or eight children per node; one
leaf after another or the whole batch level by level; with or without prefetching the cache lines of the next level.
(Ours goes level by level and prefetches; it keeps the extremes of blocks of 64 leaves, and refuses invalid masses and
indices.) One thread; repetitions alternate between the trees, so that the machine's load affects all alike; medians.
"""

import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numba
import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.shared.contest import measure
from storages.core.kernels.sum_tree import SumTree
from storages.core.kernels.sum_tree_nodes import prefetch_node

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

OURS = "ours: 8 children, minima by blocks"
_WIDTH_WHERE_THERE_IS_NO_TERMINAL = 110


@dataclass
class Arguments:
    """What to measure."""

    sizes: tuple[int, ...] = (10_000, 1_000_000, 10_000_000)
    """Numbers of leaves."""
    batch_size: int = 256
    """Leaves drawn and set at a time."""
    repetitions: int = 15
    """Repetitions of each tree."""
    calls: int = 200
    """Calls in a repetition."""


class Tree(Protocol):
    """Interface of the trees that are compared."""

    def sample(self, uniforms: Floats) -> Integers:
        """Draw a leaf for each random number in [0, 1), one from each stratum of the mass."""

    def set(self, leaves: Integers, masses: Floats) -> None:
        """Give leaves new masses."""


def main(arguments: Arguments) -> None:
    """Print a table for each size."""
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_WHERE_THERE_IS_NO_TERMINAL
    trees = arrangements()
    for peer in (_tianshou, _torchrl):
        try:
            name, tree = peer()
            trees[name] = tree
        except ImportError as error:
            console.print(
                f"{peer.__name__[1:]}'s tree is left out: {str(error).splitlines()[0][:200]}", highlight=False
            )
    for size in arguments.sizes:
        console.print(_table(trees, size, arguments))


def arrangements() -> dict[str, Callable[[Floats], Tree]]:
    """Return ways to lay out and descend a tree, ours first; each is made from its leaves."""
    trees: dict[str, Callable[[Floats], Tree]] = {OURS: _Ours}
    for fan_out in (2, 8):
        for order, by_level, ahead in (
            ("leaf by leaf", False, False),
            ("level by level", True, False),
            ("level by level, ahead", True, True),
        ):
            kernels = _plain_kernels(fan_out, by_level, ahead)
            trees[f"{fan_out} children, {order}"] = lambda leaves, kernels=kernels: _Plain(leaves, *kernels)
    return trees


def _table(trees: dict[str, Callable[[Floats], Tree]], size: int, arguments: Arguments) -> Table:
    generator = np.random.default_rng(0)
    leaves = generator.random(size) + 0.01
    batch = arguments.batch_size
    uniforms = cycle(generator.random((1_000, batch)))
    masses = cycle(generator.random((1_000, batch)) + 0.01)
    chosen = cycle(generator.integers(0, size, (1_000, batch)))
    made = {name: make(leaves) for name, make in trees.items()}

    def both(tree: Tree) -> None:
        tree.set(tree.sample(next(uniforms)), next(masses))

    work: list[Callable[[Tree], object]] = [
        lambda tree: tree.sample(next(uniforms)),
        lambda tree: tree.set(next(chosen), next(masses)),
        both,
    ]
    columns = [
        measure(
            {name: lambda tree=tree, call=call: call(tree) for name, tree in made.items()},  # type: ignore[misc]
            arguments.repetitions,
            arguments.calls,
        )
        for call in work
    ]
    table = Table(title=f"{size:,} leaves, microseconds for {batch}", title_justify="left")
    table.add_column("tree", no_wrap=True)
    for heading in ("draw in strata", "set any", "draw, then set these", "beside ours"):
        table.add_column(heading, justify="right")
    for name in made:
        ratios = [theirs / ours for theirs, ours in zip(columns[-1][name], columns[-1][OURS], strict=True)]
        medians = [f"{statistics.median(column[name]):,.1f}" for column in columns]
        table.add_row(name, *medians, f"{statistics.median(ratios):.2f}x")
    return table


class _Ours:
    def __init__(self, leaves: Floats) -> None:
        self._tree = SumTree.from_leaves(leaves)

    def sample(self, uniforms: Floats) -> Integers:
        return self._tree.sample(uniforms)[0]

    def set(self, leaves: Integers, masses: Floats) -> None:
        self._tree.set(leaves, masses)


class _Plain:
    """Levels of sums and of minima, the root first; a level is as wide as its parents' children.

    Args:
        leaves: (n,), masses.
        draw: the drawing kernel of ``_plain_kernels``.
        update: the updating kernel.
        fan_out: children of a node.
    """

    def __init__(self, leaves: Floats, draw: Any, update: Any, fan_out: int) -> None:
        sums, minima = [leaves], [np.where(leaves > 0, leaves, math.inf)]
        while len(sums[0]) > 1:
            missing = -len(sums[0]) % fan_out
            sums[0], minima[0] = (
                np.pad(sums[0], (0, missing)),
                np.pad(minima[0], (0, missing), constant_values=math.inf),
            )
            sums.insert(0, sums[0].reshape(-1, fan_out).sum(axis=1))
            minima.insert(0, minima[0].reshape(-1, fan_out).min(axis=1))
        # So that siblings share a cache line.
        begin = [0]
        for level in sums:
            begin.append(begin[-1] + -(-len(level) // 8) * 8)
        self._sums, self._minima = _aligned(begin[-1]), _aligned(begin[-1])
        for first, level_sums, level_minima in zip(begin, sums, minima, strict=False):
            self._sums[first : first + len(level_sums)] = level_sums
            self._minima[first : first + len(level_sums)] = level_minima
        self._levels = np.array(begin[:-1], np.uint64)
        self._draw, self._update = draw, update

    def sample(self, uniforms: Floats) -> Integers:
        leaves = np.empty(len(uniforms), np.uint64)
        self._draw(self._sums, self._levels, uniforms, leaves)
        return leaves.view(np.int64)

    def set(self, leaves: Integers, masses: Floats) -> None:
        self._update(self._sums, self._minima, self._levels, leaves.view(np.uint64), masses)


def _aligned(length: int) -> Floats:
    memory = np.zeros(length + 8)
    skipped = -memory.ctypes.data % 64 // 8
    return memory[skipped : skipped + length]


def _plain_kernels(fan_out: int, by_level: bool, ahead: bool) -> tuple[Any, Any, int]:
    """Kernels that draw and that update."""
    children, zero = np.uint64(fan_out), np.uint64(0)

    @numba.njit(nogil=True)
    def child_of(sums: Floats, first: Any, mass: float) -> Any:
        """Return the child that a mass falls into and the remaining mass; else the last child with a positive sum."""
        before, chosen, total = 0.0, zero, 0.0
        for child in range(children):
            if (sums[first + child] > 0.0) & (total <= mass):
                before, chosen = total, child
            total += sums[first + child]
        return chosen, mass - before

    @numba.njit(nogil=True)
    def draw(sums: Floats, levels: Any, uniforms: Floats, reached: Any) -> None:
        draws, last = uniforms.shape[0], levels.shape[0] - 1
        sought = np.empty(draws)
        for i in range(draws):
            sought[i], reached[i] = (i + uniforms[i]) / draws * sums[0], zero
        if by_level:
            for level in range(1, last + 1):
                for i in range(draws):
                    node = reached[i] * children
                    child, sought[i] = child_of(sums, levels[level] + node, sought[i])
                    reached[i] = node + child
                    if ahead and level < last:
                        prefetch_node(sums, levels[level + 1] + reached[i] * children)
        else:
            for i in range(draws):
                node, mass = zero, sought[i]
                for level in range(1, last + 1):
                    node *= children
                    child, mass = child_of(sums, levels[level] + node, mass)
                    node += child
                reached[i] = node

    @numba.njit(nogil=True)
    def update_parent(sums: Floats, minima: Floats, levels: Any, level: int, parent: Any) -> None:
        first = levels[level] + parent * children
        total, smallest = 0.0, math.inf
        for child in range(children):
            total += sums[first + child]
            smallest = min(smallest, minima[first + child])
        sums[levels[level - 1] + parent], minima[levels[level - 1] + parent] = total, smallest

    @numba.njit(nogil=True)
    def update(sums: Floats, minima: Floats, levels: Any, leaves: Any, masses: Floats) -> None:
        last = levels.shape[0] - 1
        if ahead:
            for i in range(leaves.shape[0]):
                prefetch_node(sums, levels[last] + leaves[i])
                prefetch_node(minima, levels[last] + leaves[i])
        for i in range(leaves.shape[0]):
            sums[levels[last] + leaves[i]] = masses[i]
            minima[levels[last] + leaves[i]] = masses[i] if masses[i] > 0.0 else math.inf
            if ahead and last > 0:
                prefetch_node(sums, levels[last - 1] + leaves[i] // children)
                prefetch_node(minima, levels[last - 1] + leaves[i] // children)
        if by_level:
            nodes = leaves.copy()
            for level in range(last, 0, -1):
                for i in range(nodes.shape[0]):
                    nodes[i] //= children
                    update_parent(sums, minima, levels, level, nodes[i])
                    if ahead and level > 1:
                        prefetch_node(sums, levels[level - 2] + nodes[i] // children)
                        prefetch_node(minima, levels[level - 2] + nodes[i] // children)
        else:
            for i in range(leaves.shape[0]):
                node = leaves[i]
                for level in range(last, 0, -1):
                    node //= children
                    update_parent(sums, minima, levels, level, node)

    return draw, update, fan_out


def _tianshou() -> tuple[str, Callable[[Floats], Tree]]:
    """Two children, leaf by leaf, compiled by numba; sums alone, as minima are not kept there."""
    from tianshou.data import SegmentTree

    class _Tianshou:
        def __init__(self, leaves: Floats) -> None:
            self._tree = SegmentTree(len(leaves))
            self._tree[np.arange(len(leaves))] = leaves

        def sample(self, uniforms: Floats) -> Integers:
            draws = len(uniforms)
            sought = (np.arange(draws) + uniforms) / draws * self._tree.reduce()
            leaves: Integers = self._tree.get_prefix_sum_idx(sought)
            return leaves

        def set(self, leaves: Integers, masses: Floats) -> None:
            self._tree[leaves] = masses

    return "tianshou (no minima)", _Tianshou


def _torchrl() -> tuple[str, Callable[[Floats], Tree]]:
    """Two children, leaf by leaf, in C++; a tree of sums and one of minima."""
    from torchrl._torchrl import MinSegmentTreeFp64, SumSegmentTreeFp64

    class _TorchRL:
        def __init__(self, leaves: Floats) -> None:
            self._size = len(leaves)
            self._sums, self._minima = SumSegmentTreeFp64(len(leaves)), MinSegmentTreeFp64(len(leaves))
            self.set(np.arange(len(leaves)), leaves)

        def sample(self, uniforms: Floats) -> Integers:
            draws = len(uniforms)
            sought = (np.arange(draws) + uniforms) / draws * self._sums.query(0, self._size)
            leaves: Integers = self._sums.scan_lower_bound(sought)
            return leaves

        def set(self, leaves: Integers, masses: Floats) -> None:
            self._sums[leaves] = masses
            self._minima[leaves] = masses

    return "torchrl", _TorchRL


if __name__ == "__main__":
    main(tyro.cli(Arguments))
