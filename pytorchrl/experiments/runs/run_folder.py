"""The run folder: its configuration, provenance and the room for a new run."""

import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.changed_settings import check_changes
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.provenance import code_of_the_directory, provenance
from pytorchrl.run_files import RunFiles
from storages.datasets.formats import is_dataset
from storages.files import read_text, refuse_link, write_atomically
from storages.persistent.log.lock import NAME as LOCK_NAME

_MOST_KEPT = 100_000
"""Largest ``keep_checkpoints`` that is accepted from a file."""

_OPENED_BY = {
    ".onnx": "onnxruntime.InferenceSession({0.name!r})",
    ".pt2": "torch.export.load({0.name!r}).module()",
    ".ts": "torch.jit.load({0.name!r})",
}
"""What reads an exported policy, by the suffix of its file."""


def file_of(run: str | os.PathLike[str]) -> Path:
    """Return the newest checkpoint of a run folder, which need not exist, or the file that is named.

    Raises:
        CheckpointError: there is no such file or folder, or it is of another kind.
    """
    path, folder = Path(run), RunFolder(run)
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist; name a run folder, or a file that a run has saved, such as "
            f"{folder.checkpoint_file.name} or {folder.best_weights_file.name}"
        )
    if path.is_dir():
        if not folder.checkpoint_file.exists() and not folder.config_file.exists():
            otherwise = f"; name one, or a file that a run has saved, such as {folder.checkpoint_file.name}"
            raise CheckpointError(
                f"{path} is no run folder: it has no {folder.config_file.name}{hint_of(path) or otherwise}"
            )
        return folder.checkpoint_file
    if hint := hint_of(path):
        raise CheckpointError(f"{path} is no run folder, and no file that a run has saved{hint}")
    return path


def hint_of(path: Path) -> str:
    """Return what to do with what is no run: a data set, a composition, an exported policy, a folder of runs.

    "" if it is none of them.
    """
    if is_dataset(path):
        return f"; a data set is described by: python -m pytorchrl data show {path}"
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return f"; a composition is trained by: python -m pytorchrl train --config {path}"
    if path.is_file() and path.suffix in _OPENED_BY:
        return (
            f"; it is an exported policy, opened without this toolkit: {_OPENED_BY[path.suffix].format(path)}. "
            f"The run that it was exported from, or its weights, are loaded here"
        )
    if path.is_dir():
        runs = sorted(file.parent for file in path.glob(f"*/{RunFiles(path).config_file.name}"))
        if runs:
            return f"; it holds {len(runs)} run{'s' * (len(runs) > 1)}: name one, such as {runs[0]}"
    return ""


