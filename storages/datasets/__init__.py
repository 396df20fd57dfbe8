"""Offline data sets: episodes on disk, in the formats of this and other libraries.

:func:`open_dataset` reads Minari data sets (the HDF5, Arrow and Parquet layouts), files of D4RL, d3rlpy, robomimic,
imitation, stable-baselines3 and LeRobot, CSV and Parquet tables of steps, our own ``.npz`` files, and the directories
of storages. The names of other arrays are given. How episodes end is never guessed: a file that leaves it open is
refused until an argument answers. Each is a :class:`Dataset`, an iterable of :class:`~storages.episode.Episode`.
:func:`write_dataset` writes Minari's layouts, which the package ``minari`` opens, and our own ``.npz``. :func:`fill`
inserts the episodes of a data set into a storage, :func:`episodes_of` iterates over the episodes in a storage.

HDF5 needs the package h5py; Arrow, Parquet and CSV need pyarrow: ``pip install h5py pyarrow``. Reading a file cannot
run code: object arrays are refused, and no environment is made from a file.
"""

from storages.datasets.answers import Ends, FlatNames
from storages.datasets.dataset import About, Dataset, Space
from storages.datasets.fill import Filled, episodes_of, fill
from storages.datasets.formats import (
    FORMATS,
    Written,
    find_datasets,
    format_for,
    open_dataset,
    write_dataset,
)
from storages.datasets.known_names import D3RLPY, D4RL, RLDS, STABLE_BASELINES3
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
    "D3RLPY",
    "D4RL",
    "FORMATS",
    "RLDS",
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
