"""Data sets: episodes on disk, exchanged with other libraries.

:func:`open_dataset` reads Minari's data sets (its HDF5, Arrow and Parquet layouts), HDF5 files with D4RL's arrays,
files of numpy's arrays (``.npz``: our own, stable-baselines3's, or others with the names of their arrays given) and
the directories of storages. Each is a :class:`Dataset`, which yields one :class:`~storages.episode.Episode` after
another. :func:`write_dataset` writes Minari's layouts, which the package ``minari`` opens, and our own ``.npz``.
:func:`fill` inserts the episodes of a data set into a storage, :func:`episodes_of` yields the episodes in a storage.

HDF5 needs the package h5py, Arrow and Parquet need pyarrow: ``pip install h5py pyarrow``. Nothing that is read can
run code: arrays of objects are refused, and no environment is made from a file.
"""

from storages.datasets.dataset import About, Dataset, Space
from storages.datasets.fill import Filled, episodes_of, fill
from storages.datasets.flat import D4RL, STABLE_BASELINES3, Ends, FlatNames
from storages.datasets.formats import (
    FORMATS,
    Written,
    find_datasets,
    format_for,
    open_dataset,
    write_dataset,
)
from storages.datasets.operations import (
    about_merged,
    chosen,
    first_transitions,
    merged,
    normalised,
    references_of,
    return_of,
    with_returns_to_go,
)
from storages.datasets.selection import SelectedDataset, SelectEpisodes, succeeded

__all__ = [
    "D4RL",
    "FORMATS",
    "STABLE_BASELINES3",
    "About",
    "Dataset",
    "Ends",
    "Filled",
    "FlatNames",
    "SelectEpisodes",
    "SelectedDataset",
    "Space",
    "Written",
    "about_merged",
    "chosen",
    "episodes_of",
    "fill",
    "find_datasets",
    "first_transitions",
    "format_for",
    "merged",
    "normalised",
    "open_dataset",
    "references_of",
    "return_of",
    "succeeded",
    "with_returns_to_go",
    "write_dataset",
]
