"""The ``metadata.json`` of a Minari data set, and its names."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from storages.datasets.dataset import About, Space
from storages.errors import DatasetError
from storages.persistent.log.files import read_text

NAME = "metadata.json"
_VERSION = "0.5.4"
"""Of Minari, whose layout is written; the first that knows pictures which are not JPEG."""
_ID = re.compile(r"^([-_\w][-_\w/]*[-_\w]+/)?[-_\w]+-v\d+$")
_SPACES = ("observation_space", "action_space")
_COMPUTED = {"total_episodes", "total_steps", "data_format", "jpeg_encoding", "minari_version", "dataset_size"}
_OF_ABOUT = {field.name for field in fields(About)} - {"further"}
_LISTS = ("author", "author_email", "combined_datasets")


def folder_of(path: Path) -> Path | None:
    """Where the metadata of a data set is: in its ``data``, or, of that folder itself, in it; None where none is."""
    for folder in (path / "data", path):
        if (folder / NAME).is_file():
            return folder
    return None


def read(folder: Path) -> tuple[About, dict[str, Any]]:
    """What a data set says of itself, and all of it as it stands.

    Raises:
        DatasetError: the file is damaged, or of something else.
    """
    path = folder / NAME
    try:
        said: dict[str, Any] = json.loads(read_text(path))
        spaces: dict[str, Any] = {key: json.loads(said[key]) for key in _SPACES if said.get(key) is not None}
        lists: dict[str, Any] = {key: _texts(said.get(key) or []) for key in _LISTS}
        texts = {key: said[key] for key in _OF_ABOUT - {*_SPACES, *_LISTS} if said.get(key) is not None}
        further = {key: value for key, value in said.items() if key not in _OF_ABOUT | _COMPUTED}
        counted = all(type(said[key]) is int and said[key] >= 0 for key in ("total_episodes", "total_steps"))
        if not counted or not all(isinstance(value, str) for value in (*texts.values(), said["data_format"])):
            raise TypeError("numbers and names are mixed up")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{path} is no metadata of a Minari data set, or damaged: {error!r}") from error
    return About(**spaces, **lists, **texts, further=further), said


def _texts(said: str | list[str]) -> tuple[str, ...]:
    """Older data sets have one author, and not a list of them."""
    return (said,) if isinstance(said, str) else tuple(map(str, said))


def write(
    folder: Path, about: About, layout: str, observation_space: Space, action_space: Space, episodes: int, steps: int
) -> None:
    """Put what a data set says of itself beside its episodes, which are there already."""
    bytes_there = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    said: dict[str, Any] = {
        **about.further,
        "total_episodes": episodes,
        "total_steps": steps,
        "data_format": layout,
        "jpeg_encoding": False,
        "observation_space": json.dumps(observation_space),
        "action_space": json.dumps(action_space),
        "minari_version": _VERSION,
        "dataset_size": round(bytes_there / 1e6, 1),
    }
    for key in sorted(_OF_ABOUT - set(_SPACES)):
        value = getattr(about, key)
        if value is not None and value != ():
            said[key] = list(value) if isinstance(value, tuple) else value
    (folder / NAME).write_text(json.dumps(said), encoding="utf-8")


def id_for(path: Path) -> str:
    """The id that a data set at ``path`` is given, unless it is told one: its name, with a version."""
    name = re.sub(r"[^-_\w]+", "-", path.name).strip("-") or "dataset"
    return name if _ID.match(name) else f"{name}-v0"


def refuse_malformed(dataset_id: str) -> None:
    """Refuse what Minari does not take for an id.

    Raises:
        DatasetError: it is none.
    """
    if not _ID.match(dataset_id):
        raise DatasetError(
            f"dataset_id must look like pendulum/expert-v0, with a version at its end, got {dataset_id!r}"
        )
