"""Flat arrays in HDF5 files, such as D4RL's and the first version of d3rlpy's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from storages.datasets.answers import Answers
from storages.datasets.flat import FLAT_ANSWERS, FlatDataset
from storages.datasets.untrusted import MemoryBudget, child_node, is_numeric, nbytes_of, numbers

_MOST_DEPTH = 8


class D4rlDataset(FlatDataset):
    """Flat arrays in an HDF5 file, such as D4RL's, read episode by episode.

    Args:
        path: the file.
        file: the open file.
        answers: what the user says about it.

    Raises:
        DatasetError: an array is missing, or no array of numbers.
    """

    format: ClassVar[str] = "d4rl"

    def __init__(self, path: Path, file: Any, answers: Answers) -> None:
        answers.refuse_others(path, "a file of flat arrays", FLAT_ANSWERS)
        self._file = file
        super().__init__(path, Nodes(path, file), answers)


class Nodes(Mapping[str, Any]):
    """The arrays of numbers in a group (N, ...), and the groups below it, checked when they are accessed.

    Args:
        path: the file, for errors.
        group: the group.
        scalars: whether arrays without a first axis are among them.
        budget: the memory that reading may take; that of the file if None.
        depth: number of groups above it.
    """

    def __init__(
        self, path: Path, group: Any, *, scalars: bool = False, budget: MemoryBudget | None = None, depth: int = 0
    ) -> None:
        self._path, self._budget, self._depth = path, budget or MemoryBudget(path), depth
        nodes = {name: child_node(group, name, str(path)) for name in group}
        self._nodes = {
            name: node
            for name, node in nodes.items()
            if ((scalars or node.shape) if hasattr(node, "dtype") else depth < _MOST_DEPTH)
        }
        self._taken: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        node = self._nodes[name]
        if not hasattr(node, "dtype"):
            return Nodes(self._path, node, budget=self._budget, depth=self._depth + 1)
        if name not in self._taken:
            self._budget.take(nbytes_of(numbers(node, str(self._path))), name)
            self._taken.add(name)
        return node

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def groups(self) -> list[str]:
        """Return the names of the groups."""
        return [name for name, node in self._nodes.items() if not hasattr(node, "dtype")]

    def is_scalar(self, name: str) -> bool:
        """Whether an array is a single number."""
        return getattr(self._nodes[name], "shape", None) == ()

    def is_boolean(self, name: str) -> bool:
        """Whether an array holds booleans."""
        node = self._nodes[name]
        return is_numeric(node) and node.dtype.kind == "b"
