"""Where a run's storage is kept on disk, said so that the run folder may be moved together with it.

A directory that lies inside the run folder is kept by its way from there, ``{"in_run_folder": "replay"}``, in
``config.json`` and in checkpoints; any other is kept as it was given.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def directory_of(config: Mapping[str, Any]) -> Any:
    """Where the storage of a composition is kept; None where that is in memory alone."""
    return config["storage"]["hyper_parameters"].get("directory")


def _with_directory(config: Mapping[str, Any], directory: Any) -> dict[str, Any]:
    storage = config["storage"]
    hyper_parameters = storage["hyper_parameters"] | {"directory": directory}
    return {**config, "storage": {**storage, "hyper_parameters": hyper_parameters}}
