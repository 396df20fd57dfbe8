"""Minari data sets: a folder with metadata and episodes, in the format of the package ``minari``.

``minari.MinariDataset(path / "data")`` opens the data sets that are written here, and ``minari.load_dataset(id)`` finds
them under their id in the folder of Minari's data sets. Images are written as arrays, not as JPEG. Infos are left
out, except for fields of a transition (log-probabilities, values) under their names in :mod:`storages.transition`, and
for successes, which become facts of episodes.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages import transition
from storages.datasets.answers import Answers, FlatNames
from storages.datasets.dataset import About, Dataset
from storages.datasets.minari_files import LAYOUTS, ColumnKey, EpisodeColumns, files_of
from storages.datasets.selection import SUCCESS_FACTS
from storages.datasets.spaces import SpaceLeaf, WrittenSpace, arrays_by_name, leaves_of, observations_of, without
from storages.datasets.untrusted import MemoryBudget
from storages.episode import Episode
from storages.errors import DatasetError
from storages.files import read_text, refuse_links_in
from storages.transition import ACT, REW, Array

METADATA = "metadata.json"
_VERSION = "0.5.4"
"""Minari version of the written layout; the first version that supports images that are not JPEG."""
_ID = re.compile(r"([-_\w][-_\w/]*[-_\w]+/)?[-_\w]+-v\d+")
"""What the package ``minari`` takes for an id."""
_SPACES = ("observation_space", "action_space")
_LISTS = ("author", "author_email", "combined_datasets")
_COMPUTED = {"total_episodes", "total_steps", "data_format", "jpeg_encoding", "minari_version", "dataset_size"}
_OF_ABOUT = {field.name for field in fields(About)} - {"further"}
_KEPT_INFOS = frozenset(
    getattr(transition, name) for name in ("IREW", "REWC", "ACTPROBS", "VAL", "LOGP", "IVAL", "RHS", "RHS2")
)
_FLAGS = (("terminations",), ("truncations",))


class MinariDataset(Dataset):
    """A Minari data set.

    Args:
        path: its folder, which contains ``data``, or the folder ``data`` itself.
        answers: which parts of the observations to leave out, and other names of the flags.

    Raises:
        DatasetError: the folder holds no data set, its metadata are damaged, or it has no part that is to be left out.
    """

    format: ClassVar[str] = "minari"

    def __init__(self, path: Path, answers: Answers | None = None) -> None:
        answers = answers or Answers()
        answers.refuse_others(path, "a Minari data set", {"names", "leave_out"})
        self._flags = _flags_named(answers.names, path)
        folder = metadata_folder(path)
        if folder is None:
            raise DatasetError(f"{path} holds no Minari data set: it has no data/{METADATA}")
        about, self._metadata = _read_metadata(folder / METADATA)
        if answers.leave_out:
            about = replace(about, observation_space=without(about.observation_space, answers.leave_out, path))
        super().__init__(path, about)
        self._folder = folder
        self.layout: str = self._metadata["data_format"]
        """"hdf5", "arrow" or "parquet"."""
        if self.layout not in LAYOUTS:
            raise DatasetError(f"{path} is in Minari's format {self.layout!r}; {', '.join(LAYOUTS)} are read")
        refuse_links_in(folder)
        # One byte for the flags of each step.
        MemoryBudget(folder).take(self.steps, "the flags of all steps")

    @property
    def steps(self) -> int:
        """Number of transitions in all episodes."""
        steps: int = self._metadata["total_steps"]
        return steps

    def __len__(self) -> int:
        """Number of episodes."""
        episodes: int = self._metadata["total_episodes"]
        return episodes

    def _episodes(self) -> Iterator[Episode]:
        observation, action = self._leaves()
        wanted: dict[ColumnKey, SpaceLeaf | None] = {("observations", *leaf.path): leaf for leaf in observation}
        wanted |= {("actions", *action.path): action, ("rewards",): None} | dict.fromkeys(self._flags)
        jpeg = bool(self._metadata.get("jpeg_encoding", True))
        with closing(files_of(self._folder, self.layout)) as files:
            numbers = files.numbers()
            if len(numbers) != len(self):
                raise DatasetError(
                    f"{self._folder}: the metadata claim {len(self)} episodes, but there are {len(numbers)}"
                )
            steps = 0
            for number in numbers:
                columns, facts = files.read(number, wanted, jpeg)
                episode = self._episode(number, columns, facts, observation, action)
                steps += len(episode)
                yield episode
            if steps != self.steps:
                raise DatasetError(f"{self._folder}: the metadata claim {self.steps} steps, but there are {steps}")

    def _leaves(self) -> tuple[list[SpaceLeaf], SpaceLeaf]:
        where = self._folder / METADATA
        if self.about.observation_space is None or self.about.action_space is None:
            raise DatasetError(
                f"{where} has no spaces; the package minari can infer them from the environment, and writes them "
                f"since version 0.5"
            )
        actions = _one_array(leaves_of(self.about.action_space, where), where)
        return leaves_of(self.about.observation_space, where), actions

    def _episode(
        self,
        number: int,
        columns: EpisodeColumns,
        facts: dict[str, Any],
        observation: list[SpaceLeaf],
        action: SpaceLeaf,
    ) -> Episode:
        where = f"{self._folder}: episode {number}"
        steps = len(columns[("rewards",)])
        observations: dict[str, Array] = {}
        for leaf in observation:
            array = leaf.from_disk(columns[("observations", *leaf.path)])
            _check(array, leaf, steps + 1, f"{where}: observations {leaf.name}".rstrip())
            observations[leaf.name] = array
        actions = action.from_disk(columns[("actions",)], action.start)
        _check(actions, action, steps, f"{where}: actions")
        terminations, truncations = (np.asarray(columns[key], np.bool_).reshape(-1) for key in self._flags)
        if len(terminations) != steps or len(truncations) != steps or (terminations | truncations)[:-1].any():
            raise DatasetError(f"{where} is damaged: it has flags of an end before its last step, or too few of them")
        kept = {str(key[-1]): array for key, array in columns.items() if key[0] == "infos" and key[-1] in _KEPT_INFOS}
        return Episode(
            observations_of(observation, observations),
            {ACT: actions, REW: columns[("rewards",)].reshape(-1, 1)}
            | {name: array[:-1] for name, array in kept.items() if len(array) == steps + 1},
            terminated=bool(terminations[-1:].any()),
            truncated=bool(truncations[-1:].any()),
            facts={"number": number, **facts, **_successes(columns)},
        )


def write(path: Path, episodes: Iterable[Episode], about: About, layout: str) -> list[int]:
    """Write a Minari data set; return the lengths of its episodes.

    Args:
        path: its folder.
        episodes: the episodes, all with the same fields, shapes and dtypes.
        about: the metadata; spaces that are None are inferred from the values.
        layout: "hdf5", "arrow" or "parquet".
    """
    folder, lengths = path / "data", list[int]()
    folder.mkdir(parents=True)
    observation = WrittenSpace(about.observation_space, "observations")
    action = WrittenSpace(about.action_space, "actions")
    with closing(files_of(folder, layout, write=True)) as files:
        for number, episode in enumerate(episodes):
            observation.add(arrays_by_name(episode.observations))
            action.add({"": episode.fields[ACT]})
            facts = {"seed": episode.facts["seed"]} if isinstance(episode.facts.get("seed"), int) else {}
            files.write(number, _columns(episode, observation.leaves, _one_array(action.leaves, path)), facts)
            lengths.append(len(episode))
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    metadata: dict[str, Any] = {
        **about.further,
        "total_episodes": len(lengths),
        "total_steps": sum(lengths),
        "data_format": layout,
        "jpeg_encoding": False,
        "observation_space": json.dumps(observation.space()),
        "action_space": json.dumps(action.space()),
        "minari_version": _VERSION,
        "dataset_size": round(nbytes / 1e6, 1),
    }
    about = replace(about, dataset_id=about.dataset_id or _id_for(path))
    for key in sorted(_OF_ABOUT.difference(_SPACES)):
        value = getattr(about, key)
        if value is not None and value != ():
            metadata[key] = list(value) if isinstance(value, tuple) else value
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")
    return lengths


def _flags_named(names: FlatNames | None, path: Path) -> tuple[ColumnKey, ColumnKey]:
    """Return the columns of terminations and of truncations.

    Raises:
        DatasetError: names of other arrays are given, too.
    """
    names = names or FlatNames()
    (terminations,), (truncations,) = _FLAGS
    if replace(names, terminals=None, timeouts=None) != FlatNames():
        raise DatasetError(f"{path} is a Minari data set, in which only terminals and timeouts may have other names")
    return (names.terminals or terminations,), (names.timeouts or truncations,)


def _columns(episode: Episode, observation: list[SpaceLeaf], action: SpaceLeaf) -> EpisodeColumns:
    arrays, actions = arrays_by_name(episode.observations), episode.fields[ACT]
    if action.space["type"] in ("Discrete", "MultiDiscrete") and actions.min() < 0:
        kind = action.space["type"]
        raise DatasetError(f"{ACT} is {actions.min()} somewhere; those of a {kind} space are counted from 0")
    columns: EpisodeColumns = {("observations", *leaf.path): leaf.to_disk(arrays[leaf.name]) for leaf in observation}
    columns |= {("actions",): action.to_disk(actions, action.start), ("rewards",): episode.fields[REW].reshape(-1)}
    for key, ended in zip(_FLAGS, (episode.terminated, episode.truncated), strict=True):
        columns[key] = np.arange(1, len(episode) + 1) == (len(episode) if ended else 0)
    for name in sorted(_KEPT_INFOS.intersection(episode.fields)):
        kept = episode.fields[name]
        columns[("infos", name)] = np.concatenate([kept, np.zeros_like(kept[:1])])
    for name in SUCCESS_FACTS:
        if name in episode.facts:
            # An episode is a success if any of its steps is.
            columns[("infos", name)] = np.full(len(episode) + 1, bool(episode.facts[name]))
    return columns


def metadata_folder(path: Path) -> Path | None:
    """Return the folder with the metadata: ``path / "data"``, or ``path`` itself; None if neither has them."""
    for folder in (path / "data", path):
        if (folder / METADATA).is_file():
            return folder
    return None


def refuse_malformed(dataset_id: str) -> None:
    """Refuse an id that Minari does not accept.

    Raises:
        DatasetError: Minari does not accept it.
    """
    if not _ID.fullmatch(dataset_id):
        raise DatasetError(
            f"dataset_id must look like pendulum/expert-v0: letters, digits, - and _, a version at its end, and before "
            f"the last / at least two characters, as Minari has it; got {dataset_id!r}"
        )


def _read_metadata(path: Path) -> tuple[About, dict[str, Any]]:
    """Return the metadata of a data set, and the whole file as plain data."""
    try:
        metadata: dict[str, Any] = json.loads(read_text(path))
        spaces: dict[str, Any] = {key: json.loads(metadata[key]) for key in _SPACES if metadata.get(key) is not None}
        lists: dict[str, Any] = {key: _texts(metadata.get(key) or []) for key in _LISTS}
        texts = {key: metadata[key] for key in _OF_ABOUT - {*_SPACES, *_LISTS} if metadata.get(key) is not None}
        further = {key: value for key, value in metadata.items() if key not in _OF_ABOUT | _COMPUTED}
        counted = all(type(metadata[key]) is int and metadata[key] >= 0 for key in ("total_episodes", "total_steps"))
        if not counted or not all(isinstance(value, str) for value in (*texts.values(), metadata["data_format"])):
            raise TypeError("a number or a text is of another type")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{path} is no metadata of a Minari data set, or damaged: {error!r}") from error
    return About(**spaces, **lists, **texts, further=further), metadata


def _successes(columns: EpisodeColumns) -> dict[str, bool]:
    """Return the success facts of an episode, from those infos of its steps that exist."""
    return {name: bool(columns["infos", name].any()) for name in SUCCESS_FACTS if ("infos", name) in columns}


def _texts(value: str | list[str]) -> tuple[str, ...]:
    """Convert to a tuple: older data sets have a single author instead of a list."""
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _id_for(path: Path) -> str:
    """Make an id for a data set without one: its file name, with a version."""
    name = re.sub(r"[^-_\w]+", "-", path.name).strip("-") or "dataset"
    return name if _ID.fullmatch(name) else f"{name}-v0"


def _one_array(leaves: list[SpaceLeaf], where: object) -> SpaceLeaf:
    """Return the only leaf of an action space.

    Raises:
        DatasetError: the space has several leaves.
    """
    leaf, *others = leaves
    if others or leaf.path:
        raise DatasetError(f"{where}: the action space must be a single array, not a Dict or Tuple of {len(leaves)}")
    return leaf


def _check(array: Array, leaf: SpaceLeaf, rows: int, where: str) -> None:
    if len(array) != rows:
        raise DatasetError(f"{where} are {len(array)}, not {rows}")
    if not leaf.fits(array):
        raise DatasetError(f"{where} have shape {array.shape[1:]}, the space says {leaf.shape}")
