"""The training loop: started, stepped, stopped and resumed by the user."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.refusals import algorithm_of
from pytorchrl.agent.envs.worker_processes import worker_signals
from pytorchrl.agent.other_names import LEARNER_METHODS, LEARNER_NAMES
from pytorchrl.agent.other_names.calls import answering_calls, environment_for, environment_of, training_code
from pytorchrl.experiments import notices
from pytorchrl.experiments.callbacks import Callback, Callbacks
from pytorchrl.experiments.explanation import Explanation
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.measurements import Measurements
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.experiments.policies.wrapped_actions import action_wrappers_of
from pytorchrl.experiments.restored_runs import own_loggers, parts_of, positive, repeated_run, resumed_run, settings
from pytorchrl.experiments.runs import checkpoint, storage_paths
from pytorchrl.experiments.runs.changed_settings import with_changes
from pytorchrl.experiments.runs.composition import as_checkpoint_error
from pytorchrl.experiments.runs.continuation import (
    data_sets_of,
    how_to_continue,
    modules_of,
    next_commands,
    resume_command,
)
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.run_lock import RunLock
from pytorchrl.experiments.runs.starting_point import STARTED_FROM, start_from
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.experiments.saving import RunSaver
from pytorchrl.experiments.training_loop import TrainingLoop
from pytorchrl.logging import Logger, MetricsFile, MetricsWriter, ProgressDisplay, make_writers, read_metrics
from pytorchrl.logging.pictures.plots import draw_curve
from pytorchrl.scheme.evaluation import Evaluation
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.terminal import tell
from storages.closing import Closing, close_all
from storages.component.other_names import Answering, answer_missing

if TYPE_CHECKING:
    import wandb

_Path: TypeAlias = str | os.PathLike[str]


def _check_scheme(scheme: object, cls: type["Learner"]) -> None:
    if not isinstance(scheme, Scheme):
        raise TypeError(answer_call(cls, f"{cls.__name__}: scheme must be a Scheme, got {scheme!r}", (scheme,), {}))


def answer_call(cls: type[Any], wrong: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the message about a call of a learner without its scheme, target and folder: what to write instead."""
    given = (*args, *kwargs.values())
    if any(isinstance(one, Scheme) for one in given):
        return f'{wrong}; write prl.Learner(scheme, target_steps=100_000, log_dir="runs/mine").run()'
    algorithm = next((found for one in given if (found := algorithm_of(one)) is not None), None)
    name, actions = ("PPO", "any") if algorithm is None else (algorithm.__name__, algorithm.actions)
    return f"{wrong}; write {training_code(name, environment_of(args, kwargs) or environment_for(actions))}"


def _answer_run(_: type[Any], wrong: str, args: tuple[Any, ...], __: Mapping[str, Any]) -> str:
    """Return the message about a call of :meth:`Learner.run`: a number is taken for that of steps, as elsewhere."""
    if not args:
        return wrong
    return (
        f"{wrong}; it trains up to target_steps of prl.Learner, or of prl.Learner.resume(log_dir, target_steps=...); "
        f"learner.run(checkpoint_every={args[0]!r}) sets the steps between checkpoints"
    )


def _answer_evaluate(_: type[Any], wrong: str, __: tuple[Any, ...], ___: Mapping[str, Any]) -> str:
    """Return the message about a call of :meth:`Learner.evaluate`, which elsewhere takes a model and environments."""
    return (
        f"{wrong}; learner.evaluate(episodes=10) runs them in test_envs_factory of prl.Scheme, and "
        f"prl.load_policy(log_dir).evaluate(env, episodes=10) in others"
    )


def _answer_log(_: type[Any], wrong: str, args: tuple[Any, ...], __: Mapping[str, Any]) -> str:
    """Return the message about a call of :meth:`Learner.log`, which takes names and values as one dict."""
    name = args[0] if args and isinstance(args[0], str) else "mine/number"
    return f"{wrong}; write learner.log({{{name!r}: 1.0}})"


