"""``python -m pytorchrl train``: compose a run from classes given by name, and train it with one or more seeds."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from pytorchrl.agent.envs.games.atari_envs import described_preprocessing
from pytorchrl.agent.global_generators import seed_process
from pytorchrl.commands.composition.callbacks_and_loggers import make_callbacks, make_loggers
from pytorchrl.commands.composition.described_run import DescribedRun, described_run
from pytorchrl.commands.composition.parts import RunParts
from pytorchrl.commands.composition.presets import expected_return
from pytorchrl.commands.shared import STOPPED
from pytorchrl.comparison import compare_runs
from pytorchrl.comparison.notes import not_finite
from pytorchrl.comparison.tables import print_table, shown, shown_interval, table_of_runs
from pytorchrl.experiments.callbacks import NormalizedScore
from pytorchrl.experiments.runs import storage_owner
from pytorchrl.experiments.runs.continuation import modules_of
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.run_lock import RunInUseError
from pytorchrl.experiments.runs.starting_point import start_from
from pytorchrl.learner import Learner
from pytorchrl.logging import plot_runs
from pytorchrl.logging.pictures.plots import warn_if_unwritten
from pytorchrl.logging.writers import LoggerSetting
from pytorchrl.scheme.seeds import OF_COMMAND, PROCESSES, seed_of
from pytorchrl.terminal import tell
from storages.persistent.log.lock import InUseError

_SECONDS_BETWEEN_LOOKS = 0.5


def train(arguments: Sequence[str]) -> None:
    """Train the run that the arguments of the command line describe."""
    described = described_run(arguments)
    if described.parent_process is not None:
        end_with(described.parent_process)
    if described.preset is not None:
        tell(f"Preset: {described.preset}; --no-preset disables it.")
        expected = expected_return(described.parts.algorithm.name, described.parts.env_name or "", described.changed)
        if expected is not None:
            tell(expected)
    for notice in described.notices:
        tell(notice)
    if described.parts.is_preprocessed:
        assert described.parts.envs is not None
        tell(
            f"Preprocessing: the usual one of Atari games (prl.atari_envs): "
            f"{described_preprocessing(described.parts.envs)}; --no-preprocessing leaves frames raw."
        )
    tell(described.parts)
    if described.data is not None:
        tell(described.data)
    if described.is_dry:
        described.check()
        parts = described.parts
        seeds = ", ".join(map(str, described.seeds))
        fitting = "each other" if parts.envs is None else "each other and the environment"
        tell(f"{parts.steps:,} steps, seeds {seeds}, in {described.log_dir}: not trained; the parts fit {fitting}")
        return
    _train_all(described)


def end_with(process: int) -> None:
    """Send this process a SIGTERM, which saves a checkpoint, when its parent process has ended."""

    def watch() -> None:
        while os.getppid() == process:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="parent process", daemon=True).start()


class _LearnerOfCommand(Learner):
    """A learner that names options of ``train``, the only one to make the callbacks of some runs again."""

    _how_to_save = "a smaller --checkpoint-every"

    def _how_to_continue(self) -> str:
        if modules_of(self.scheme.factories, self._callbacks.all) is None:
            return "by the same command as before"
        return super()._how_to_continue()


def _train_all(described: DescribedRun) -> None:
    parts, settings, seeds = described.parts, described.settings, described.seeds
    folders = {seed: described.run_folder(seed) for seed in seeds}
    in_use: dict[int, Exception] = {}
    for seed, folder in folders.items():
        if described.has_finished(seed):
            # Loggers would record another part of the run, without anything in it.
            tell(f"{folder}: seed {seed} has finished{_of_other_loggers(described, seed)}")
            continue
        try:
            learner = _learner(described, seed, folder)
        except (RunInUseError, InUseError) as error:
            if len(seeds) == 1:
                raise
            tell(f"{folder}: seed {seed} is left out, as its folder is in use", is_error=True)
            in_use[seed] = error
            continue
        with learner:
            tell(f"{folder}: seed {seed}, {learner.scheme.steps:,} of {learner.target_steps:,} {learner.scheme.unit}")
            # Ten checkpoints, where no interval is given.
            every = settings.get("checkpoint_every") or max(1, parts.steps // 10)
            if not learner.is_complete:
                learner.run(checkpoint_every=every)
            if learner.was_interrupted:
                # Ctrl-C is meant for the runs of all seeds, a callback for one.
                if len(seeds) > 1:
                    tell("The same command as before continues the runs of all seeds.")
                raise SystemExit(STOPPED)
    trained = [folder for seed, folder in folders.items() if seed not in in_use]
    # The trials of a sweep would write the same picture.
    if described.parent_process is None and trained:
        _tell_results(described, trained)
    if in_use:
        left_out = ", ".join(map(str, in_use))
        first = next(iter(in_use.values()))
        raise RunInUseError(
            f"{'seed' if len(in_use) == 1 else 'seeds'} {left_out} left out, as in use by another process; the same "
            f"command trains what is left then. {first}"
        ) from first


def _of_other_loggers(described: DescribedRun, seed: int) -> str:
    """Say that a run that has finished is not logged to loggers that it has not had; "" where it had them all."""
    logged = RunFolder(described.run_folder(seed)).read_config().get("log_to") or []
    # A run may have been trained alone, without its seed in its name.
    for loggers in (described.loggers(seed), make_loggers(described.settings)):
        if all((one.config if isinstance(one, LoggerSetting) else one) in logged for one in loggers or ()):
            return ""
    return "; nothing more is logged, although --log-to names others than it was trained with"


def _tell_results(described: DescribedRun, folders: Sequence[Path]) -> None:
    """Show the returns of the seeds, or say what estimates the value where there are none."""
    parts = described.parts
    if described.data is not None and parts.env_name is None and _needs_no_history(parts):
        tell(
            f"Without an environment there are no returns to show. `evaluate {folders[0]} --data "
            f"{described.data.path}` estimates the value of the policy, beside that of the policy that made the data."
        )
    else:
        _show_results(folders, described.log_dir / "learning_curve.png")


def _needs_no_history(parts: RunParts) -> bool:
    """Whether the actions of the policy follow from an observation alone, as its evaluation on data needs."""
    return parts.actor.hyper_parameters.get("memory") is None and not parts.algorithm.cls.keeps_acting_state


def _show_results(folders: Sequence[Path], picture: Path) -> None:
    """Show the returns of all seeds, with their interquartile mean, and draw them."""
    try:
        comparison = compare_runs({"all seeds": folders})
    except (FileNotFoundError, ValueError) as error:
        # A short run may have ended no episode.
        tell(f"There are no returns to show: {error}")
        return
    (result,) = comparison.results
    print_table(table_of_runs(result))
    for note in not_finite([result], comparison.score):
        tell(note)
    if result.iqm.has_interval:
        tell(
            f"Interquartile mean of the final returns: {shown(result.iqm.value)}, 95% interval "
            f"{shown_interval(result.iqm)}"
        )
    with warn_if_unwritten(picture):
        tell(f"Learning curve: {plot_runs(folders, picture)}")


def _learner(described: DescribedRun, seed: int, folder: Path) -> Learner:
    """Make a learner for a folder, or resume from the checkpoint in it."""
    settings, steps = described.settings, described.parts.steps
    log_to, callbacks = described.loggers(seed), make_callbacks(settings)
    references = None if described.data is None else described.data.references
    if references is not None:
        callbacks.append(NormalizedScore(*references))
    # This process is the run's own, and those of a sweep's trials begin with the same state of torch's generator.
    seed_process(seed_of(seed, PROCESSES, OF_COMMAND))
    scheme = described.scheme(seed)
    try:
        if RunFolder(folder).checkpoint_file.exists():
            return _LearnerOfCommand.resume(
                folder, scheme=scheme, target_steps=steps, log_to=log_to, callbacks=callbacks
            )
        storage_owner.refuse_storages_of_runs(scheme.config, folder)
        if begin := settings.get("from"):
            tell(f"From {begin}: {', '.join(start_from(scheme, begin))}")
        learner = _LearnerOfCommand(scheme, steps, folder, log_to=log_to or (), callbacks=callbacks)
        if described.preset is not None:
            of_preset = {"name": described.preset, "changed": list(described.changed)}
            RunFolder(folder).add_provenance({"preset": of_preset})
        return learner
    except BaseException:
        scheme.close()
        raise
