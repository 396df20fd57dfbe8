"""From a run folder to what its learner goes on with: the scheme and the callbacks as of the newest checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import Callbacks
from pytorchrl.experiments.callbacks.described import callbacks_from_config
from pytorchrl.experiments.run_settings import parts_of, refuse_other_composition, settings
from pytorchrl.experiments.runs import checkpoint, places
from pytorchrl.experiments.runs.checkpoint import DamagedCheckpointError
from pytorchrl.experiments.runs.composition import misfit_named, scheme_from_config
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.scheme.scheme import Scheme


@dataclass(frozen=True)
class ResumedRun:
    """A run whose scheme is where it was at a checkpoint."""

    config: dict[str, Any]
    """The configuration that holds from now on."""
    scheme: Scheme
    callbacks: Callbacks
    file: Path
    """The checkpoint."""
    learner_state: Mapping[str, Any]
    """What the checkpoint holds of the learner itself."""
    damaged: Sequence[DamagedCheckpointError]
    """Newer checkpoints, which cannot be read."""
    cut_short: Sequence[int]
    """Environments that did not come back to where they were."""

    def put_away_damaged(self, newest: Path) -> None:
        """Rename what is damaged, and say so; and which checkpoint it is gone on from, where that is not the newest."""
        for error in self.damaged:
            aside = error.path.with_suffix(".damaged")
            error.path.replace(aside)
            print(f"{error.path} is damaged: {error.reason}. It is now {aside.name}.")
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
) -> Iterator[ResumedRun]:
    """What a learner goes on with; what is made here of the configuration is closed again where an error follows.

    Args:
        folder: the run folder.
        config: what it says of the run.
        scheme: made by the user; None makes it of the configuration.
        target_steps: a new target; None takes the configuration's.
        log_to: new places for metrics; None takes the configuration's.
        callbacks: new ones; None makes them of the configuration.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or of another composition.
        CompositionError: the composition cannot be made of the configuration alone.
    """
    keep_checkpoints = config.get("keep_checkpoints", 1)
    candidates = [folder.checkpoint_file, *folder.earlier_checkpoint_files(keep_checkpoints)]
    file, state, damaged = checkpoint.load_newest(candidates)
    with misfit_named(file):
        refuse_other_composition(config if scheme is None else scheme.config, state["config"], file)
        if scheme is None:
            places.refuse_storages_that_are_gone(config, state["scheme"], file)
            places.refuse_storages_of_others(config, state["scheme"], folder.path)
        else:
            places.refuse_to_empty(scheme.config, state["scheme"], folder.path)
    made = None
    if scheme is None:
        with misfit_named(folder.config_file):
            scheme = made = scheme_from_config(config)
    try:
        with misfit_named(folder.config_file):
            called = Callbacks(callbacks_from_config(config) if callbacks is None else callbacks)
        config_now = {**config, **scheme.config}
        config_now |= settings(
            config["target_steps"] if target_steps is None else target_steps,
            config["log_to"] if log_to is None else log_to,
            config["log_every"],
            keep_checkpoints,
        )
        config_now |= parts_of(scheme, called)
        with misfit_named(file):
            cut_short = scheme.load_state_dict(state["scheme"])
            learner_state = state["learner"]
        yield ResumedRun(config_now, scheme, called, file, learner_state, damaged, cut_short)
    except BaseException:
        if made is not None:
            # An error while closing it must not hide why the run was not resumed.
            with suppress(Exception):
                made.close()
        raise
