"""HDF5 files of flat arrays, as D4RL keeps data sets."""

from pathlib import Path
from typing import ClassVar

from storages.persistent.datasets import hdf5
from storages.persistent.datasets.flat import Ends, FlatDataset, FlatNames, names_in
from storages.persistent.errors import DatasetError


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
        arrays = {name: file[name] for name in file if name in named or hdf5.is_numbers(file[name])}
        for name in set(named).intersection(arrays):
            hdf5.numbers(arrays[name], str(path))
        super().__init__(path, arrays, names, ends)
