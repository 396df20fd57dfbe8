"""HDF5 files: flat arrays, arrays of each episode, or a group for each episode."""

from pathlib import Path

from storages.datasets.answers import Answers
from storages.datasets.d3rlpy import D3rlpyDataset, is_d3rlpy
from storages.datasets.dataset import Dataset
from storages.datasets.grouped import GroupedDataset, is_grouped
from storages.datasets.hdf5_arrays import D4rlDataset
from storages.datasets.untrusted import open_hdf5


def opened(path: Path, answers: Answers) -> Dataset:
    """Open the data set in an HDF5 file.

    Args:
        path: the file.
        answers: what the user says about it.

    Raises:
        AmbiguousDataError: it is unknown what its arrays mean, or where episodes end.
        DatasetError: it is no HDF5 file, or an array is missing.
    """
    file = open_hdf5(path)
    if is_d3rlpy(file):
        return D3rlpyDataset(path, file, answers)
    return (
        GroupedDataset(path, file, answers)
        if is_grouped(path, file, answers.names)
        else D4rlDataset(path, file, answers)
    )
