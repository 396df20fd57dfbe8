"""Data sets in and out: episodes that others recorded, and that others are to use.

:func:`open_dataset` reads Minari's data sets (its HDF5, Arrow and Parquet layouts), HDF5 files as D4RL has them, files
of numpy's arrays (``.npz``; stable-baselines3's, or anybody's, whose names are told) and the directories of storages;
all of them are data sets (:class:`Dataset`), which yield an :class:`~storages.episode.Episode` at a time.
:func:`write_dataset` writes Minari's layouts, which the package ``minari`` opens, and our own ``.npz``. :func:`fill`
inserts a data set's episodes into a storage, :func:`episodes_of` yields those that a storage holds.

HDF5 needs the package h5py, Arrow and Parquet need pyarrow: ``pip install h5py pyarrow``. Nothing that is read can
run code: arrays of objects are refused, and no environment is made of what a file says about one.
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
from storages.datasets.operations import about_merged, chosen, merged, return_of

__all__ = [
    "D4RL",
    "FORMATS",
    "STABLE_BASELINES3",
    "About",
    "Dataset",
    "Ends",
    "Filled",
    "FlatNames",
    "Space",
    "Written",
    "about_merged",
    "chosen",
    "episodes_of",
    "fill",
    "find_datasets",
    "format_for",
    "merged",
    "open_dataset",
    "return_of",
    "write_dataset",
]
