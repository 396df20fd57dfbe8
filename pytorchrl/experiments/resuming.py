"""Restoring the scheme and the callbacks of a run from its newest undamaged checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import Callbacks
from pytorchrl.experiments.callbacks.from_config import callbacks_from_config
from pytorchrl.experiments.run_settings import parts_of, positive, refuse_other_composition, settings
from pytorchrl.experiments.runs import checkpoint, storage_owner, storage_paths
from pytorchrl.experiments.runs.checkpoint import DamagedCheckpointError
from pytorchrl.experiments.runs.composition import as_checkpoint_error, made_scheme
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.scheme.scheme import Scheme
from storages.datasets import open_dataset


@dataclass(frozen=True)
class ResumedRun:
    """A run restored from a checkpoint."""

    config: dict[str, Any]
    """The configuration of the resumed run."""
    scheme: Scheme
    callbacks: Callbacks
    file: Path
    """The checkpoint."""
    learner_state: Mapping[str, Any]
    """State of the learner itself in the checkpoint."""
    damaged: Sequence[DamagedCheckpointError]
    """Newer checkpoints that are damaged."""
    cut_short: Sequence[int]
    """Environments whose state was not restored, and whose running episodes were lost."""

    def put_away_damaged(self, newest: Path) -> None:
        """Rename damaged checkpoints and print that; print which one was loaded if it is not the newest."""
        for error in self.damaged:
            aside = error.path.with_suffix(".damaged")
            error.path.replace(aside)
            print(f"{error.path} is damaged: {error.reason}. Renamed it to {aside.name}.")
        if self.file != newest:
            print(f"Resumed from {self.file}, saved at {self.scheme.steps:,} {self.scheme.unit}.")


@contextmanager
def resumed_run(
    folder: RunFolder,
    config: Mapping[str, Any],
    scheme: Scheme | None,
    target_steps: int | None,
    log_to: Sequence[str] | None,
    callbacks: Sequence[Any] | None,
    data: Sequence[str],
) -> Iterator[ResumedRun]:
    """Restore a run; if the context raises, a scheme that was built here is closed again.

    Args:
        folder: the run folder.
        config: the run's configuration.
        scheme: given by the user; None builds it from the configuration.
        target_steps: a new target; None takes the configuration's.
        log_to: new loggers; None takes the configuration's.
        callbacks: new callbacks; None builds them from the configuration.
        data: paths of the run's data sets, if the scheme is None.

    Raises:
        DatasetError: a data set cannot be read.
        ValueError: data sets are given beside a scheme, or the new target lies below the steps made.
        CheckpointError: there is no checkpoint, it is damaged, or it is from another composition.
        CompositionError: the composition cannot be built from the configuration alone.
    """
    if scheme is not None and data:
        raise ValueError(f"Learner.resume: the scheme has its own data sets, got data={list(data)!r} beside it")
    for path in data:
        # Before the run's own files, so that an error is that of the data set.
        open_dataset(path)
    keep_checkpoints = config.get("keep_checkpoints", 1)
    candidates = [folder.checkpoint_file, *folder.earlier_checkpoint_files(keep_checkpoints)]
    file, state, damaged = checkpoint.load_newest(candidates)
    with as_checkpoint_error(file):
        refuse_other_composition(config if scheme is None else scheme.config, state["config"], file)
        if scheme is None:
            storage_paths.refuse_storages_that_are_gone(config, state["scheme"], file)
            storage_paths.refuse_storages_of_others(config, state["scheme"], folder.path)
            storage_paths.refuse_ancestors_of_others(config, folder.path)
        else:
            storage_paths.refuse_to_empty(scheme.config, state["scheme"], folder.path)
        composition = config if scheme is None else scheme.config
        storage_owner.refuse_another_run(composition, state["scheme"], folder.path)
        steps = int(state["scheme"]["collector"]["steps"])
    if target_steps is not None and target_steps != config["target_steps"]:
        _refuse_smaller_target(target_steps, steps, folder.path, "updates" if config["train_envs"] is None else "steps")
    with made_scheme(config, data, folder.config_file) if scheme is None else nullcontext(scheme) as restored:
        with as_checkpoint_error(folder.config_file):
            called = Callbacks(callbacks_from_config(config) if callbacks is None else callbacks)
        config_now = {**config, **restored.config}
        config_now |= settings(
            config["target_steps"] if target_steps is None else target_steps,
            config["log_to"] if log_to is None else log_to,
            config["log_every"],
            keep_checkpoints,
        )
        config_now |= parts_of(restored, called)
        given = [(part, part.changed_parameters) for part in restored.changeable]
        with as_checkpoint_error(file):
            cut_short = restored.load_state_dict(state["scheme"])
            learner_state = state["learner"]
        for part, changes in given:
            part.take_changes(part.changed_parameters | changes)
        yield ResumedRun(config_now, restored, called, file, learner_state, damaged, cut_short)


def _refuse_smaller_target(target_steps: int, steps: int, folder: Path, unit: str) -> None:
    """Refuse a new target below the steps made; the old one may lie below, as runs end with a whole step of all copies.

    Raises:
        ValueError: it lies below.
    """
    if positive("target_steps", target_steps) < steps:
        raise ValueError(
            f"Learner.resume: {folder} has made {steps:,} {unit}, more than the new target of {target_steps:,}; "
            f"nothing was changed. Give a target of at least {steps:,}, or begin a shorter run in another folder"
        )
