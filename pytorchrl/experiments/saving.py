"""Saving a run in its folder: checkpoints, and what is left of it after an exception."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import is_due
from pytorchrl.experiments.restored_runs import positive
from pytorchrl.experiments.runs import checkpoint, storage_owner, storage_paths
from pytorchrl.experiments.runs.continuation import modules_that_can_be_imported
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.run_lock import RunInUseError, RunLock
from pytorchrl.scheme.scheme import Scheme
from storages.core.ring.state import sharing_memory
from storages.open_files import SpareFiles, is_of_open_files, limit_of_open_files, open_files_named

_SECONDS_BETWEEN_CHECKPOINTS = 600.0
"""Used where no interval in steps is given."""
_SPARE_FILES = 8
"""Number of files that are kept for saving a run in which no others can be opened."""


class RunSaver:
    """Writes the checkpoints of a run, and says when the next one is due.

    Args:
        folder: of the run.
        lock: of the folder.
        scheme: whose state is saved.
        config: of the run.
        resumed_at: steps of the checkpoint that the run was resumed from; None in a new run.
    """

    def __init__(
        self, folder: RunFolder, lock: RunLock, scheme: Scheme, config: Mapping[str, Any], resumed_at: int | None
    ) -> None:
        self._folder, self._lock, self._scheme = folder, lock, scheme
        self._keep: int = config["keep_checkpoints"]
        self._every: int | None = config.get("checkpoint_every")
        self._saved_at = resumed_at
        """Steps at the newest checkpoint; None before the first."""
        self._saved_time = time.monotonic()
        """Monotonic time, in seconds, of the newest checkpoint, or of the start of the run."""
        self._weights_of: tuple[int, int] | None = None
        """Number of updates at which earlier weights were loaded, and their steps; None where none were."""
        with open_files_named("Learner", "close some"):
            self._spare_files = SpareFiles(_SPARE_FILES)
        for storage in scheme.storages.values():
            # A checkpoint is replaced only when the next is complete.
            storage.states_kept = self._keep + 1

    def set_interval(self, steps: int | None) -> None:
        """Set the steps between checkpoints, and note them in the configuration; None keeps the present ones.

        Raises:
            ValueError: they are not positive.
        """
        if steps is not None and steps != self._every:
            self._every = positive("checkpoint_every", steps)
            self._folder.write_config(self._folder.read_config() | {"checkpoint_every": steps})

    def start_clock(self) -> None:
        """Measure the time to the next checkpoint from now on."""
        self._saved_time = time.monotonic()

    def is_due(self, before: int) -> bool:
        """Whether a checkpoint is due after a step that began at ``before``."""
        if self._every is None:
            return time.monotonic() - self._saved_time > _SECONDS_BETWEEN_CHECKPOINTS
        return is_due(self._every, before, self._scheme.steps)

    def save(self, learner_state: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically."""
        config = self._scheme.config
        state = {
            "config": storage_paths.relativized(config, self._folder.path) | self._imports,
            "scheme": self._scheme.state_dict(),
            "learner": learner_state,
        }
        storage_owner.claim(config, self._folder.path)
        earlier = self._folder.earlier_checkpoint_files(self._keep)
        checkpoint.save(self._folder.checkpoint_file, state, earlier)
        self._saved_at, self._saved_time = self._scheme.steps, time.monotonic()

    @property
    def _imports(self) -> dict[str, Any]:
        """The modules of the user's parts, in whose own files their names are looked up."""
        return {"imports": modules_that_can_be_imported(self._scheme.factories)}

    def note_weights_of(self, steps: int) -> None:
        """Note that the weights are those of an earlier step, until the next update."""
        self._weights_of = self._scheme.algorithm.updates, steps

    def save_policy(self, path: Path, numbers: Mapping[str, float]) -> None:
        """Save the policy alone, with further numbers."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scheme = self._scheme
        weights = scheme.algorithm.get_weights()
        config = scheme.config | self._imports
        steps = scheme.steps
        if self._weights_of is not None and self._weights_of[0] == scheme.algorithm.updates:
            steps = self._weights_of[1]
        checkpoint.save(path, {"config": config, "steps": steps, **numbers, "weights": weights})

    def save_after(
        self,
        error: Exception,
        save: Callable[[], object] | None,
        target_steps: int,
        how_to_save: str,
        how_to_continue: Callable[[], str],
    ) -> None:
        """Save a checkpoint after an exception, where the state is consistent, and note on it how to resume.

        The traceback is written to the run folder, for a report.

        Args:
            error: the exception.
            save: saves the checkpoint; None where updates were interrupted.
            target_steps: of the run.
            how_to_save: the option that saves checkpoints during a run.
            how_to_continue: returns how to resume, after the word "continue".
        """
        with self._spare_files.released():
            if save is None:
                error.add_note("The exception interrupted an update; the run was not saved in this incomplete state.")
            else:
                try:
                    # There may be no memory for a copy of the storage.
                    with sharing_memory():
                        save()
                except Exception as obstacle:
                    # Any exception: it must not replace the error that ended the run.
                    error.add_note(f"The run could not be saved: {obstacle}")
            if isinstance(error, OSError) and is_of_open_files(error):
                error.add_note(f"Too many files are open, {limit_of_open_files(error)}.")
            is_written = self._write_traceback(error)
            error.add_note(self._how_it_is_saved(is_written, target_steps, how_to_save, how_to_continue))
            if is_written:
                # Again, with the notes.
                self._write_traceback(error)

    def _how_it_is_saved(
        self, is_written: bool, target_steps: int, how_to_save: str, how_to_continue: Callable[[], str]
    ) -> str:
        folder = self._folder
        if self._saved_at is None:
            traceback = f" The traceback is in {folder.error_file}." if is_written else ""
            return (
                f"{folder.path} has no checkpoint to resume from; {how_to_save} saves some during the run.{traceback}"
            )
        with_it = f", with the traceback in {folder.error_file.name}," if is_written else ""
        return (
            f"The run is saved in {folder.path}{with_it} as of {self._saved_at:,} of {target_steps:,} "
            f"{self._scheme.unit}; continue {how_to_continue()}"
        )

    def _write_traceback(self, error: Exception) -> bool:
        """Write the traceback to the run folder; return whether it could be."""
        try:
            self._lock.check()
            self._folder.write_error(error)
        except (OSError, RunInUseError):
            return False
        return True

    def close(self) -> None:
        """Close the files that are kept for saving."""
        self._spare_files.close()
