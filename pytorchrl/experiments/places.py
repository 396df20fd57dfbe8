"""Where a run's storage is kept on disk, said so that the run folder may be moved together with it.

A directory that lies inside the run folder is kept by its way from there, ``{"in_run_folder": "replay"}``, in
``config.json`` and in checkpoints; any other is kept as it was given. A run folder may come from somebody else, so a
directory outside it is believed to be the run's only where it has the commit that the checkpoint refers to.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorchrl.experiments.checkpoint import CheckpointError
from storages.persistent.commits import has_commit, has_commits

_INSIDE = "in_run_folder"


def to_keep(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A composition as it is kept in ``folder``."""
    directory = directory_of(config)
    if not isinstance(directory, str):
        return dict(config)
    way = Path(os.path.relpath(directory, folder))
    return dict(config) if way.parts[:1] == ("..",) else _with_directory(config, {_INSIDE: way.as_posix()})


def as_found(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A composition that was kept in ``folder``, wherever that is now."""
    directory = directory_of(config)
    if not isinstance(directory, Mapping):
        return dict(config)
    return _with_directory(config, str(folder / directory[_INSIDE]))


def is_way_inside(directory: Any) -> bool:
    """Whether it is how :func:`to_keep` says that a directory lies inside the run folder."""
    return isinstance(directory, Mapping) and set(directory) == {_INSIDE} and isinstance(directory[_INSIDE], str)


def directory_of(config: Mapping[str, Any]) -> Any:
    """Where the storage of a composition is kept; None where that is in memory alone."""
    return config["storage"]["hyper_parameters"].get("directory")


def refuse_storage_of_others(config: Mapping[str, Any], storage: Mapping[str, Any], folder: Path) -> None:
    """Refuse a composition whose storage lies outside the run folder, unless it has what the checkpoint refers to.

    Args:
        config: the composition, as found.
        storage: the storage's state in the checkpoint.
        folder: the run folder.

    Raises:
        CheckpointError: it does not have it.
    """
    directory = directory_of(config)
    if directory is None or _is_inside(directory, folder) or has_commit(directory, storage.get("position") or {}):
        return
    raise CheckpointError(
        f"{folder / 'config.json'} says that the storage is kept in {directory}, outside the run folder, and that does "
        f"not have the commit that the checkpoint refers to, so it may be another's; nothing was changed. If it is "
        f"this run's, make the scheme in a script and pass it: Learner.resume(log_dir, scheme=scheme)"
    )


def refuse_to_empty(config: Mapping[str, Any], storage: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint from before the first commit for a storage outside the run folder that has commits.

    Raises:
        CheckpointError: going on from it would delete them.
    """
    directory, position = directory_of(config), storage.get("position")
    if directory is None or position is None or _is_inside(directory, folder):
        return
    if not position["commit"] and has_commits(directory):
        raise CheckpointError(
            f"the checkpoint in {folder} was saved before anything was stored, and {directory} holds a storage, which "
            f"resuming would empty; nothing was changed. Move {directory} away, or make the scheme with another "
            f"directory: Learner.resume(log_dir, scheme=scheme)"
        )


def _is_inside(directory: str, folder: Path) -> bool:
    """Whether it is, links on the way included."""
    return Path(directory).resolve().is_relative_to(folder.resolve())


def _with_directory(config: Mapping[str, Any], directory: Any) -> dict[str, Any]:
    storage = config["storage"]
    hyper_parameters = storage["hyper_parameters"] | {"directory": directory}
    return {**config, "storage": {**storage, "hyper_parameters": hyper_parameters}}