class Learner(Answering, Closing):
    """Trains a scheme for a number of steps, logs metrics, and saves the run in a folder.

    Steps are environment transitions, or update phases where the scheme collects no experience.

    Args:
        scheme: collects experience and updates the networks.
        target_steps: total number of training steps, including those before a resume.
        log_dir: the run folder. It must not hold a run that has saved a checkpoint or logged metrics. Evaluations are
            made in the scheme's test environments, by default a copy of the training environments.
        log_to: loggers used in addition to ``metrics.jsonl``: "wandb", "tensorboard", :class:`Wandb`,
            :class:`TensorBoard`, or an object with the methods ``write(steps, metrics)`` and ``close()``.
        log_every: steps between log records.
        keep_checkpoints: how many of the newest checkpoints are kept; if the newest is damaged, a run resumes from the
            one before. Each takes as much disk space as the networks and the storage.
        callbacks: called on the events of the run, in the given order; see :class:`Callback`. A function is called with
            the learner after each step, and stops the run by returning a true value, such as the reason.
        overwrite: move a run that ``log_dir`` holds to a folder beside it, as is done in any case with a run that ended
            before its first checkpoint.

    Raises:
        FileExistsError: ``log_dir`` already holds a run that can be resumed.
        RunInUseError: another process is training the run in ``log_dir``.
        ValueError: a number is not positive, or ``log_to`` names an unknown logger.
    """

    other_names, other_methods = LEARNER_NAMES, LEARNER_METHODS

    stop_reason: str | None = None
    """Why a callback stopped the last :meth:`run`; None where none did."""
    was_interrupted = False
    """Whether Ctrl-C or SIGTERM came during the last :meth:`run`, also after its last step."""
    _how_to_save = "Learner.run(checkpoint_every=...)"
    _needs_scheme = True
    """Whether a script that resumes the run has to make a scheme with user-defined parts."""

    @answering_calls(answer_call)
    def __init__(
        self,
        scheme: Scheme,
        target_steps: int,
        log_dir: _Path,
        *,
        log_to: Sequence[Logger] = (),
        log_every: int = 1_000,
        keep_checkpoints: int = 1,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] = (),
        overwrite: bool = False,
    ) -> None:
        _check_scheme(scheme, type(self))
        folder, called = RunFolder(log_dir), Callbacks(callbacks)
        config = scheme.config | settings(target_steps, log_to, log_every, keep_checkpoints)
        config |= parts_of(scheme, called)
        config = with_changes(config, scheme.changeable, [part.changed_parameters for part in scheme.changeable])
        directories = storage_paths.directories_of(config).values()
        folder.make()
        with RunLock(folder.path, directories) as lock:
            moved = folder.make_room(overwrite, map(Path, directories))
            if moved is not None:
                tell(f"Moved the previous run of {folder.path} to {moved}.")
            writers = make_writers(log_to, folder.path, config)
            if folder.create(config):
                tell(f"Replaced the previous run of {folder.path}, which had neither metrics nor checkpoints.")
            self._prepare(scheme, folder, config, writers, lock, called)
            notices.report_stored_transitions(scheme, folder.path)
            notices.report_unconstrained_learning(scheme)
            notices.report_rewards_of_several_scales(scheme)
            scheme.set_progress(0, target_steps)

    @classmethod
    def resume(
        cls,
        log_dir: _Path,
        *,
        scheme: Scheme | None = None,
        target_steps: int | None = None,
        log_to: Sequence[Logger] | None = None,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] | None = None,
        data: Sequence[_Path] = (),
    ) -> "Learner":
        """Return a learner that resumes from the newest undamaged checkpoint of a run folder.

        With a reproducible scheme, the resumed run is bitwise identical to an uninterrupted one. Only where the state
        of an environment cannot be restored (see :class:`VecEnv`), its running episode is treated as truncated and a
        new one begins; this is printed, and logged as "train/episodes_cut_by_resume".

        Args:
            log_dir: the run folder.
            scheme: made of the same factories as before; None builds it from ``config.json``, for which modules with
                classes of yours, such as an environment, must be imported before. The storage's directory may differ,
                if it was moved. Hyper-parameters that were changed in it, by
                ``scheme.algorithm.update_algorithm_parameter(name, value)`` or ``update_storage_parameter`` of a
                storage, replace those of the checkpoint; factories with others are refused.
            target_steps: a new target, at least the steps made. None keeps the old one, as for what follows.
            log_to: new loggers, needed where the old ones are objects of a script.
            callbacks: new callbacks, needed where the old ones contain user-defined objects; those with the same
                arguments as before restore their state.
            data: paths of the data sets that the run learns from, in the order of ``config.json``, where ``scheme`` is
                None. Those that ``config.json`` names are not opened, as a run folder may come from anybody.

        Raises:
            DatasetError: a data set of ``data`` cannot be read.
            MetricsError: the metrics that the run would append to are damaged.
            ValueError: ``data`` is given beside a scheme, or ``target_steps`` is too small; nothing is changed.
            CheckpointError: there is no checkpoint, it is damaged, or it is from another composition.
            CompositionError: the composition, or a logger, cannot be built from ``config.json`` alone.
            RunInUseError: another process is training the run.
        """
        folder, paths = RunFolder(log_dir), [os.fspath(one) for one in data]
        config = folder.read_config()
        # Damaged ones are refused here, before the run trains up to its next record.
        records = read_metrics(folder.metrics_file) if folder.metrics_file.exists() else []
        directories = storage_paths.directories_of(config if scheme is None else scheme.config)
        with (
            missing_modules_named(config),
            RunLock(folder.path, directories.values()) as lock,
            resumed_run(folder, config, scheme, target_steps, log_to, callbacks, paths) as run,
        ):
            learner, scheme, at = cls.__new__(cls), run.scheme, run.scheme.steps
            writers = make_writers(run.loggers, folder.path, run.config, resumed_at=at)
            learner._prepare(scheme, folder, run.config, writers, lock, run.callbacks, resumed_at=at)
            learner._needs_scheme = not run.is_from_config
            with as_checkpoint_error(run.file):
                learner._loop.load_state_dict(run.learner_state)
            folder.write_config(run.config)
            run.quarantine_damaged(folder.checkpoint_file)
            notices.report_lost_metrics(folder.metrics_file, records, learner.get_metrics())
            notices.report_cut_episodes(learner, run.cut_short)
        return learner

    @classmethod
    def repeat(
        cls,
        run: _Path,
        log_dir: _Path,
        *,
        seed: int | None = None,
        target_steps: int | None = None,
        device: torch.device | str | None = None,
        log_to: Sequence[Logger] | None = None,
        callbacks: Sequence[Callback | Callable[["Learner"], object]] | None = None,
        data: Sequence[_Path] = (),
    ) -> "Learner":
        """Return a learner that begins a new run with the configuration of another, such as with another seed.

        Of the other run, only ``config.json`` is read. With its seed, code, versions and number of threads, a
        reproducible scheme repeats it bit for bit. Storages on disk begin empty, and weights of :func:`start_from` are
        left out.

        Args:
            run: the folder of the run that is repeated.
            log_dir: the folder of the new run.
            seed: of the new run; None takes the old one's, as for all that follow.
            target_steps: its number of steps.
            device: of networks and batches.
            log_to: as in :meth:`resume`.
            callbacks: as in :meth:`resume`.
            data: as in :meth:`resume`.

        Raises:
            CheckpointError: ``run`` is no run folder, or its ``config.json`` is damaged.
            CompositionError: the composition, or a logger, cannot be built from ``config.json`` alone.
            DatasetError: a data set of ``data`` cannot be read.
            DeviceError: there is no such device.
            FileExistsError: ``log_dir`` holds a run already.
        """
        paths = [os.fspath(path) for path in data]
        with repeated_run(RunFolder(run), Path(log_dir), seed, device, log_to, callbacks, paths) as parts:
            target = parts.target_steps if target_steps is None else target_steps
            learner = cls(parts.scheme, target, log_dir, **parts.settings)
            learner._saver.set_interval(parts.checkpoint_every)
        return learner

    @answering_calls(_answer_run)
    def run(self, *, checkpoint_every: int | None = None, progress: bool = True) -> bool:
        """Train until the target is reached; then save a checkpoint and plot the learning curve.

        Progress is shown in a terminal, and elsewhere printed each minute and after each tenth of the run. Ctrl-C or
        SIGTERM ends training after the current step, or during an evaluation, saves a checkpoint and prints how to
        resume; a second Ctrl-C stops at once. A checkpoint is also saved after an exception, unless an update raised
        it: the resumed run then repeats the failed step, and notes on the exception say how to resume. A run without
        any update after a minute says why.

        Args:
            checkpoint_every: steps between checkpoints. None keeps the interval of the run that was resumed; if there
                is none, a checkpoint is saved every ten minutes and at the end.
            progress: False prints neither progress nor, at the end, the best return and what can be done with the run.

        Returns:
            Whether the target was reached.
        """
        self._saver.set_interval(checkpoint_every)
        self.stop_reason, self.was_interrupted = None, False
        if progress and 0 < self.scheme.steps < self.target_steps:
            tell(f"Continuing at {self.scheme.steps:,} of {self.target_steps:,} {self.scheme.unit}")
        if first_update := notices.of_first_update(self.scheme, self.target_steps, self.log_every):
            tell(first_update)
        if progress:
            notices.report_threads(self.scheme)
        with self._interruption, worker_signals().held_back():
            try:
                self._lock.check()
                self._folder.forget_error()
                if self._stores_on_disk and not self._folder.checkpoint_file.exists():
                    # A run that is killed before the next one begins again without what it has stored since.
                    self.save_checkpoint()
                self._callbacks.call("on_run_begin", self)
                self._train(progress)
                self._loop.end_watch(is_told=first_update is not None)
                self._callbacks.call("on_run_end", self)
            except Exception as error:
                # Any exception, since it is raised again: the training progress must not be lost.
                save = None if self._loop.is_updating else self.save_checkpoint
                self._saver.save_after(error, save, self.target_steps, self._how_to_save, self._how_to_continue)
                raise
            self.save_checkpoint()
            draw_curve(self.log_dir, self.curve_file, self.get_metrics())
            self.was_interrupted = self.is_interrupted()
        if not self.done() or self._loop.at.evaluation_is_due:
            stopped = notices.of_early_end(self.scheme, self.target_steps, self.stop_reason)
            tell(f"{stopped}; continue {self._how_to_continue()}")
        elif progress:
            notices.tell_end(self, self._loop.at.best_return, self._next_commands())
        return self.done()

    def _train(self, progress: bool) -> None:
        self._saver.start_clock()
        self._loop.watch_for_updates()
        title = f"{self.scheme.config['algorithm']['name']} in {self.log_dir}"
        with ProgressDisplay(
            self.target_steps,
            title,
            self.scheme.steps,
            unit=self.scheme.unit,
            best_return=self._loop.at.best_return,
            is_shown=progress,
        ) as display:
            while not self._loop.has_ended() and not self.is_interrupted() and self.stop_reason is None:
                before = self.scheme.steps
                with self._loop.pausing(partial(self._has_to_save, before)):
                    self.step()
                display.update(self.scheme.steps, self._measurements.latest)
                # The last checkpoint is saved after the last evaluation.
                if self._has_to_save(before) and not self.done():
                    self.save_checkpoint()
            if self.done():
                self._loop.finish_run()
                display.update(self.scheme.steps, self._measurements.latest)

    def _has_to_save(self, before: int) -> bool:
        """Whether a checkpoint is due since a number of steps; each holds at least a step more than the one before."""
        return self.scheme.steps > before and self._saver.is_due(before)

    @property
    def _stores_on_disk(self) -> bool:
        return bool(storage_paths.directories_of(self.scheme.config))

    def step(self) -> None:
        """Collect until an update is due, make it, and log and evaluate if they are due.

        After Ctrl-C or SIGTERM in :meth:`run`, which interrupt it at any environment step, the next call continues.
        """
        self._loop.step()

    def stop(self, reason: str) -> None:
        """End :meth:`run` after the current step, for a reason that is printed, and save a checkpoint."""
        if not reason:
            raise ValueError("Learner.stop: give a reason, which is printed after the word 'because'")
        self.stop_reason = reason

    def is_interrupted(self) -> bool:
        """Whether Ctrl-C or SIGTERM has asked the present :meth:`run` to stop; False outside of it."""
        return self._interruption.is_requested()

    def done(self) -> bool:
        """Whether the target is reached."""
        return self.scheme.steps >= self.target_steps

    @property
    def is_complete(self) -> bool:
        """Whether the target is reached, and the updates, the evaluation and the callbacks that were due there made."""
        return self._loop.has_ended() and not self._loop.has_more_due

    @answering_calls(_answer_evaluate)
    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """Run test episodes now and return their results, which the run does not log.

        Metrics, best weights, callbacks and the state of the test environments are unchanged. Without ``episodes``,
        there are the algorithm's ``num_test_episodes``; its ``test_every`` makes evaluations that belong to the run.

        Raises:
            CompositionError: there are no test environments.
            EvaluationStoppedError: Ctrl-C or SIGTERM during :meth:`run`.
            ValueError: ``episodes`` is not an int of at least 1.
        """
        number = self.scheme.algorithm.num_test_episodes if episodes is None else positive("episodes", episodes)
        with self._loop.timer.part("evaluate"):
            return self.scheme.evaluate_apart(number, self.is_interrupted)

    @property
    def policy(self) -> TrainedPolicy:
        """The policy with its present weights, without learning: ``learner.policy(observation)``.

        It is what :func:`load_policy` would return, at the beginning of an episode at each access; a callback measures
        with it what the evaluations of the run do not.
        """
        allow_nonfinite = getattr(self.scheme.storage, "allow_nonfinite", False)
        return TrainedPolicy(
            self.scheme.algorithm,
            allow_nonfinite=allow_nonfinite,
            action_names=self.scheme.action_names,
            action_wrappers=action_wrappers_of(self.scheme.config),
        )

    def use_best_weights(self) -> None:
        """Load the actor's weights of the best evaluation; raises CheckpointError before the first."""
        best = checkpoint.load(self._folder.best_weights_file, checkpoint.BEST_WEIGHTS)
        self.scheme.algorithm.set_weights(best["weights"])
        self._saver.note_weights_of(best["steps"])

    def start_from(self, run: _Path) -> list[str]:
        """Initialise the networks of a run that has not begun from another; see :func:`start_from`."""
        taken = start_from(self.scheme, run)
        self._folder.write_config(self._folder.read_config() | {STARTED_FROM: self.scheme.config[STARTED_FROM]})
        return taken

    def explain(self) -> Explanation:
        """Return why no update is due or was made, and what the run waits for; ``print`` shows it as sentences."""
        return self._loop.explain()

    def get_metrics(self) -> dict[str, float]:
        """Return the latest value of each metric, and "steps" and "seconds"."""
        return dict(self._measurements.latest)

    @answering_calls(_answer_log, by_name=False)
    def log(self, metrics: Mapping[str, float]) -> None:
        """Log further metrics, in ``metrics.jsonl`` and all loggers of the run.

        Args:
            metrics: numbers by name; a slash in a name makes a group: "mine/number".
        """
        self._measurements.write_of_user(self.scheme.steps, self._loop.at.seconds, metrics)

    def log_histograms(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Log histograms of values, in the loggers that support them: TensorBoard and wandb."""
        self._measurements.write_histograms(self.scheme.steps, values)

    def log_video(self, name: str, path: _Path) -> None:
        """Log a video, a file that ends in ".mp4" or ".gif", in the loggers that support it: wandb."""
        self._measurements.write_video(self.scheme.steps, name, Path(path))

    @property
    def wandb_run(self) -> "wandb.Run | None":
        """The wandb run that is logged to, for images and tables; None without one.

        ``learner.wandb_run.log({"name": wandb.Image(array), "steps": learner.scheme.steps})``
        """
        return self._measurements.wandb_run

    @property
    def seconds_of_parts(self) -> dict[str, float]:
        """Seconds that this process has spent in "collect", "update", "evaluate" and "save"."""
        return self._loop.timer.seconds

    def print_info(self) -> None:
        """Print the run's progress and latest returns in one line."""
        tell(notices.of_progress(self.scheme, self.target_steps, self._measurements.latest))

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

        A composition with functions of a script is resumed from it: ``Learner.resume(log_dir, scheme=scheme)``.
        """
        factories = self.scheme.factories
        modules = modules_of(factories, self._callbacks.all) or ()
        return resume_command(self._folder.path, modules, data_sets_of(factories))

    def save_checkpoint(self) -> Path:
        """Write a checkpoint to the run folder atomically; returns the file. Refused while updates are being made."""
        if self._loop.is_updating:
            raise RuntimeError(
                "Learner.save_checkpoint: updates are being made, or were interrupted by an exception; the run could "
                "not resume exactly from their middle. Callbacks save in on_step, after the updates"
            )
        with self._loop.timer.part("save"):
            self._lock.check()
            self._saver.save(self._loop.state_dict())
        self._callbacks.call("on_checkpoint", self, self._folder.checkpoint_file)
        return self._folder.checkpoint_file

    def save_policy(self, path: _Path, **numbers: float) -> Path:
        """Save only the policy, and further numbers, for :func:`load_policy`; returns the file."""
        file = Path(path)
        self._saver.save_policy(file, numbers)
        return file

    def close(self) -> None:
        """Close the environments and loggers, and release the lock of the run folder."""
        try:
            close_all([self.scheme, self._measurements, self._saver])
        finally:
            self._lock.release()

    def _prepare(
        self,
        scheme: Scheme,
        folder: RunFolder,
        config: Mapping[str, Any],
        writers: Sequence[MetricsWriter],
        lock: RunLock,
        callbacks: Callbacks,
        resumed_at: int | None = None,
    ) -> None:
        self.scheme = scheme
        self.target_steps: int = config["target_steps"]
        self.log_every: int = config["log_every"]
        self._folder, self._lock, self._callbacks = folder, lock, callbacks
        self._saver = RunSaver(folder, lock, scheme, config, resumed_at)
        self._measurements = Measurements(MetricsFile(folder.metrics_file, resumed_at), writers, lock.check)
        self._own_loggers = own_loggers(config)
        self._interruption = Interruption()
        self._loop = TrainingLoop(self, callbacks, self._measurements, self._interruption, folder.best_weights_file)

    if not TYPE_CHECKING:  # for which each name would exist
        __getattr__ = answer_missing

    def _next_commands(self) -> Mapping[str, str]:
        factories, needs_scheme = self.scheme.factories, self._needs_scheme
        return next_commands(self.log_dir, factories, self._callbacks.all, self.target_steps, needs_scheme=needs_scheme)

    def _how_to_continue(self) -> str:
        return how_to_continue(
            self._folder.path,
            self.scheme.factories,
            self._callbacks.all,
            self._own_loggers,
            needs_scheme=self._needs_scheme,
        )
