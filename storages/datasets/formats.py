"""Which kind of data set lies at a path, and writing one whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storages.datasets import minari_metadata, npz
from storages.datasets.d4rl import D4rlDataset
from storages.datasets.dataset import About, Dataset, damage_named
from storages.datasets.dataset_writer import Writer
from storages.datasets.episode_directory import EpisodeDirectoryDataset
from storages.datasets.flat import Ends, FlatNames
from storages.datasets.minari import WRITERS, MinariDataset, MinariWriter
from storages.datasets.storage_directory import StorageDirectory
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.episodes import archive_manifest
from storages.persistent.replay import manifest

_HDF5_SUFFIXES = (".hdf5", ".h5")
_NPZ_SUFFIX = ".npz"
FORMATS = (*(f"minari-{layout}" for layout in WRITERS), "npz")
"""Those that can be written."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Args:
        path: where.
        format: one of :data:`FORMATS`.
        episodes: how many.
        steps: transitions of all of them.
    """

    path: Path
    format: str
    episodes: int
    steps: int


def open_dataset(path: str | os.PathLike[str], *, names: FlatNames | None = None, ends: Ends = "unknown") -> Dataset:
    """The data set at a path: Minari's, D4RL's HDF5, numpy's ``.npz``, or the directory of a storage.

    Episodes are read when they are iterated over. Nothing that is read can run code.

    Args:
        path: a file or a folder.
        names: what flat arrays are called, where neither as D4RL nor as stable-baselines3 calls them.
        ends: how episodes of flat arrays ended where the file says that they did, and not how. What followed the last
            step of one is not known then; the step counts where episodes "terminated", and is left out else.

    Raises:
        DatasetError: there is none, or it is damaged; the text names the file and the way out.
    """
    place = Path(path)
    if not place.exists():
        raise DatasetError(f"{place} does not exist")
    opening = _opening(place)
    if opening is None:
        raise DatasetError(
            f"{place} holds no data set that is known: a Minari data set is a folder with data/"
            f"{minari_metadata.NAME}, a storage one with {manifest.NAME} or {archive_manifest.NAME}; files end in "
            f".npz, .hdf5 or .h5"
        )
    with damage_named(place):
        return opening(names, ends)


def find_datasets(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where data sets and storages are at a path or anywhere below it, in the order of their names.

    Raises:
        DatasetError: the path does not exist.
    """
    place = Path(path)
    if not place.exists():
        raise DatasetError(f"{place} does not exist")
    return _found(place)


def _found(place: Path) -> Iterator[Path]:
    if _opening(place) is not None:
        yield place
    elif place.is_dir():
        for entry in sorted(place.iterdir()):
            if not entry.name.startswith(".") and not entry.is_symlink():
                yield from _found(entry)


def _opening(place: Path) -> Callable[[FlatNames | None, Ends], Dataset] | None:
    """How to open what lies at a path; None where that is nothing known."""
    if place.is_dir():
        if minari_metadata.folder_of(place) is not None:
            return lambda names, ends: MinariDataset(place)
        if (place / manifest.NAME).is_file():
            return lambda names, ends: StorageDirectory(place)
        if (place / archive_manifest.NAME).is_file():
            return lambda names, ends: EpisodeDirectoryDataset(place)
        return None
    if place.suffix == _NPZ_SUFFIX:
        return lambda names, ends: npz.opened(place, names, ends)
    if place.suffix in _HDF5_SUFFIXES:
        return lambda names, ends: D4rlDataset(place, names, ends)
    return None


def write_dataset(
    path: str | os.PathLike[str],
    episodes: Iterable[Episode],
    *,
    format: str | None = None,  # noqa: A002
    about: About | None = None,
) -> Written:
    """Write episodes as a data set, which is at its path when it is whole, and not before.

    Args:
        path: what must not be there yet: a folder for Minari's formats, a file that ends in ``.npz``.
        episodes: read one by one; all of the same fields.
        format: one of :data:`FORMATS`; None takes "npz" where the path ends so, else "minari-hdf5".
        about: what it is to say of itself; its id follows from the path where it has none.

    Raises:
        DatasetError: something is there already, the format is not known, or an episode is unlike the first. Nothing
            is left behind.
    """
    place, about = Path(path), about or About()
    chosen = format_for(place, format)
    if about.dataset_id is not None:
        minari_metadata.refuse_malformed(about.dataset_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}.unfinished-", dir=place.parent))
    try:
        writer = _writer(unfinished / place.name, chosen, about)
        try:
            for episode in episodes:
                writer.add(episode)
            writer.finish()
        finally:
            writer.close()
        refuse_to_overwrite(place)
        (unfinished / place.name).rename(place)
    except DatasetError as error:
        raise DatasetError(f"{place} was not written: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Written(place, chosen, writer.episodes, writer.steps)


def format_for(path: Path, format: str | None) -> str:  # noqa: A002
    """The format that a data set at a path is to be written in.

    Raises:
        DatasetError: something is there already, or there is no such format, or the path is not one for it.
    """
    is_npz = path.suffix == _NPZ_SUFFIX
    chosen = format or ("npz" if is_npz else FORMATS[0])
    if chosen not in FORMATS:
        raise DatasetError(f"format must be one of {', '.join(FORMATS)}, got {chosen!r}")
    if is_npz != (chosen == "npz") or path.suffix in _HDF5_SUFFIXES:
        raise DatasetError(
            f"{path} is no name for the format {chosen}: npz is a file that ends in {_NPZ_SUFFIX}, the others are "
            f"folders"
        )
    refuse_to_overwrite(path)
    return chosen


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a path where something is.

    Raises:
        DatasetError: something is.
    """
    if path.exists():
        raise DatasetError(f"{path} exists already; name another path, or delete it")


def _writer(path: Path, format_: str, about: About) -> Writer:
    if format_ == "npz":
        return npz.NpzWriter(path, about)
    return MinariWriter(path, about, format_.removeprefix("minari-"))
