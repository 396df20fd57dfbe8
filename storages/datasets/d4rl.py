"""HDF5 files of flat arrays, as D4RL keeps data sets."""

from pathlib import Path
from typing import ClassVar

from storages.datasets import hdf5
from storages.datasets.budget import MemoryBudget
from storages.datasets.flat import Ends, FlatDataset, FlatNames, names_in
from storages.errors import DatasetError


class D4rlDataset(FlatDataset):
    """One of them; arrays are read episode by episode.

    Args:
        path: the file.
        names: what the arrays are called; as D4RL has them, where None.
        ends: how episodes ended where the file does not say.

    Raises:
        DatasetError: there are no such arrays.
    """

    format: ClassVar[str] = "d4rl"

    def __init__(self, path: Path, names: FlatNames | None = None, ends: Ends = "unknown") -> None:
        file = hdf5.opened(path)
        self._file = file
        names = names or names_in(file)
        if names is None:
            raise DatasetError(
                f"{path} has arrays that are called {', '.join(file)}; tell what they are: "
                f"names=FlatNames(observations=..., actions=..., rewards=..., terminals=..., ...)"
            )
        named = names.named().values()
        nodes = {name: hdf5.part(file, name, str(path)) for name in file}
        arrays = {name: node for name, node in nodes.items() if name in named or hdf5.is_numbers(node)}
        budget = MemoryBudget(path)
        for name in set(named).intersection(arrays):
            budget.take(hdf5.nbytes_of(hdf5.numbers(arrays[name], str(path))), name)
        super().__init__(path, arrays, names, ends)
