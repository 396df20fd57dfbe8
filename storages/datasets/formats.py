"""Find, open and write data sets of all formats; writes are atomic."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storages.datasets import minari, npz
from storages.datasets.answers import Answers, Ends, FlatNames
from storages.datasets.d3rlpy import D3rlpyDataset, is_d3rlpy
from storages.datasets.dataset import About, Dataset, require_same_fields
from storages.datasets.directories import EpisodeDirectory, StorageDirectory
from storages.datasets.grouped import GroupedDataset, is_grouped
from storages.datasets.hdf5_arrays import D4rlDataset
from storages.datasets.minari_files import LAYOUTS
from storages.datasets.tables import SUFFIXES as TABLE_SUFFIXES
from storages.datasets.tables import LeRobotDataset, TableDataset, is_lerobot
from storages.datasets.untrusted import damage_named, open_hdf5
from storages.datasets.values import with_possible_values
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


def open_dataset(
    path: str | os.PathLike[str],
    *,
    names: FlatNames | None = None,
    ends: Ends | None = None,
    timeouts: str | None = None,
    max_episode_steps: int | None = None,
    episode: str | None = None,
    rewards: str | None = None,
    first_action: int | None = None,
    leave_out: Sequence[str] = (),
    action_names: Sequence[str] = (),
) -> Dataset:
    """Open a data set: Minari's, LeRobot's, HDF5, ``.npz``, CSV or Parquet files, or the directory of a storage.

    Episodes are read during iteration. Reading a file cannot run code. Names of arrays that libraries use are known.
    How episodes end is not guessed: a file that leaves it open is refused, until an argument answers.

    Args:
        path: a file or a folder.
        names: the names of arrays, if they are not known.
        ends: how episodes ended, if the file does not distinguish termination from truncation. If it lacks final
            observations, the last step of an episode is kept if it "terminated", and left out otherwise.
        timeouts: name of the array that is true where a time limit ended an episode; "none" if none ever did.
        max_episode_steps: a time limit: an episode of so many steps ended by it, unless it terminated.
        episode: name of the array with a number or a text for each episode, the same at all its steps.
        rewards: name of the array of rewards; "none" for a file without any, whose rewards are read as 0.
        first_action: the number of the first choice of discrete actions in flat arrays; it is subtracted.
        leave_out: names of parts of observations that are not read.
        action_names: names of the discrete actions of flat arrays, in the order of their numbers. Texts of a column are
            numbered in this order, instead of the alphabetical one; some of them need not occur.

    Raises:
        AmbiguousDataError: the file leaves open what its arrays mean, or where episodes end; the text names the
            arguments that answer.
        DatasetError: there is no data set, it is damaged, or an argument does not apply to it; the text names the
            file and a remedy.
    """
    place = Path(path)
    answers = Answers(
        names, ends, timeouts, max_episode_steps, episode, rewards, first_action, tuple(leave_out), tuple(action_names)
    )
    if not place.exists():
        raise DatasetError(f"{place} does not exist")
    opening = _opening(place)
    if opening is None:
        raise DatasetError(
            f"{place} holds no data set of a known format: a Minari data set is a folder with data/"
            f"{minari.METADATA}, LeRobot's one with meta/info.json, a storage one with {RingManifest.name} or "
            f"{EpisodeManifest.name}; files end in {', '.join((*_SUFFIXES[:-1],))} or {_SUFFIXES[-1]}"
        )
    with damage_named(place):
        return opening(answers)


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a data set of a known format, by its name or its files."""
    place = Path(path)
    return place.exists() and _opening(place) is not None


def find_datasets(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Iterate over the paths of data sets and storages at a path and below it, in the order of their names.

    Tables (CSV and Parquet files) below a folder are left out, as few of them are of steps.

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
            is_hidden = entry.name.startswith(".") or entry.is_symlink()
            if not is_hidden and (entry.suffix not in TABLE_SUFFIXES or entry.is_dir()):
                yield from _found(entry)


def _opening(place: Path) -> Callable[[Answers], Dataset] | None:
    """Return a function that opens the data set at a path; None if its format is unknown."""
    if not place.is_dir():
        opening = _OF_FILES.get(place.suffix)
        return None if opening is None else lambda answers: opening(place, answers)
    if minari.metadata_folder(place) is not None:
        return lambda answers: minari.MinariDataset(place, answers)
    if is_lerobot(place):
        return lambda answers: LeRobotDataset(place, answers)
    for manifest, directory in ((RingManifest, StorageDirectory), (EpisodeManifest, EpisodeDirectory)):
        if (place / manifest.name).is_file():
            return lambda answers: _storage(directory, place, answers)
    return None


def _storage(
    directory: type[StorageDirectory] | type[EpisodeDirectory], place: Path, answers: Answers
) -> StorageDirectory | EpisodeDirectory:
    answers.refuse_others(place, "the directory of a storage", ())
    return directory(place)


def open_hdf5_dataset(path: Path, answers: Answers) -> Dataset:
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


_OF_FILES: dict[str, Callable[[Path, Answers], Dataset]] = {
    _NPZ_SUFFIX: npz.opened,
    **dict.fromkeys(_HDF5_SUFFIXES, open_hdf5_dataset),
    **dict.fromkeys(TABLE_SUFFIXES, TableDataset),
}
_SUFFIXES = tuple(_OF_FILES)


def write_dataset(
    path: str | os.PathLike[str],
    episodes: Iterable[Episode],
    *,
    format: str | None = None,  # noqa: A002
    about: About | None = None,
    allow_nonfinite: bool = False,
) -> Written:
    """Write episodes as a data set, atomically.

    Args:
        path: a path that does not exist yet: a folder for Minari's formats, or a file that ends in ``.npz``.
        episodes: the episodes, read one by one, all with the same fields.
        format: one of :data:`FORMATS`; if None, "npz" for a path that ends in ``.npz``, else "minari-hdf5".
        about: the metadata; if it has no id, one is made from the path.
        allow_nonfinite: whether observations, actions and rewards may hold NaN and infinity, which storages refuse
            unless they have the same hyper-parameter.

    Raises:
        DatasetError: the path exists, the format is unknown, an episode has other fields, shapes or dtypes than
            the first, or a value that cannot be: NaN, an action that is not in the Discrete, MultiDiscrete or
            MultiBinary space of ``about``, or one that was taken with a probability of zero. Nothing is left behind.
    """
    place, about = Path(path), about or About()
    possible = with_possible_values(episodes, about.action_space, allow_nonfinite=allow_nonfinite)
    chosen = format_for(place, format)
    if about.dataset_id is not None:
        minari.refuse_malformed(about.dataset_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}.unfinished-", dir=place.parent))
    try:
        written = unfinished / place.name
        if chosen == "npz":
            lengths = npz.write(written, require_same_fields(possible), about)
        else:
            lengths = minari.write(written, require_same_fields(possible), about, chosen.removeprefix("minari-"))
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
    if is_npz != (chosen == "npz") or path.suffix in (*_HDF5_SUFFIXES, *TABLE_SUFFIXES):
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
