"""Policies without their runs: files to publish, and policies named in the zoo or on the Hugging Face hub."""

import importlib
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from pytorchrl.experiments.runs import checkpoint, storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import as_checkpoint_error
from pytorchrl.experiments.runs.run_folder import RunFolder, file_of
from pytorchrl.version import install_command

ZOO = Path(str(resources.files("pytorchrl") / "zoo"))
"""Folder of the trained policies that come with the toolkit."""
POLICY_FILE = "policy.pt"
"""Name of a policy's file in a repository of the hub."""
_OF_ZOO, _OF_HUB = "zoo:", "hf:"
# Path("hf://user/name") has a single slash.
_ON_HUB = re.compile(r"hf:/{1,2}([\w.-]+/[\w.-]+)")
_KEPT = (
    *("algorithm", "actor", "storage", "sources", "train_envs", "test_envs", "max_test_episode_steps", "seed"),
    *("spaces", "own_classes", "imports"),
)
"""Keys of a run's configuration that say how its policy was trained, and where it acts."""


def find_policy(name: str | os.PathLike[str]) -> Path:
    """Return the run folder or the file of a policy, which is downloaded where it is one of the hub's.

    Args:
        name: a run folder, a file that a run has saved, a folder with ``policy.pt`` as `push` publishes it,
            "zoo:sac-pendulum" for a policy that comes with the toolkit, or "hf://user/name" for a repository of the
            Hugging Face hub.

    Raises:
        CheckpointError: the zoo has no such policy, or the repository has none.
        ImportError: the hub's package is not installed.
        OSError: the repository does not exist, or cannot be reached.
        ValueError: the name of the repository is not valid.
    """
    text = os.fspath(name)
    if text.startswith(_OF_ZOO):
        return _in_zoo(text.removeprefix(_OF_ZOO))
    if text.startswith(_OF_HUB):
        return _from_hub(repository_named(text))
    path = Path(name)
    published = path / POLICY_FILE
    is_published = published.is_file() and not RunFolder(path).config_file.exists()
    return _within(published, path) if is_published else path


def names_in_zoo() -> list[str]:
    """Return the names of the policies that come with the toolkit, sorted."""
    return sorted(file.stem for file in ZOO.glob("*.pt"))


def repository_named(name: str) -> str:
    """Return the repository "user/name" that "hf://user/name" names; the prefix may be left out.

    Raises:
        ValueError: it is not of that form.
    """
    found = _ON_HUB.fullmatch(name if name.startswith(_OF_HUB) else f"{_OF_HUB}//{name}")
    if found is None or any(part in (".", "..") for part in found[1].split("/")):
        raise ValueError(f"a repository of the Hugging Face hub is named as hf://user/name, got {name!r}")
    return found[1]


def _in_zoo(name: str) -> Path:
    # Only names in the folder, so that no name leads out of it.
    if name not in names_in_zoo():
        raise CheckpointError(f"the zoo has no policy {name!r}; choose from {', '.join(names_in_zoo())}")
    return ZOO / f"{name}.pt"


def _from_hub(repository: str) -> Path:
    """Return the policy file of a repository, in the local cache.

    One file is asked for, and nothing of the repository is run: :func:`load_policy` reads tensors and plain data alone.
    """
    file = Path(hub().hf_hub_download(repository, POLICY_FILE))
    # The cache holds links to files beside the snapshots, in the repository's own folder.
    return _within(file, file.parents[2] if file.parents[1].name == "snapshots" else file.parent)


def _within(file: Path, folder: Path) -> Path:
    """Return the file, which must not be a link out of a folder."""
    if not file.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"{file} is a link to {file.resolve()}, outside of its repository's folder; delete it")
    return file


def hub() -> ModuleType:
    """Import the package of the Hugging Face hub.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise ImportError(
            f'policies of the Hugging Face hub need the package huggingface-hub; the extra "hub" brings it: '
            f"{install_command('hub')}"
        ) from error


def policy_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the policy of a run or of a file, as tensors and plain data for :func:`checkpoint.save`.

    It has the weights of all networks, and the composition without the paths of storages; no state of optimisers, no
    transitions and no random generators.

    Args:
        path: as of :func:`find_policy`.

    Raises:
        CheckpointError: there are no weights, or they are damaged.
    """
    found = find_policy(path)
    file, of_run = file_of(found), dict[str, Any]()
    if found.is_dir():
        of_run = RunFolder(found).read_config()
    state = checkpoint.load(file, checkpoint.READING)
    with as_checkpoint_error(file):
        config = storage_paths.without_paths({"sources": {}} | of_run | state["config"])
        if "spaces" not in config:
            raise CheckpointError(f"{file} does not contain the spaces of its policy; save the run again")
        of_policy = {"config": {name: config[name] for name in _KEPT if name in config}}
        if "weights" in state:
            return of_policy | {"steps": state["steps"], "weights": state["weights"]}
        scheme: Mapping[str, Any] = state["scheme"]
        return of_policy | {"steps": scheme["collector"]["steps"], "weights": scheme["algorithm"]["actor"]}
