"""The run that a storage outside its run folder belongs to, so that a copy of the run does not train into it.

With the first checkpoint, which is saved before the first step, the run folder gets a file ``run_id``, and the
directory of the storage a file ``run.json`` with this id, the path of the run folder, and its own path. A run folder
that was moved is known by its id, and that its former place does not hold it any more; a copy by the id of the run at
the former place. A storage that was copied is known by its own path, and belongs to the run that is resumed with it.
"""

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.run_files import RunFiles
from storages.files import read_text, refuse_link, write_atomically
from storages.persistent.commits import has_commit, has_commits
from storages.persistent.spaces_file import write_spaces
from storages.sharded.replay_shard import directory_of_shard

NAME = "run.json"
"""Name of the file in the directory of a storage."""
_WHAT = "the run that this storage belongs to"


def claim(config: Mapping[str, Any], folder: Path) -> None:
    """Record the spaces in the directories of a run's storages, and the run in those outside its folder.

    Args:
        config: the composition.
        folder: the run folder.

    Raises:
        OSError: a file cannot be written.
    """
    for directory in _directories(config):
        if "spaces" in config:
            write_spaces(directory, config["spaces"])
    for directory in _outside(config, folder):
        facts = {"what": _WHAT, "run": _made_id(folder), "folder": str(folder.resolve()), "directory": str(directory)}
        if _read(directory) != facts:
            write_atomically(directory / NAME, json.dumps(facts, indent=1).encode())


def owners(config: Mapping[str, Any], folder: Path) -> dict[Path, Path]:
    """Return the run folders of other runs that storages of a new run belong to, by the storages' directories.

    Args:
        config: the composition.
        folder: the folder of the new run.
    """
    found: dict[Path, Path] = {}
    for directory in _outside(config, folder):
        facts = _read(directory) or {}
        owner = Path(str(facts.get("folder")))
        if _belongs_to(directory, owner) and not _are_the_same(owner, folder):
            found[directory] = owner
    return found


def refuse_storages_of_runs(config: Mapping[str, Any], folder: Path) -> None:
    """Refuse to begin a run that would train into the storage of another one.

    Raises:
        FileExistsError: one of its storages belongs to another run, which could not go on then.
    """
    for directory, owner in owners(config, folder).items():
        raise FileExistsError(
            f"the storage in {directory} belongs to the run in {owner}, which could not go on with what another run "
            f"stores there. Give {folder} a directory of its own. To learn from this storage, too, copy it, or make a "
            f"data set of it by data convert. If {owner} is not needed any more, delete {directory / NAME}"
        )


def refuse_to_empty(config: Mapping[str, Any], scheme: Mapping[str, Any], folder: Path) -> None:
    """Refuse a checkpoint from before the first commit if a storage outside the run folder has commits of others.

    Those of the run itself, which was killed before its next checkpoint, are made again.

    Raises:
        CheckpointError: resuming from it would delete them.
    """
    for _, directory, position in storage_paths.kept(config, scheme):
        if position is None or position["commit"] or storage_paths.is_inside(directory, folder):
            continue
        place = Path(directory).resolve()
        if not has_commits(place) or _belongs_to(place, folder):
            continue
        raise CheckpointError(
            f"the checkpoint in {folder} was saved before anything was stored, and {directory} holds a storage, "
            f"which resuming would empty; nothing was changed. Move {directory} away, or make the scheme with "
            f"another directory: Learner.resume(log_dir, scheme=scheme)"
        )


def _belongs_to(directory: Path, folder: Path) -> bool:
    """Whether a storage was claimed by the run in a folder, and is where it was then."""
    facts = _read(directory) or {}
    return facts.get("directory") == str(directory) and facts.get("run") == _id_of(folder) is not None


def refuse_another_run(config: Mapping[str, Any], scheme: Mapping[str, Any], folder: Path) -> None:
    """Refuse to resume a run whose storage belongs to another one, such as that of which the run folder is a copy.

    Args:
        config: the composition, as :func:`storage_paths.resolved` returns it.
        scheme: the state of the scheme in the checkpoint. A storage that lacks its commit is refused when it is
            restored.
        folder: the run folder.

    Raises:
        CheckpointError: one of its storages does.
    """
    commits = {Path(place).resolve(): position for _, place, position in storage_paths.kept(config, scheme)}
    for directory in _outside(config, folder):
        facts = _read(directory) if has_commits(directory) else None
        if facts is None or facts.get("directory") != str(directory):
            continue
        if not has_commit(directory, commits.get(directory) or {}):
            continue
        owner, known = Path(str(facts.get("folder"))), facts.get("run")
        is_copy = known == _id_of(owner) and not _are_the_same(owner, folder)
        if is_copy or known != _id_of(folder):
            what = "a copy of" if known == _id_of(folder) else "another run than"
            raise CheckpointError(
                f"the storage in {directory} belongs to the run in {owner}, and {folder} is {what} that one; resuming "
                f"it would drop what that run has stored. Nothing was changed. Copy {directory}, too, and give the "
                f"copy as the storage's directory= in a script: Learner.resume(log_dir, scheme=scheme). If {owner} is "
                f"not needed any more, delete {directory / NAME}"
            )


def _outside(config: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Iterate over the directories of storages outside a run folder."""
    return (place for place in _directories(config) if not storage_paths.is_inside(str(place), folder))


def _directories(config: Mapping[str, Any]) -> Iterator[Path]:
    """Iterate over the resolved directories of storages that are written to."""
    storages = storage_paths.storages_of(config)
    for name, directory in storage_paths.directories_of(config).items():
        if storages[name]["hyper_parameters"].get("read_only"):
            continue
        of_shards = (Path(directory_of_shard(directory, number)) for number in itertools.count())
        for place in list(itertools.takewhile(Path.is_dir, of_shards)) or [Path(directory)]:
            if place.is_dir():
                yield place.resolve()


def _read(directory: Path) -> dict[str, Any] | None:
    """Return what is recorded in a storage's directory; None if nothing is.

    Raises:
        CheckpointError: the file is damaged.
    """
    file = directory / NAME
    refuse_link(file)
    if not file.exists():
        return None
    try:
        facts = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file}, which names the run that the storage belongs to, is damaged: {error}. Delete it if no other run "
            f"uses the storage"
        ) from error
    return facts if isinstance(facts, dict) else {}


def _id_of(folder: Path) -> str | None:
    """Return the id of the run in a folder; None if there is none."""
    file = RunFiles(folder).id_file
    try:
        refuse_link(file)
        return read_text(file).strip() if file.is_file() else None
    except (OSError, ValueError):
        return None


def _made_id(folder: Path) -> str:
    known = _id_of(folder)
    if not known:
        known = uuid.uuid4().hex
        write_atomically(RunFiles(folder).id_file, f"{known}\n".encode())
    return known


def _are_the_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
