"""Find, open and write data sets of all formats; writes are atomic."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from storages.datasets import minari, npz
from storages.datasets.dataset import About, Dataset, alike
from storages.datasets.directories import EpisodeDirectory, StorageDirectory
from storages.datasets.flat import D4rlDataset, Ends, FlatNames
from storages.datasets.minari_files import LAYOUTS
from storages.datasets.untrusted import damage_named
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.replay.ring_manifest import RingManifest

_HDF5_SUFFIXES = (".hdf5", ".h5")
_NPZ_SUFFIX = ".npz"
FORMATS = (*(f"minari-{layout}" for layout in LAYOUTS), "npz")
"""Formats that can be written."""


@dataclass(frozen=True)
class Written:
    """Description of a data set that was written.

    Args:
        path: its file or folder.
        format: one of :data:`FORMATS`.
        episodes: number of episodes.
        steps: number of transitions in all episodes.
    """

    path: Path
    format: str
    episodes: int
    steps: int


def open_dataset(path: str | os.PathLike[str], *, names: FlatNames | None = None, ends: Ends = "unknown") -> Dataset:
    """Open a data set: Minari's, D4RL's HDF5, NumPy's ``.npz``, or the directory of a storage.

    Episodes are read during iteration. Reading a file cannot run code.

    Args:
        path: a file or a folder.
        names: the names of flat arrays, if they are neither D4RL's nor stable-baselines3's.
        ends: how episodes of flat arrays ended, if the file does not distinguish termination from truncation. If it
            lacks final observations, the last step of an episode is kept if it "terminated", and left out otherwise.

    Raises:
        DatasetError: there is no data set, or it is damaged; the text names the file and a remedy.
    """
    place = Path(path)
    if not place.exists():
        raise DatasetError(f"{place} does not exist")
    opening = _opening(place)
    if opening is None:
        raise DatasetError(
            f"{place} holds no data set of a known format: a Minari data set is a folder with data/"
            f"{minari.METADATA}, a storage one with {RingManifest.name} or {EpisodeManifest.name}; files end in "
            f".npz, .hdf5 or .h5"
        )
    with damage_named(place):
        return opening(names, ends)


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a data set of a known format, by its name or its files."""
    place = Path(path)
    return place.exists() and _opening(place) is not None


def find_datasets(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Iterate over the paths of data sets and storages at a path and below it, in the order of their names.

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
    """Return a function that opens the data set at a path; None if its format is unknown."""
    if place.is_dir():
        if minari.metadata_folder(place) is not None:
            return lambda names, ends: minari.MinariDataset(place)
        if (place / RingManifest.name).is_file():
            return lambda names, ends: StorageDirectory(place)
        if (place / EpisodeManifest.name).is_file():
            return lambda names, ends: EpisodeDirectory(place)
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
    """Write episodes as a data set, atomically.

    Args:
        path: a path that does not exist yet: a folder for Minari's formats, or a file that ends in ``.npz``.
        episodes: the episodes, read one by one, all with the same fields.
        format: one of :data:`FORMATS`; if None, "npz" for a path that ends in ``.npz``, else "minari-hdf5".
        about: the metadata; if it has no id, one is made from the path.

    Raises:
        DatasetError: the path exists, the format is unknown, or an episode has other fields, shapes or dtypes than
            the first. Nothing is left behind.
    """
    place, about = Path(path), about or About()
    chosen = format_for(place, format)
    if about.dataset_id is not None:
        minari.refuse_malformed(about.dataset_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}.unfinished-", dir=place.parent))
    try:
        written = unfinished / place.name
        if chosen == "npz":
            lengths = npz.write(written, alike(episodes), about)
        else:
            lengths = minari.write(written, alike(episodes), about, chosen.removeprefix("minari-"))
        refuse_to_overwrite(place)
        written.rename(place)
    except DatasetError as error:
        raise DatasetError(f"{place} was not written: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Written(place, chosen, len(lengths), sum(lengths))


def format_for(path: Path, format: str | None) -> str:  # noqa: A002
    """Choose the format of a new data set at a path.

    Raises:
        DatasetError: the path exists, there is no such format, or the path does not fit it.
    """
    is_npz = path.suffix == _NPZ_SUFFIX
    chosen = format or ("npz" if is_npz else FORMATS[0])
    if chosen not in FORMATS:
        raise DatasetError(f"format must be one of {', '.join(FORMATS)}, got {chosen!r}")
    if is_npz != (chosen == "npz") or path.suffix in _HDF5_SUFFIXES:
        raise DatasetError(
            f"{path} cannot be in the format {chosen}: npz is a file that ends in {_NPZ_SUFFIX}, the others are folders"
        )
    refuse_to_overwrite(path)
    return chosen


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a path that exists.

    Raises:
        DatasetError: it does.
    """
    if path.exists():
        raise DatasetError(f"{path} exists already; name another path, or delete it")