class RunFolder(RunFiles):
    """A run folder, whose files are checked when they are read, and replaced atomically."""

    def make_room(self, overwrite: bool, directories: Iterable[Path]) -> Path | None:
        """Move away a previous run that cannot be resumed, or is to be overwritten.

        Args:
            overwrite: also move away a run that could be resumed.
            directories: of the new run's storages, which are already open.

        Returns:
            The folder beside this one to which the old run was moved; None where there was nothing to move.

        Raises:
            FileExistsError: the folder holds a run that can be resumed, or a storage that the new run has opened.
        """
        if not self.config_file.exists():
            return None
        has_checkpoint = self.has_checkpoint()
        if has_checkpoint and not overwrite:
            raise FileExistsError(
                f"{self.path} holds a run already; continue it with Learner.resume({str(self.path)!r}), choose another "
                f"log_dir, or move it away by overwrite=True"
            )
        if not has_checkpoint and not any(file.exists() for file in (self.metrics_file, self.best_weights_file)):
            return None
        inside = next((one for one in directories if one.resolve().is_relative_to(self.path.resolve())), None)
        if inside is not None:
            raise FileExistsError(
                f"{self.path} holds a run already, whose storage in {inside} the new one has opened; move the folder "
                f"away, or choose another log_dir"
            )
        backup = next(path for number in count(1) if not (path := self._backup(number)).exists())
        backup.mkdir()
        for entry in list(self.path.iterdir()):
            if entry.name != LOCK_NAME:
                entry.rename(backup / entry.name)
        return backup

    def _backup(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.resolve().name}.backup-{number}")

    def make(self) -> None:
        """Make the folder, if it does not exist.

        Raises:
            OSError: it cannot be made; the text names it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(f"the run folder {self.path} cannot be made: {error.strerror}") from error

    def create(self, config: Mapping[str, Any]) -> bool:
        """Write the configuration and the provenance of a new run.

        Returns:
            Whether the configuration of a run without checkpoints and metrics was replaced.
        """
        replaces = self.config_file.exists()
        self.make()
        code = code_of_the_directory()
        # The same run with its storage elsewhere is the same experiment.
        _write_json(self.versions_file, provenance(storage_paths.without_directories(config), code))
        if code.diff is None:
            self.diff_file.unlink(missing_ok=True)
        else:
            write_atomically(self.diff_file, code.diff.encode(errors="replace"))
        # Last, because this file marks the folder as a run folder.
        self.write_config(config)
        return replaces

    def write_error(self, error: Exception) -> None:
        """Save the traceback of an exception that ends the run, until it is resumed."""
        text = "".join(traceback.format_exception(error))
        write_atomically(self.error_file, text.encode(errors="replace"))

    def forget_error(self) -> None:
        """Remove the traceback saved by :meth:`write_error`."""
        self.error_file.unlink(missing_ok=True)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Save the configuration of the run."""
        _write_json(self.config_file, storage_paths.relativized(config, self.path))

    def read_config(self) -> dict[str, Any]:
        """Return the run's configuration.

        Raises:
            CheckpointError: the folder is not a run folder, or the file is damaged.
            PersistenceError: a file of the run is a symbolic link.
        """
        if not self.config_file.is_file():
            hint = hint_of(self.path)
            what = f"is not a run folder: it has no {self.config_file.name}" if self.path.exists() else "does not exist"
            raise CheckpointError(f"{self.path} {what}{hint}")
        for file in (self.config_file, self.metrics_file, self.checkpoint_file, self.best_weights_file):
            refuse_link(file)
        try:
            config = json.loads(read_text(self.config_file))
            _check(config)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.config_file} is damaged: {error}") from error
        return storage_paths.resolved(config, self.path)

    def read_provenance(self) -> dict[str, Any]:
        """Return the provenance of the run; see :func:`provenance`.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        try:
            refuse_link(self.versions_file)
            facts = json.loads(read_text(self.versions_file))
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.versions_file} cannot be read: {error}") from error
        if not isinstance(facts, dict):
            raise CheckpointError(f"{self.versions_file} is damaged: it is not a mapping of names to values")
        return facts

    def add_provenance(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the provenance, such as the preset that a command took the settings from."""
        _write_json(self.versions_file, {**self.read_provenance(), **facts})

    def read_diff(self) -> str | None:
        """Return the uncommitted changes of the code at the start of the run; None if there is no such file.

        Raises:
            CheckpointError: the file is not text.
        """
        if not self.diff_file.exists():
            return None
        try:
            refuse_link(self.diff_file)
            return read_text(self.diff_file)
        except ValueError as error:
            raise CheckpointError(f"{self.diff_file} cannot be read: {error}") from error


def _check(config: Any) -> None:
    """Check that a configuration could have been written by :meth:`RunFolder.create`.

    Raises:
        ValueError: it could not.
    """
    if not isinstance(config, dict):
        raise ValueError("it holds no composition")
    for name in ("algorithm", "actor", "storage", "train_envs", "test_envs"):
        part = config.get(name)
        if part is not None or name not in ("train_envs", "test_envs"):
            _check_part(name, part)
    sources = config.get("sources", {})
    if not isinstance(sources, dict):
        raise ValueError("its sources are not a mapping of names to storages")
    for name, source in sources.items():
        _check_part(f"source {name!r}", source)
    for paths in (storage_paths.directories_of(config), storage_paths.ancestors_of(config)):
        for directory in paths.values():
            if not (isinstance(directory, str) or storage_paths.is_relative(directory)):
                raise ValueError(f"the directory of a storage must be a path, got {directory!r}")
    for name, most in (("target_steps", sys.maxsize), ("log_every", sys.maxsize), ("keep_checkpoints", _MOST_KEPT)):
        number = config.get(name, 1 if name == "keep_checkpoints" else None)
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            raise ValueError(f"{name} must be an int in [1, {most}], got {number!r}")
    callbacks = config.get("callbacks", [])
    if not isinstance(callbacks, list):
        raise ValueError(f"callbacks must be a list, got {callbacks!r}")
    for number, callback in enumerate(callbacks):
        _check_part(f"callback {number}", callback)
    imports = config.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(name, str) and name.isprintable() for name in imports):
        raise ValueError(f"imports must be a list of modules' names, got {imports!r}")
    check_changes(config)
    log_to = config.get("log_to")
    if not isinstance(log_to, list) or not all(isinstance(place, str | dict) for place in log_to):
        raise ValueError(f"log_to must be a list of names, got {log_to!r}")
    for number, logger in enumerate(log_to):
        if isinstance(logger, dict) and not isinstance(logger.get("callable"), str):
            _check_part(f"logger {number}", logger)


def _check_part(name: str, part: Any) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("hyper_parameters"), dict):
        raise ValueError(f"its {name} is not a class name with hyper-parameters")


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
