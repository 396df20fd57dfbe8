"""Minari data sets: a folder with metadata and episodes, which the package ``minari`` reads and writes as well.

``MinariDataset(path / "data")`` of that package opens what is written here, and ``minari.load_dataset(id)`` finds it
if it lies under the id's name in the folder that it looks into. Pictures are written as they are, not as JPEG. Infos
are left out, but for what a transition has under a name of :mod:`storages.transition` (log probabilities, values).
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages import transition
from storages.datasets import minari_metadata
from storages.datasets.budget import MemoryBudget
from storages.datasets.dataset import About, Dataset, Space
from storages.datasets.dataset_writer import Writer
from storages.datasets.minari_arrow import ArrowReader, ArrowWriter, ParquetWriter
from storages.datasets.minari_columns import Columns, ColumnsReader, ColumnsWriter, Key
from storages.datasets.minari_hdf5 import Hdf5Reader, Hdf5Writer
from storages.datasets.spaces import (
    Leaf,
    SpaceGuess,
    by_name,
    leaves_of,
    put_together,
    with_dtypes,
)
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.log.files import refuse_links_in
from storages.transition import ACT, REW, Array

WRITERS: dict[str, type[ColumnsWriter]] = {writer.layout: writer for writer in (Hdf5Writer, ArrowWriter, ParquetWriter)}
"""By Minari's name of the layout."""
_KEPT_INFOS = frozenset(
    getattr(transition, name) for name in ("IREW", "ACTPROBS", "VAL", "LOGP", "IVAL", "RHS", "RHS2")
)
_FLAGS = (("terminations",), ("truncations",))


class MinariDataset(Dataset):
    """A Minari data set.

    Args:
        path: its folder, which has ``data`` in it, or that.

    Raises:
        DatasetError: it holds none, or one whose spaces are not known or not made of numbers.
    """

    format: ClassVar[str] = "minari"

    def __init__(self, path: Path) -> None:
        folder = minari_metadata.folder_of(path)
        if folder is None:
            raise DatasetError(f"{path} holds no Minari data set: it has no data/{minari_metadata.NAME}")
        about, self._said = minari_metadata.read(folder)
        super().__init__(path, about)
        self._folder = folder
        self.layout: str = self._said["data_format"]
        """"hdf5", "arrow" or "parquet"."""
        if self.layout not in WRITERS:
            raise DatasetError(f"{path} is in Minari's format {self.layout!r}; {', '.join(WRITERS)} are read")
        refuse_links_in(folder)
        # A flag of a step takes a byte.
        MemoryBudget(folder).take(self.steps, "the flags of all steps")

    @property
    def steps(self) -> int:
        """Transitions of all episodes."""
        steps: int = self._said["total_steps"]
        return steps

    def __len__(self) -> int:
        """Episodes."""
        episodes: int = self._said["total_episodes"]
        return episodes

    def _episodes(self) -> Iterator[Episode]:
        observation, action = self._leaves()
        wanted: dict[Key, Leaf | None] = {("observations", *leaf.path): leaf for leaf in observation}
        wanted |= {("actions", *action.path): action, ("rewards",): None} | dict.fromkeys(_FLAGS)
        jpeg = bool(self._said.get("jpeg_encoding", True))
        with closing(self._reader()) as reader:
            numbers = reader.numbers()
            if len(numbers) != len(self):
                raise DatasetError(
                    f"{self._folder}: the metadata speak of {len(self)} episodes, and {len(numbers)} are there"
                )
            steps = 0
            for number in numbers:
                columns, facts = reader.read(number, wanted, jpeg)
                episode = self._episode(number, columns, facts, observation, action)
                steps += len(episode)
                yield episode
            if steps != self.steps:
                raise DatasetError(f"{self._folder}: the metadata speak of {self.steps} steps, and {steps} are there")

    def _leaves(self) -> tuple[list[Leaf], Leaf]:
        where = self._folder / minari_metadata.NAME
        if self.about.observation_space is None or self.about.action_space is None:
            raise DatasetError(
                f"{where} does not say the spaces; the package minari can tell them from the environment, and writes "
                f"them since 0.5"
            )
        return leaves_of(self.about.observation_space, where), action_leaf(self.about.action_space, where)

    def _reader(self) -> ColumnsReader:
        return Hdf5Reader(self._folder) if self.layout == "hdf5" else ArrowReader(self._folder, self.layout)

    def _episode(
        self, number: int, columns: Columns, facts: dict[str, Any], observation: list[Leaf], action: Leaf
    ) -> Episode:
        where = f"{self._folder}: episode {number}"
        steps = len(columns[("rewards",)])
        observations: dict[str, Array] = {}
        for leaf in observation:
            array = leaf.from_disk(columns[("observations", *leaf.path)])
            _check(array, leaf, steps + 1, f"{where}: observations {leaf.name}".rstrip())
            observations[leaf.name] = array
        actions = action.from_disk(columns[("actions",)], _start(action))
        _check(actions, action, steps, f"{where}: actions")
        terminations, truncations = (np.asarray(columns[key], np.bool_).reshape(-1) for key in _FLAGS)
        if len(terminations) != steps or len(truncations) != steps or (terminations | truncations)[:-1].any():
            raise DatasetError(
                f"{where} does not end where it says that it ends: its flags are set before its last step"
            )
        kept = {str(key[-1]): array for key, array in columns.items() if key[0] == "infos" and key[-1] in _KEPT_INFOS}
        return Episode(
            put_together(observation, observations),
            {ACT: actions, REW: columns[("rewards",)].reshape(-1, 1)}
            | {name: array[:-1] for name, array in kept.items() if len(array) == steps + 1},
            terminated=bool(terminations[-1:].any()),
            truncated=bool(truncations[-1:].any()),
            facts={"number": number, **facts},
        )


