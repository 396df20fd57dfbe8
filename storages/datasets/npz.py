"""NumPy ``.npz`` files: our own layout, which holds each observation once, and flat arrays of other libraries.

Our layout has the arrays ``Observation`` (or ``Observation/<name>`` for each leaf), in which an episode of L steps has
L + 1 rows; the fields of the steps under their names in :mod:`storages.transition`; and ``Length``, ``Terminated`` and
``Truncated`` of each episode. ``About`` and ``Facts`` are JSON. Object arrays are never read.
"""

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from storages.datasets.answers import Answers
from storages.datasets.dataset import About, Dataset, arrays_of
from storages.datasets.flat import FLAT_ANSWERS, FlatDataset
from storages.datasets.imitation import ImitationDataset, is_imitation
from storages.datasets.untrusted import BROKEN, MemoryBudget
from storages.episode import Episode, Observations
from storages.errors import DatasetError, PersistenceError
from storages.transition import ACT, OBS, REW, Array

_LENGTH, _TERMINATED, _TRUNCATED, _ABOUT, _FACTS = "Length", "Terminated", "Truncated", "About", "Facts"


def opened(path: Path, answers: Answers) -> Dataset:
    """Open a data set in an ``.npz`` file.

    Args:
        path: the file.
        answers: what the user says about flat arrays.

    Raises:
        AmbiguousDataError: it is unknown what its arrays mean, or where episodes end.
        DatasetError: it is no ``.npz`` file, or damaged.
    """
    arrays = _Arrays(path)
    if answers.names is None:
        if _LENGTH in arrays:
            answers.refuse_others(path, "a file in our own layout", ())
            return NpzDataset(path, arrays)
        if is_imitation(arrays):
            return ImitationDataset(path, arrays, answers)
    answers.refuse_others(path, "a file of flat arrays", FLAT_ANSWERS)
    return FlatNpzDataset(path, arrays, answers)


class FlatNpzDataset(FlatDataset):
    """Flat arrays in an ``.npz`` file, such as stable-baselines3's."""

    format: ClassVar[str] = "npz of flat arrays"


class NpzDataset(Dataset):
    """A data set in our own layout, which is read as a whole.

    Args:
        path: the file.
        arrays: its arrays by name.
    """

    format: ClassVar[str] = "npz"

    def __init__(self, path: Path, arrays: Mapping[str, Array]) -> None:
        try:
            about = json.loads(arrays[_ABOUT].tobytes())
            lists = {key: tuple(value) for key, value in about.items() if isinstance(value, list)}
            super().__init__(path, About(**(about | lists)))
            lengths = arrays[_LENGTH].astype(np.int64)
            self._lengths = lengths.tolist()
            if lengths.ndim != 1 or not all(length > 0 for length in self._lengths):
                raise ValueError(f"{_LENGTH} must be at least 1 for each episode")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise DatasetError(f"{path} is damaged: {error!r}") from error
        self._arrays = arrays

    def _episodes(self) -> Iterator[Episode]:
        arrays = {name: self._arrays[name] for name in self._arrays}
        try:
            terminated, truncated = arrays.pop(_TERMINATED), arrays.pop(_TRUNCATED)
            facts = json.loads(arrays.pop(_FACTS).tobytes())
        except (KeyError, ValueError) as error:
            raise DatasetError(f"{self.path} is damaged: {error!r}") from error
        fields = {name: array for name, array in arrays.items() if name not in (_LENGTH, _ABOUT)}
        ends = np.cumsum(self._lengths)
        self._check(fields, len(facts), len(terminated), len(truncated))
        observed = {name: fields.pop(name) for name in list(fields) if _is_observation(name)}
        for number, (begin, end) in enumerate(zip(ends - self._lengths, ends, strict=True)):
            yield Episode(
                _observations({name: array[begin + number : end + number + 1] for name, array in observed.items()}),
                {name: array[begin:end] for name, array in fields.items()},
                terminated=bool(terminated[number]),
                truncated=bool(truncated[number]),
                facts=facts[number],
            )

    def _check(self, fields: Mapping[str, Array], *of_episodes: int) -> None:
        lengths = {name: len(array) - len(self) * _is_observation(name) for name, array in fields.items()}
        if not {ACT, REW} <= fields.keys():
            raise DatasetError(f"{self.path} lacks {ACT} or {REW}; it has {', '.join(fields)}")
        if set(lengths.values()) != {self.steps} or set(of_episodes) != {len(self)}:
            raise DatasetError(
                f"{self.path} is damaged: it claims {len(self)} episodes of {self.steps} steps, and its arrays have "
                f"lengths {lengths}"
            )


