"""The training loop: started, stepped, stopped and resumed by the user."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.envs.worker_processes import worker_signals
from pytorchrl.experiments import notices
from pytorchrl.experiments.callbacks import Callback, Callbacks
from pytorchrl.experiments.callbacks.callback import is_due
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.loop_state import LoopState
from pytorchrl.experiments.loop_timer import LoopTimer
from pytorchrl.experiments.measurements import Measurements
from pytorchrl.experiments.repeating import repeated_run
from pytorchrl.experiments.resuming import resumed_run
from pytorchrl.experiments.run_settings import parts_of, positive, settings
from pytorchrl.experiments.runs import checkpoint, storage_owner, storage_paths
from pytorchrl.experiments.runs.composition import as_checkpoint_error
from pytorchrl.experiments.runs.continuation import data_sets_of, how_to_continue, modules_of, resume_command
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.run_lock import RunInUseError, RunLock
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.logging import MetricsFile, MetricsWriter, ProgressDisplay, make_writers, plot_runs, read_metrics
from pytorchrl.logging.pictures.plots import warn_if_unwritten
from pytorchrl.scheme.evaluation import Evaluation, EvaluationStoppedError
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.terminal import tell
from storages.closing import Closing, close_all
from storages.core.ring.state import sharing_memory
from storages.open_files import SpareFiles, is_of_open_files, limit_of_open_files, open_files_named

_SECONDS_BETWEEN_CHECKPOINTS = 600.0
"""Used where no interval in steps is given."""
_SPARE_FILES = 8
"""Number of files that are kept for saving a run in which no others can be opened."""


class Learner(Closing):
    """Trains a scheme for a number of steps, logs metrics, and saves the run in a folder.

    Steps are environment transitions, or update phases where the scheme collects no experience.

    Args:
        scheme: collects experience and updates the networks.
        target_steps: total number of training steps, including those before a resume.
        log_dir: the run folder. It must not hold a run that has saved a checkpoint or logged metrics. Evaluations are
            made in the scheme's test environments, by default a copy of the training environments.
        log_to: loggers used in addition to ``metrics.jsonl``: "wandb", "tensorboard".
        log_every: steps between log records.
        keep_checkpoints: how many of the newest checkpoints are kept; with more than one, a run whose newest checkpoint
            is damaged resumes from the one before. Each takes as much disk space as the networks and the storage.
        callbacks: called on the events of the run, in the given order; see :class:`Callback`. A function is called with
            the learner after each step, and stops the run by returning a true value, such as the reason.
        overwrite: move a run that ``log_dir`` holds to a folder beside it. A run that cannot be resumed, because it
            ended before its first checkpoint, is moved in any case.

    Raises:
        FileExistsError: ``log_dir`` already holds a run that can be resumed.
        RunInUseError: another process is training the run in ``log_dir``.
        ValueError: ``target_steps``, ``log_every`` or ``keep_checkpoints`` is not positive, or ``log_to`` names
            an unknown logger.
    """

    _stop_reason: str | None
    """Why :meth:`stop` was called in this run."""
    _was_interrupted: bool
    """Whether the last :meth:`run` was."""
    _checkpoint_every: int | None
    _saved_time: float
    """Monotonic time, in seconds, of the newest checkpoint, or of the start of the run."""
    _saved_at: int | None
    """Steps at the newest checkpoint; None before the first."""

    def __init__(
        self,
        scheme: Scheme,
        target_steps: int,
        log_dir: str | os.PathLike[str],
        *,
        log_to: Sequence[str] = (),
        log_every: int = 1_000,
        keep_checkpoints: int = 1,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] = (),
        overwrite: bool = False,
    ) -> None:
        folder, called = RunFolder(log_dir), Callbacks(callbacks)
        config = scheme.config | settings(target_steps, log_to, log_every, keep_checkpoints)
        config |= parts_of(scheme, called)
        folder.make()
        with RunLock(folder.path, storage_paths.directories_of(config).values()) as lock:
            moved = folder.make_room(overwrite, map(Path, storage_paths.directories_of(config).values()))
            if moved is not None:
                tell(f"Moved the previous run of {folder.path} to {moved}.")
            writers = make_writers(log_to, folder.path, config)
            if folder.create(config):
                tell(f"Replaced the previous run of {folder.path}, which had neither metrics nor checkpoints.")
            self._prepare(scheme, folder, config, writers, lock, called)
            if message := notices.of_stored_transitions(scheme):
                tell(message)
            scheme.set_progress(0, target_steps)

    @classmethod
    def resume(
        cls,
        log_dir: str | os.PathLike[str],
        *,
        scheme: Scheme | None = None,
        target_steps: int | None = None,
        log_to: Sequence[str] | None = None,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] | None = None,
        data: Sequence[str | os.PathLike[str]] = (),
    ) -> "Learner":
        """Return a learner that resumes from the newest undamaged checkpoint of a run folder.

        With a reproducible scheme, the resumed run is bitwise identical to an uninterrupted one. Only where the state
        of an environment cannot be restored (see :class:`VecEnv`), its running episode is treated as truncated and a
        new one begins; this is printed, and logged as "train/episodes_cut_by_resume".

        Args:
            log_dir: the run folder.
            scheme: the same composition as before; None builds it from ``config.json``, which is possible where the
                composition contains no user-defined functions. The storage's directory may differ, if it was moved.
                Hyper-parameters that were changed in it replace those of the checkpoint.
            target_steps: a new target, which replaces the old one in the run's settings; None keeps the old one. It
                must not lie below the steps that the run has made.
            log_to: new loggers, which replace the old ones in the run's settings; None keeps the old ones.
            callbacks: new callbacks, which replace the old ones in the run's settings; those with the same arguments as
                before restore their state. None builds them from ``config.json``, which is possible where they contain
                no user-defined objects.
            data: paths of the data sets that the run learns from, in the order of ``config.json``, where ``scheme`` is
                None; they may have moved. That ``config.json`` names them does not suffice, as a run folder may come
                from anybody.

        Raises:
            DatasetError: a data set of ``data`` cannot be read.
            MetricsError: the metrics that the run would append to are damaged.
            ValueError: ``data`` is given beside a scheme, which has its own, or ``target_steps`` lies below the steps
                made; nothing is changed.
            CheckpointError: there is no checkpoint, it is damaged, or it is from another composition.
            CompositionError: the composition cannot be built from ``config.json`` alone.
            RunInUseError: another process is training the run.
        """
        folder = RunFolder(log_dir)
        config = folder.read_config()
        # Damaged ones are refused here, before the run trains up to its next record.
        records = read_metrics(folder.metrics_file) if folder.metrics_file.exists() else []
        directories = storage_paths.directories_of(config if scheme is None else scheme.config)
        with (
            missing_modules_named(config),
            RunLock(folder.path, directories.values()) as lock,
            resumed_run(
                folder, config, scheme, target_steps, log_to, callbacks, [os.fspath(one) for one in data]
            ) as run,
        ):
            learner = cls.__new__(cls)
            writers = make_writers(run.config["log_to"], folder.path, run.config, resumed_at=run.scheme.steps)
            learner._prepare(run.scheme, folder, run.config, writers, lock, run.callbacks, goes_on_at=run.scheme.steps)
            with as_checkpoint_error(run.file):
                learner._load_state_dict(run.learner_state)
            learner._saved_at = run.scheme.steps
            folder.write_config(run.config)
            run.put_away_damaged(folder.checkpoint_file)
            if message := notices.of_lost_metrics(folder.metrics_file, records, learner.get_metrics()):
                tell(message)
            learner._tell_of_cut_episodes(run.cut_short)
        return learner

    @classmethod
    def repeat(
        cls,
        run: str | os.PathLike[str],
        log_dir: str | os.PathLike[str],
        *,
        seed: int | None = None,
        target_steps: int | None = None,
        device: torch.device | str | None = None,
        log_to: Sequence[str] | None = None,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] | None = None,
        data: Sequence[str | os.PathLike[str]] = (),
    ) -> "Learner":
        """Return a learner that begins a new run with the configuration of another, such as with another seed.

        Of the other run, only ``config.json`` is read. With its seed, code, versions and number of threads, a
        reproducible scheme repeats it bit for bit. Storages on disk begin empty, in the new folder. Where the run began
        from the weights of another (:func:`start_from`), the new one begins without them.

        Args:
            run: the folder of the run that is repeated.
            log_dir: the folder of the new run.
            seed: of the new run; None takes the old one's.
            target_steps: its number of steps; None takes the old one's.
            device: of networks and batches; None takes the old one's.
            log_to: its loggers; None takes the old ones.
            callbacks: its callbacks. None builds them from ``config.json``, which is possible where they contain no
                user-defined objects.
            data: as in :meth:`resume`.

        Raises:
            CheckpointError: ``run`` is no run folder, or its ``config.json`` is damaged.
            CompositionError: the composition cannot be built from ``config.json`` alone.
            DatasetError: a data set of ``data`` cannot be read.
            DeviceError: there is no such device.
            FileExistsError: ``log_dir`` holds a run already.
        """
        paths = [os.fspath(path) for path in data]
        with repeated_run(RunFolder(run), Path(log_dir), seed, device, callbacks, paths) as parts:
            config = parts.config
            learner = cls(
                parts.scheme,
                config["target_steps"] if target_steps is None else target_steps,
                log_dir,
                log_to=config["log_to"] if log_to is None else log_to,
                log_every=config["log_every"],
                keep_checkpoints=config.get("keep_checkpoints", 1),
                callbacks=parts.callbacks,
            )
            if (every := config.get("checkpoint_every")) is not None:
                learner._set_checkpoint_interval(every)
        return learner

    # The loop

    def run(self, checkpoint_every: int | None = None) -> bool:
        """Train until the target is reached; then save a checkpoint and plot the learning curve.

        Progress is shown where the output is a terminal. Ctrl-C or SIGTERM ends training after the current step, or
        during an evaluation, saves a checkpoint and prints how to resume; a second Ctrl-C stops at once. A checkpoint
        is also saved after an exception, unless it was raised during an update: the resumed run then repeats the failed
        step, and notes on the exception say how to resume.

        Args:
            checkpoint_every: steps between checkpoints. None keeps the interval of the run that was resumed; if there
                is none, a checkpoint is saved every ten minutes and at the end.

        Returns:
            Whether the target was reached.

        Raises:
            ValueError: ``checkpoint_every`` is not positive.
        """
        if checkpoint_every is not None and checkpoint_every != self._checkpoint_every:
            self._set_checkpoint_interval(checkpoint_every)
        self._stop_reason, self._was_interrupted = None, False
        if message := notices.of_first_update(self.scheme, self.target_steps, self.log_every):
            tell(message)
        with self._interruption, worker_signals().held_back():
            try:
                self._lock.check()
                self._folder.forget_error()
                self._callbacks.call("on_run_begin", self)
                self._train()
                self._callbacks.call("on_run_end", self)
            except Exception as error:
                # Any exception, since it is raised again: the training progress must not be lost.
                with self._spare_files.released():
                    self._save_despite(error)
                raise
            self.save_checkpoint()
            self._draw_curve()
            self._was_interrupted = self.is_interrupted()
        if not self.done() or self._at.evaluation_is_due:
            at = (
                "in the last evaluation"
                if self.done()
                else f"at {self.scheme.steps:,} of {self.target_steps:,} {self.scheme.unit}"
            )
            reason = "" if self._stop_reason is None else f", because {self._stop_reason}"
            tell(f"Stopped {at}{reason}; continue {self._how_to_continue()}")
        return self.done()

    def step(self) -> None:
        """Collect until an update is due, make it, and log and evaluate if they are due.

        Ctrl-C or SIGTERM during :meth:`run` interrupts collection and evaluation at any environment step; the next call
        continues from there.
        """
        if self._at.evaluation_is_due or self._callbacks.are_due:
            self._finish_step()
            return
        if self._has_ended():
            return
        self._callbacks.call("on_step_begin", self)
        started = time.perf_counter()
        # After an exception between the two, a resumed run goes on with the updates that are due.
        if self._at.phases_due or self._collect():
            self._update()
            self._at.seconds += time.perf_counter() - started
            self._settle()
        else:
            self._at.seconds += time.perf_counter() - started

    def _collect(self) -> bool:
        """Collect until updates are due, or the target is reached; return whether it is so."""
        scheme, at = self.scheme, self._at
        with self._timer.part("collect"):
            episodes, phases_due = scheme.collect(self.target_steps, stopped=self.is_interrupted)
        if not phases_due and not self.done():
            return False
        at.settled_before, at.settled_at, at.phases_due = at.settled_at, scheme.steps, phases_due
        scheme.set_progress(scheme.steps, self.target_steps)
        self._measurements.training.add_episodes(episodes, scheme.take_shaped_returns())
        if episodes:
            self._callbacks.call("on_episodes", self, episodes)
        return True

    def _update(self) -> None:
        """Make the updates that are due."""
        self._is_updating = self._at.phases_due > 0
        is_logged = is_due(self.log_every, self._at.settled_before, self.scheme.steps) or self.done()
        with self._timer.part("update"):
            for phase in range(self._at.phases_due):
                for info in self.scheme.update(measured=is_logged and phase == 0):
                    self._measurements.training.add_update(info)
                    self._callbacks.call("on_update", self, info)
        self._at.phases_due = 0
        self._is_updating = False

    def _settle(self) -> None:
        """Log and evaluate if they are due, after collection and updates, and call the callbacks."""
        steps, before, test_every = self.scheme.steps, self._at.settled_before, self._test_every
        self._at.evaluation_is_due = bool(test_every) and is_due(test_every, before, steps)
        if is_due(self.log_every, before, steps) or self.done():
            self._lock.check()
            self._measurements.write_training(steps, self._at.seconds)
        self._callbacks.announce_step()
        self._finish_step()

    def stop(self, reason: str) -> None:
        """End :meth:`run` after the current step and save a checkpoint; for callbacks.

        Args:
            reason: printed after the word "because".

        Raises:
            ValueError: ``reason`` is empty.
        """
        if not reason:
            raise ValueError("Learner.stop: give a reason, which is printed after the word 'because'")
        self._stop_reason = reason

    @property
    def stop_reason(self) -> str | None:
        """Why a callback stopped the last :meth:`run`; None where none did."""
        return self._stop_reason

    def is_interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM has asked the present :meth:`run` to stop; False outside of it."""
        return self._interruption.is_requested()

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM came during the last :meth:`run`, also after its last step."""
        return self._was_interrupted

    def done(self) -> bool:
        """Whether the target is reached."""
        return self.scheme.steps >= self.target_steps

    @property
    def is_complete(self) -> bool:
        """Whether the target is reached, and the updates, the evaluation and the callbacks that were due there made."""
        return self._has_ended() and not (self._at.evaluation_is_due or self._callbacks.are_due)

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """Run test episodes now and return their results, which the run does not log.

        The run stays as if they had not been made: metrics, best weights, callbacks and the state of the test
        environments are unchanged. The algorithm's ``test_every`` makes evaluations that belong to the run;
        ``learner.log`` logs others under a name of your choice.

        Args:
            episodes: how many; None uses the algorithm's ``num_test_episodes``.

        Raises:
            CompositionError: there are no test environments.
            EvaluationStoppedError: Ctrl-C or SIGTERM during :meth:`run`.
            ValueError: ``episodes`` is not an int of at least 1.
        """
        number = self.scheme.algorithm.num_test_episodes if episodes is None else positive("episodes", episodes)
        with self._timer.part("evaluate"):
            return self.scheme.evaluate_apart(number, self.is_interrupted)

    def _evaluate(self) -> None:
        """Make an evaluation of the run: log it, keep the best weights, and call the callbacks."""
        with self._timer.part("evaluate"):
            evaluation = self.scheme.evaluate(self.scheme.algorithm.num_test_episodes, self.is_interrupted)
        self._at.evaluated_at = self.scheme.steps
        self._log(evaluation.metrics)
        if evaluation.mean_return > self._at.best_return:
            self._at.best_return = evaluation.mean_return
            self.save_policy(self._folder.best_weights_file, test_return=evaluation.mean_return)
        # An exception of a callback must not repeat it.
        self._at.evaluation_is_due = False
        self._callbacks.call_evaluated(self, evaluation)

    def use_best_weights(self) -> None:
        """Load the actor's weights of the best evaluation.

        Raises:
            CheckpointError: no evaluation was made yet, or the file is damaged.
        """
        file = self._folder.best_weights_file
        self.scheme.algorithm.set_weights(checkpoint.load(file, checkpoint.BEST_WEIGHTS)["weights"])

    # Results

    def get_metrics(self) -> dict[str, float]:
        """Return the latest value of each metric, and "steps" and "seconds"."""
        return dict(self._measurements.latest)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Log further metrics, in ``metrics.jsonl`` and all loggers of the run.

        Args:
            metrics: values by name; a slash in a name makes a group: "mine/number".

        Raises:
            ValueError: a value is not a number, or a name is reserved ("steps", "seconds").
        """
        for name, value in metrics.items():
            if name in ("steps", "seconds"):
                raise ValueError(f"Learner.log: the run itself logs {name!r}; choose another name")
            if not isinstance(value, int | float | np.number):
                raise ValueError(f"Learner.log: {name!r} must be a number, got {value!r}")
        self._log(metrics)

    def log_histograms(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Log histograms of values, in the loggers that support them: TensorBoard and wandb."""
        self._measurements.write_histograms(self.scheme.steps, values)

    def log_video(self, name: str, path: Path) -> None:
        """Log a video, a file that ends in ".mp4" or ".gif", in the loggers that support it: wandb."""
        self._measurements.write_video(self.scheme.steps, name, path)

    @property
    def seconds_of_parts(self) -> dict[str, float]:
        """Seconds that this process has spent in "collect", "update", "evaluate" and "save"."""
        return self._timer.seconds

    def print_info(self) -> None:
        """Print the run's progress and latest returns in one line."""
        metrics = self._measurements.latest
        shown = [f"{self.scheme.steps:,} of {self.target_steps:,} {self.scheme.unit}"]
        if (start := notices.first_update(self.scheme)) is not None:
            shown.append(f"first update after {start:,}")
        for name, label in (("train/return", "train return"), ("test/return", "test return")):
            if name in metrics:
                shown.append(f"{label} {metrics[name]:.1f}")
        if "speed/steps_per_second" in metrics:
            shown.append(f"{metrics['speed/steps_per_second']:,.0f} {self.scheme.unit}/s")
        tell(" | ".join(shown))

    @property
    def log_dir(self) -> Path:
        """The run folder."""
        return self._folder.path

    @property
    def curve_file(self) -> Path:
        """Where :meth:`run` draws the learning curve."""
        return self._folder.curve_file

    @property
    def resume_command(self) -> str:
        """The shell command that resumes the run in a new process.

        It imports the modules that define the classes and environments of the composition. A composition with functions
        that are defined in a script, and so cannot be imported, is resumed from that script:
        ``Learner.resume(log_dir, scheme=scheme)``.
        """
        factories = self.scheme.factories
        modules = modules_of(factories, self._callbacks.all) or ()
        return resume_command(self._folder.path, modules, data_sets_of(factories))

    def save_checkpoint(self) -> Path:
        """Write a checkpoint to the run folder atomically; returns the file.

        Raises:
            RuntimeError: updates are being made, as in ``on_update`` of a callback, or were interrupted by an
                exception: a run resumed from there would make all of them again.
        """
        if self._is_updating:
            raise RuntimeError(
                "Learner.save_checkpoint: updates are being made, or were interrupted by an exception; the run could "
                "not resume exactly from their middle. Callbacks save in on_step, after the updates"
            )
        with self._timer.part("save"):
            self._save()
        self._callbacks.call("on_checkpoint", self, self._folder.checkpoint_file)
        return self._folder.checkpoint_file

    def save_policy(self, path: Path, **numbers: float) -> Path:
        """Save only the policy, for :func:`load_policy`; returns the file.

        Args:
            path: the file; its folder is created if it does not exist.
            numbers: further numbers saved with it.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = self.scheme.algorithm.get_weights()
        state = {"config": self.scheme.config, "steps": self.scheme.steps, **numbers, "weights": weights}
        checkpoint.save(path, state)
        return path

    def _save(self) -> None:
        self._lock.check()
        self._measurements.begin()
        state = {
            "config": storage_paths.relativized(self.scheme.config, self._folder.path),
            "scheme": self.scheme.state_dict(),
            "learner": {
                **self._at.state_dict(),
                **self._measurements.state_dict(),
                "gradients": self.scheme.algorithm.training.measurements(),
                "callbacks": self._callbacks.state_dict(),
            },
        }
        storage_owner.claim(self.scheme.config, self._folder.path)
        earlier = self._folder.earlier_checkpoint_files(self._keep_checkpoints)
        checkpoint.save(self._folder.checkpoint_file, state, earlier)
        self._saved_at, self._saved_time = self.scheme.steps, time.monotonic()

    def close(self) -> None:
        """Close the environments and loggers, and release the lock of the run folder."""
        try:
            close_all([self.scheme, self._measurements, self._spare_files])
        finally:
            self._lock.release()

    # Inside

    def _prepare(
        self,
        scheme: Scheme,
        folder: RunFolder,
        config: Mapping[str, Any],
        writers: Sequence[MetricsWriter],
        lock: RunLock,
        callbacks: Callbacks,
        goes_on_at: int | None = None,
    ) -> None:
        self.scheme = scheme
        self.target_steps: int = config["target_steps"]
        self.log_every: int = config["log_every"]
        self._folder = folder
        self._lock = lock
        with open_files_named("Learner", "close some"):
            self._spare_files = SpareFiles(_SPARE_FILES)
        self._measurements = Measurements(MetricsFile(folder.metrics_file, goes_on_at), writers)
        self._interruption = Interruption()
        self._callbacks = callbacks
        self._stop_reason, self._was_interrupted = None, False
        self._timer = LoopTimer()
        self._keep_checkpoints: int = config["keep_checkpoints"]
        for storage in scheme.storages.values():
            # A checkpoint is replaced only when the next is complete.
            storage.states_kept = self._keep_checkpoints + 1
        self._checkpoint_every = config.get("checkpoint_every")
        self._at = LoopState()
        self._is_updating = False
        self._saved_at, self._saved_time = None, time.monotonic()

    def _set_checkpoint_interval(self, steps: int) -> None:
        self._checkpoint_every = positive("checkpoint_every", steps)
        self._folder.write_config(self._folder.read_config() | {"checkpoint_every": steps})

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._at.load_state_dict(state)
        self.scheme.set_progress(self._at.settled_at, self.target_steps)
        self._measurements.load_state_dict(state)
        # Earlier versions saved none.
        self.scheme.algorithm.training.load_measurements(state.get("gradients", {}))
        self._callbacks.load_state_dict(state["callbacks"])

    def _train(self) -> None:
        test_every = self._test_every
        self._saved_time = time.monotonic()
        with self._display() as display:
            while not self._has_ended() and not self.is_interrupted() and self._stop_reason is None:
                before = self.scheme.steps
                self.step()
                display.update(self.scheme.steps, self._measurements.latest)
                # The last checkpoint is saved after the last evaluation.
                every = self._checkpoint_every
                if every is None:
                    is_time = time.monotonic() - self._saved_time > _SECONDS_BETWEEN_CHECKPOINTS
                else:
                    is_time = is_due(every, before, self.scheme.steps)
                if is_time and not self.done():
                    self.save_checkpoint()
            if self.done():
                self._at.evaluation_is_due |= bool(test_every) and self._at.evaluated_at != self.scheme.steps
                self._finish_step()
                display.update(self.scheme.steps, self._measurements.latest)

    def _has_ended(self) -> bool:
        return self.done() and not self._at.phases_due

    @property
    def _test_every(self) -> int:
        return self.scheme.algorithm.test_every if self.scheme.can_evaluate else 0

    def _finish_step(self) -> None:
        if self._at.evaluation_is_due:
            with suppress(EvaluationStoppedError):
                self._evaluate()
        if not self._at.evaluation_is_due:
            self._callbacks.call_due(self)

    def _save_despite(self, error: Exception) -> None:
        """Save a checkpoint after an exception, where the state is consistent, and note on it how to resume.

        The traceback is written to the run folder, for a report.
        """
        if self._is_updating:
            error.add_note("The exception interrupted an update; the run was not saved in this incomplete state.")
        else:
            try:
                # There may be no memory for a copy of the storage.
                with sharing_memory():
                    self.save_checkpoint()
            except Exception as obstacle:
                # Any exception: it must not replace the error that ended the run.
                error.add_note(f"The run could not be saved: {obstacle}")
        if isinstance(error, OSError) and is_of_open_files(error):
            error.add_note(f"Too many files are open, {limit_of_open_files(error)}.")
        kept = self._keep_traceback(error)
        if self._saved_at is None:
            error.add_note(
                f"{self._folder.path} has no checkpoint to resume from; {self._how_to_save} saves some during the run."
                f"{f' The traceback is in {self._folder.error_file}.' if kept else ''}"
            )
        else:
            with_it = f", with the traceback in {self._folder.error_file.name}," if kept else ""
            error.add_note(
                f"The run is saved in {self._folder.path}{with_it} as of {self._saved_at:,} of {self.target_steps:,} "
                f"{self.scheme.unit}; continue {self._how_to_continue()}"
            )
        if kept:
            # Again, with the notes.
            self._keep_traceback(error)

    def _keep_traceback(self, error: Exception) -> bool:
        """Write the traceback to the run folder; return whether it could be."""
        try:
            self._lock.check()
            self._folder.write_error(error)
        except (OSError, RunInUseError):
            return False
        return True

    @property
    def _how_to_save(self) -> str:
        return "Learner.run(checkpoint_every=...)"

    def _how_to_continue(self) -> str:
        return how_to_continue(self._folder.path, self.scheme.factories, self._callbacks.all)

    def _tell_of_cut_episodes(self, envs: Sequence[int]) -> None:
        if message := notices.of_cut_episodes(self.scheme, envs):
            tell(message)
            self._log({"train/episodes_cut_by_resume": float(len(envs))})

    def _display(self) -> ProgressDisplay:
        title = f"{self.scheme.config['algorithm']['name']} in {self._folder.path}"
        return ProgressDisplay(self.target_steps, title, self.scheme.steps, unit=self.scheme.unit)

    def _log(self, metrics: Mapping[str, float]) -> None:
        self._lock.check()
        self._measurements.write(self.scheme.steps, self._at.seconds, metrics)

    def _draw_curve(self) -> None:
        # A short run may have ended no episode.
        if {"train/return", "test/return"} & self._measurements.latest.keys():
            with warn_if_unwritten(self._folder.curve_file):
                plot_runs([self._folder.path], self._folder.curve_file)