class MinariWriter(Writer):
    """Writes one.

    Args:
        path: its folder, which is there and empty.
        about: what it is to say of itself; spaces that are None are guessed from the values.
        layout: "hdf5", "arrow" or "parquet".
    """

    def __init__(self, path: Path, about: About, layout: str) -> None:
        super().__init__(path, about)
        self._folder = path / "data"
        self._folder.mkdir(parents=True)
        self._columns = WRITERS[layout](self._folder)
        self._guesses = SpaceGuess(), SpaceGuess()
        self._dtypes: tuple[dict[str, np.dtype[Any]], ...] = ()

    def _add(self, episode: Episode) -> None:
        arrays, actions = by_name(episode.observations), episode.fields[ACT]
        for guess, values in zip(self._guesses, (arrays, {"": actions}), strict=True):
            guess.add(values)
        observation = leaves_of(self.about.observation_space or self._guesses[0].space(), self.path)
        action = action_leaf(self.about.action_space or self._guesses[1].space(), self.path)
        if {leaf.name for leaf in observation} != set(arrays):
            raise DatasetError(
                f"the space to be written has observations {sorted(leaf.name for leaf in observation)}, the episode "
                f"{sorted(arrays)}"
            )
        for leaf, array in [*((leaf, arrays[leaf.name]) for leaf in observation), (action, actions)]:
            if not leaf.fits(array):
                raise DatasetError(f"values of shape {array.shape[1:]} are not of the space {leaf.space}")
        self._dtypes = {name: array.dtype for name, array in arrays.items()}, {"": actions.dtype}
        if action.is_scalar and actions.min() < 0:
            raise DatasetError(f"{ACT} is {actions.min()} somewhere; those of a Discrete space are counted from 0")
        columns: Columns = {("observations", *leaf.path): leaf.to_disk(arrays[leaf.name]) for leaf in observation}
        columns |= {
            ("actions",): action.to_disk(actions, _start(action)),
            ("rewards",): episode.fields[REW].reshape(-1),
        }
        for key, ended in zip(_FLAGS, (episode.terminated, episode.truncated), strict=True):
            columns[key] = np.arange(1, len(episode) + 1) == (len(episode) if ended else 0)
        for name in sorted(_KEPT_INFOS.intersection(episode.fields)):
            kept = episode.fields[name]
            columns[("infos", name)] = np.concatenate([kept, np.zeros_like(kept[:1])])
        facts = {"seed": episode.facts["seed"]} if isinstance(episode.facts.get("seed"), int) else {}
        self._columns.write(self.episodes, columns, facts)

    def close(self) -> None:
        """Finish files, whatever is in them."""
        self._columns.close()

    def _finish(self) -> None:
        self._columns.close()
        observation, action = (
            with_dtypes(space or guess.space(), dtypes)
            for space, guess, dtypes in zip(
                (self.about.observation_space, self.about.action_space), self._guesses, self._dtypes, strict=True
            )
        )
        about = replace(self.about, dataset_id=self.about.dataset_id or minari_metadata.id_for(self.path))
        layout, folder = self._columns.layout, self._folder
        minari_metadata.write(folder, about, layout, observation, action, self.episodes, self.steps)


def action_leaf(space: Space, where: object) -> Leaf:
    """An action space that is one array.

    Raises:
        DatasetError: it is more than one.
    """
    leaf, *others = leaves_of(space, where)
    if others or leaf.path:
        raise DatasetError(f"{where}: actions of the space {space} are more than one array; a transition has one")
    return leaf


def _start(leaf: Leaf) -> int:
    return int(leaf.space["start"]) if leaf.is_scalar else 0


def _check(array: Array, leaf: Leaf, rows: int, where: str) -> None:
    if len(array) != rows:
        raise DatasetError(f"{where} are {len(array)}, not {rows}")
    if not leaf.fits(array):
        raise DatasetError(f"{where} have shape {array.shape[1:]}, the space says {leaf.shape}")
