"""Data sets: iterables of episodes on disk, their metadata, and validation of episodes before they are written."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from storages.core.ring.layout import FieldKey, LeafLayout, leaves, text
from storages.datasets.untrusted import damage_named
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, OBS, REW, Array

Space: TypeAlias = Mapping[str, Any]
"""A gymnasium space as plain data, in Minari's format: ``{"type": "Discrete", "n": 2, "start": 0}``."""

ACTION_NAMES = "action_names"
"""Key of the further metadata with the names of discrete actions, in the order of their numbers."""


@dataclass(frozen=True)
class About:
    """Metadata of a data set; plain data.

    Args:
        dataset_id: its name in Minari's format: ``pendulum/expert-v0``.
        observation_space: None if unknown.
        action_space: None if unknown.
        env_spec: JSON of gymnasium's ``EnvSpec`` of the recorded environment. No environment is ever made from it
            here, because that would import the code that it names.
        algorithm_name: the algorithm that collected the episodes.
        author: names of the authors.
        author_email: their addresses.
        description: free text.
        combined_datasets: ids of the data sets that were merged into this one.
        further: other Minari metadata, under Minari's names.
    """

    dataset_id: str | None = None
    observation_space: Space | None = None
    action_space: Space | None = None
    env_spec: str | None = None
    algorithm_name: str | None = None
    author: tuple[str, ...] = ()
    author_email: tuple[str, ...] = ()
    description: str | None = None
    combined_datasets: tuple[str, ...] = ()
    further: Mapping[str, Any] = field(default_factory=dict)


class Dataset(ABC):
    """An iterable of episodes on disk, which are read one by one in every iteration.

    Args:
        path: a file or a folder.
        about: the metadata.
    """

    format: ClassVar[str]
    """Name of the format, as in :func:`storages.datasets.write_dataset`."""

    def __init__(self, path: Path, about: About) -> None:
        self.path = path
        self.about = about

    def __iter__(self) -> Iterator[Episode]:
        """Read the episodes.

        Raises:
            DatasetError: the content does not match the format; the text names the file and the place.
        """
        with damage_named(self.path):
            yield from self._episodes()

    @abstractmethod
    def _episodes(self) -> Iterator[Episode]: ...

    @cached_property
    def _lengths(self) -> list[int]:
        """Lengths of the episodes; not used by classes that override both ``__len__`` and ``steps``."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._lengths)

    @property
    def steps(self) -> int:
        """Number of transitions in all episodes."""
        return sum(self._lengths)

    def place(self, number: int, step: int) -> str:
        """Return the place in the file of a step of an episode, both counted from 0, for errors."""
        return f"step {step} of episode {number}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {len(self)} episodes, {self.steps} steps)"


def action_names_of(about: About) -> list[str]:
    """Return the names of discrete actions in the order of their numbers; none where they have no names."""
    names = about.further.get(ACTION_NAMES)
    return [str(name) for name in names] if isinstance(names, list | tuple) else []


def require_same_fields(episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Iterate over the episodes that are not empty, and require the fields, shapes and dtypes of the first.

    Raises:
        DatasetError: an episode differs, and the text names its fields; or there is no episode.
    """
    first: dict[str, LeafLayout] = {}
    for number, episode in enumerate(one for one in episodes if len(one)):
        layout = layout_of(episode)
        first = first or layout
        if layout != first:
            shown = (
                ", ".join(f"{name} {leaf.dtype}{leaf.shape}" for name, leaf in of.items()) for of in (first, layout)
            )
            raise DatasetError(f"episode {number} differs from the first one: {' beside '.join(shown)}")
        yield episode
    if not first:
        raise DatasetError("there is no episode to write; a data set needs one, for its shapes and dtypes")


def layout_of(episode: Episode) -> dict[str, LeafLayout]:
    """Return shapes and dtypes of one step of an episode, by the names of the fields.

    Raises:
        DatasetError: a field is missing, or has too few or too many rows.
    """
    for key in (ACT, REW):
        if key not in episode.fields:
            raise DatasetError(f"an episode needs {ACT} and {REW}, and has {', '.join(episode.fields)}")
    return {text(path): LeafLayout(tuple(array.shape[1:]), array.dtype) for path, array in arrays_of(episode).items()}


def arrays_of(episode: Episode) -> dict[FieldKey, Array]:
    """Return the arrays of an episode by leaf: observations (L + 1, ...), other fields (L, ...).

    Raises:
        DatasetError: an array has too few or too many rows.
    """
    arrays = {path: np.asarray(leaf) for path, leaf in leaves({OBS: episode.observations, **episode.fields})}
    for path, array in arrays.items():
        rows, expected = len(array), len(episode) + (path[0] == OBS)
        if rows != expected:
            raise DatasetError(f"an episode of {len(episode)} steps has {rows} rows of {text(path)}, not {expected}")
    return arrays