def write(path: Path, episodes: Iterable[Episode], about: About) -> list[int]:
    """Write a data set in our own layout, after collecting all episodes in memory; return their lengths.

    Args:
        path: the file.
        episodes: the episodes, all with the same fields, shapes and dtypes.
        about: the metadata.
    """
    pieces: dict[str, list[Array]] = {}
    ends: list[tuple[int, bool, bool]] = []
    facts: list[dict[str, Any]] = []
    for episode in episodes:
        for place, array in arrays_of(episode).items():
            pieces.setdefault("/".join(place), []).append(array.copy())
        ends.append((len(episode), episode.terminated, episode.truncated))
        facts.append({key: value for key, value in episode.facts.items() if _is_plain(value)})
    arrays = {name: np.concatenate(of_episodes) for name, of_episodes in pieces.items()}
    arrays |= dict(zip((_LENGTH, _TERMINATED, _TRUNCATED), map(np.array, zip(*ends, strict=True)), strict=True))
    arrays |= {_ABOUT: _json(asdict(about)), _FACTS: _json(facts)}
    # numpy.savez takes array names as keyword arguments, which may clash with its own parameters.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # Without a date, so that the same episodes make the same file.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return [length for length, *_ in ends]


class _Arrays(Mapping[str, Array]):
    """The arrays of a file, each read on first access."""

    def __init__(self, path: Path) -> None:
        self._path, self._budget = path, MemoryBudget(path)
        self._read: dict[str, Array] = {}
        try:
            with zipfile.ZipFile(path) as archive:
                self._names = [name[: -len(".npy")] for name in archive.namelist() if name.endswith(".npy")]
        except BROKEN as error:
            raise DatasetError(f"{path} cannot be read as an npz file: {error}") from error

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = self._array(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def is_boolean(self, name: str) -> bool:
        """Whether an array holds booleans."""
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(f"{name}.npy") as entry:
                return _header(entry)[1].kind == "b"
        except BROKEN:
            return False

    def _array(self, name: str) -> Array:
        try:
            with zipfile.ZipFile(self._path) as archive:
                return self._checked(archive, name)
        except PersistenceError:
            raise
        except BROKEN as error:
            raise DatasetError(
                f"{self._path}: {name} cannot be read, or holds pickled objects, which can run code: {error}"
            ) from error

    def _checked(self, archive: zipfile.ZipFile, name: str) -> Array:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as entry:
            shape, dtype = _header(entry)
            begin = entry.tell()
        if dtype.hasobject:
            raise ValueError(f"it is {dtype}")
        if dtype.kind not in "biuf":
            raise DatasetError(f"{self._path}: {name} is {dtype}; only numbers are read")
        nbytes = math.prod(shape) * dtype.itemsize
        if info.file_size != begin + nbytes:
            raise DatasetError(
                f"{self._path} is damaged: {name} claims to be {dtype}{shape}, which are {nbytes:,} bytes, and there "
                f"are {info.file_size - begin:,}"
            )
        self._budget.take(nbytes, name)
        with archive.open(info) as entry:
            array: Array = np.lib.format.read_array(entry, allow_pickle=False)
            # zipfile verifies the CRC only when the end is read.
            entry.read(1)
        return array


def _header(entry: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(entry)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(entry)
    return shape, dtype


def _is_observation(name: str) -> bool:
    return name == OBS or name.startswith(f"{OBS}/")


def _observations(arrays: Mapping[str, Array]) -> Observations:
    return arrays[OBS] if OBS in arrays else {name.removeprefix(f"{OBS}/"): array for name, array in arrays.items()}


def _json(plain: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(plain).encode(), np.uint8)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
