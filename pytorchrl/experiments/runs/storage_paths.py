"""Directories of a run's storages and of their ancestors, saved so that the run folder can be moved together with them.

A directory inside the run folder is saved as a relative path, ``{"in_run_folder": "replay"}``, in ``config.json`` and
in checkpoints; any other is saved as it was given. As a run folder may be from an untrusted source, a directory outside
it is accepted only if it contains the commit that the checkpoint refers to; an ancestor outside, only if the storage
exists, which records what it has from its ancestors by checksums.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.run_files import RunFiles
from storages.persistent.commits import has_commit, has_commits
from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.sharded.replay_shard import directory_of_shard

_INSIDE = "in_run_folder"
_ANCESTOR = "ancestor"


def relativized(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a composition as it is saved in ``folder``, with relative directories inside it."""

    def kept(directory: Any) -> Any:
        if not isinstance(directory, str):
            return directory
        way = Path(os.path.relpath(directory, folder))
        return directory if way.parts[:1] == ("..",) else {_INSIDE: way.as_posix()}

    return _with_directories(config, kept, kept)


def resolved(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a composition saved in ``folder``, with its directories resolved to the folder's current path."""

    def found(directory: Any) -> Any:
        return str(folder / directory[_INSIDE]) if isinstance(directory, Mapping) else directory

    return _with_directories(config, found, found)


def in_another_run(config: Mapping[str, Any], folder: Path, other: Path) -> dict[str, Any]:
    """Return the composition of a run with directories of their own for another run's storages.

    Those inside the run folder keep their place in the other's; any other gets one of its name there, if need be with a
    number. Ancestors, which are only read, keep their place.

    Args:
        config: the composition, as :func:`resolved` returns it.
        folder: the run folder.
        other: the run folder of the other run.
    """
    ways = {directory: Path(os.path.relpath(directory, folder)) for directory in directories_of(config).values()}
    places = {directory: other / way for directory, way in ways.items() if way.parts[:1] != ("..",)}
    for directory in [each for each in ways if each not in places]:
        first = other / (Path(directory).resolve().name or "storage")
        numbered = (first.with_name(f"{first.name}-{number}") for number in count(2))
        places[directory] = next(path for path in chain([first], numbered) if path not in places.values())
    return _with_directories(config, lambda directory: str(places[directory]))


def without_directories(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a composition without the directories of its storages."""
    return _with_directories(config, lambda directory: None, lambda ancestor: "anywhere")


def without_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a composition without the paths of its storages and data sets."""

    def placeless(storage: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**storage, "dataset": "anywhere"} if "dataset" in storage else storage

    config = without_directories(config)
    sources = {name: placeless(source) for name, source in config["sources"].items()}
    return {**config, "storage": placeless(config["storage"]), "sources": sources}


def is_relative(directory: Any) -> bool:
    """Whether it is a relative directory as :func:`relativized` returns it."""
    return isinstance(directory, Mapping) and set(directory) == {_INSIDE} and isinstance(directory[_INSIDE], str)


def storages_of(composed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a composition's storages, or the storages' states in a scheme's state, by the names of sources."""
    return {"main": composed["storage"], **composed.get("sources", {})}


def directories_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the directories of a composition's storages on disk, by the names of sources."""
    directories = {name: s["hyper_parameters"].get("directory") for name, s in storages_of(config).items()}
    return {name: directory for name, directory in directories.items() if directory is not None}


def ancestors_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the directories that a composition's storages on disk continue, by the names of sources."""
    ancestors = {name: s["hyper_parameters"].get(_ANCESTOR) for name, s in storages_of(config).items()}
    return {name: ancestor for name, ancestor in ancestors.items() if ancestor is not None}


def data_sets_of(config: Mapping[str, Any]) -> list[str]:
    """Return the paths of the data sets that fill a composition's storages, each once."""
    return list(dict.fromkeys(s["dataset"] for s in storages_of(config).values() if "dataset" in s))


def refuse_storages_of_others(config: Mapping[str, Any], scheme: Mapping[str, Any], folder: Path) -> None:
    """Refuse a storage outside the run folder that lacks the commit that the checkpoint refers to.

    Args:
        config: the composition, as :func:`resolved` returns it.
        scheme: the state of the scheme in the checkpoint.
        folder: the run folder.

    Raises:
        CheckpointError: a storage lacks the commit.
    """
    for name, directory, position in kept(config, scheme):
        if is_inside(directory, folder) or has_commit(directory, position or {}):
            continue
        raise CheckpointError(
            f"{RunFiles(folder).config_file} places the {_named(name)} in {directory}, outside the run folder, which "
            f"lacks the commit that the checkpoint refers to and may belong to another run; nothing was changed. "
            f"If it is this run's, make the scheme in a script and pass it: Learner.resume(log_dir, "
            f"scheme=scheme)"
        )


def refuse_ancestors_of_others(config: Mapping[str, Any], folder: Path, *, in_new_directories: bool = False) -> None:
    """Refuse an ancestor outside the run folder that a file names, if a new storage would be made from its content.

    Args:
        config: the composition, as :func:`resolved` returns it.
        folder: the run folder.
        in_new_directories: whether storages are made in new directories.

    Raises:
        CheckpointError: one would.
    """
    directories = directories_of(config)
    for name, ancestor in ancestors_of(config).items():
        exists = (
            name in directories
            and (Path(directories[name]) / EpisodeManifest.name).is_file()
            and not in_new_directories
        )
        if exists or is_inside(ancestor, folder):
            continue
        raise CheckpointError(
            f"{RunFiles(folder).config_file} names {ancestor}, outside the run folder, as the ancestor of the "
            f"{_named(name)}, whose episodes it would read; nothing was read. If it is meant, make the scheme in a "
            f"script, with ancestor={ancestor!r}, and pass it to Learner or Learner.resume"
        )


def refuse_storages_that_are_gone(config: Mapping[str, Any], scheme: Mapping[str, Any], file: Path) -> None:
    """Refuse to continue without a storage that the checkpoint refers to, as after a scratch disk was purged.

    Raises:
        CheckpointError: the directory of a storage holds none.
    """
    for name, directory, position in kept(config, scheme):
        if position is not None and position["commit"] and not has_commits(directory):
            raise CheckpointError(
                f"{file} refers to files of its {_named(name)} in {directory}, which does not exist or is empty. "
                f"Restore it; or, if it was moved, make the scheme with its present directory: "
                f"Learner.resume(log_dir, scheme=scheme), or train with --storage.directory. If it is lost, another "
                f"run can begin with the weights of this one: train --from {shlex.quote(str(file.parent))} with "
                f"another --log-dir, or prl.start_from"
            )


def kept(config: Mapping[str, Any], scheme: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Iterate over sources, directories of their storages or shards, and the commits that a checkpoint refers to."""
    states = storages_of(scheme)
    for name, directory in directories_of(config).items():
        state = states[name]
        if "shards" not in state:
            yield name, directory, state.get("position")
            continue
        for number, of_shard in enumerate(state["shards"]):
            yield name, str(directory_of_shard(directory, number)), of_shard.get("position")


def _named(source: str) -> str:
    return "storage" if source == "main" else f"source {source!r}"


def is_inside(directory: str, folder: Path) -> bool:
    """Whether a directory is inside a folder, after resolving symbolic links."""
    return Path(directory).resolve().is_relative_to(folder.resolve())


def _with_directories(
    config: Mapping[str, Any], change: Callable[[Any], Any], change_ancestor: Callable[[Any], Any] = lambda same: same
) -> dict[str, Any]:
    def changed(storage: Mapping[str, Any]) -> Mapping[str, Any]:
        hyper_parameters = storage["hyper_parameters"]
        paths = {
            name: changes(hyper_parameters[name])
            for name, changes in (("directory", change), (_ANCESTOR, change_ancestor))
            if hyper_parameters.get(name) is not None
        }
        return {**storage, "hyper_parameters": {**hyper_parameters, **paths}} if paths else storage

    sources = {name: changed(source) for name, source in config.get("sources", {}).items()}
    return {**config, "storage": changed(config["storage"]), "sources": sources}
