"""The loop a user starts, steps, stops and resumes."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchrl.experiments import checkpoint
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.composition import differences, scheme_from_config
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.experiments.training_metrics import TrainingMetrics
from pytorchrl.logging import MetricsFile, MetricsWriter, ProgressDisplay, make_writers, plot_runs
from pytorchrl.scheme.evaluation import Evaluation
from pytorchrl.scheme.scheme import Scheme


class Learner:
    """Trains a scheme to a number of environment transitions, measures it, and keeps the run in a folder.

    Args:
        scheme: what collects and learns.
        target_steps: environment transitions to train for, those before a resume included.
        log_dir: the run folder, which must not hold a run yet.
        log_to: where metrics go beside ``metrics.jsonl``: "wandb", "tensorboard".
        log_every: environment transitions between log records.

    Raises:
        FileExistsError: ``log_dir`` holds a run already.
        ValueError: ``target_steps`` or ``log_every`` is not positive, or ``log_to`` names something unknown.
    """

    def __init__(
        self,
        scheme: Scheme,
        target_steps: int,
        log_dir: str | os.PathLike[str],
        *,
        log_to: Sequence[str] = (),
        log_every: int = 1_000,
    ) -> None:
        folder = RunFolder(log_dir)
        config = scheme.config | _settings(target_steps, log_to, log_every)
        writers = make_writers(log_to, folder.path, config)
        folder.create(config)
        self._prepare(scheme, folder, config, writers)

    @classmethod
    def resume(
        cls,
        log_dir: str | os.PathLike[str],
        *,
        scheme: Scheme | None = None,
        target_steps: int | None = None,
        log_to: Sequence[str] | None = None,
    ) -> "Learner":
        """A learner that continues from the last checkpoint of a run folder.

        Args:
            log_dir: the run folder.
            scheme: made as it was; None makes it of ``config.json``, which is possible where the composition holds no
                functions of the user's.
            target_steps: a new target, kept from then on; None keeps the old one.
            log_to: new places for metrics, kept from then on; None keeps the old ones.

        Raises:
            CheckpointError: there is no checkpoint, it is damaged, or of another composition.
            CompositionError: the composition cannot be made of ``config.json`` alone.
        """
        folder = RunFolder(log_dir)
        config = folder.read_config()
        state = checkpoint.load(folder.checkpoint_file)
        _refuse_other_composition(config if scheme is None else scheme.config, state["config"], folder)
        scheme = scheme or scheme_from_config(config)
        config |= _settings(
            config["target_steps"] if target_steps is None else target_steps,
            config["log_to"] if log_to is None else log_to,
            config["log_every"],
        )
        try:
            scheme.load_state_dict(state["scheme"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{folder.checkpoint_file} does not fit its own composition: {error}") from error
        if folder.metrics_file.exists():
            MetricsFile.truncate_after(folder.metrics_file, scheme.steps)
        learner = cls.__new__(cls)
        writers = make_writers(config["log_to"], folder.path, config, resumed_at=scheme.steps)
        learner._prepare(scheme, folder, config, writers)
        learner._load_state_dict(state["learner"])
        folder.write_config(config)
        return learner

    # The loop

    def run(self, checkpoint_every: int | None = None) -> bool:
        """Train to the target, showing progress where the output is a terminal; then draw the curve and save.

        Ctrl-C ends it after the running step, saves a checkpoint and says how to resume; a second one stops at
        once.

        Args:
            checkpoint_every: environment transitions between checkpoints; None saves one at the end alone.

        Returns:
            Whether the target was reached.
        """
        with self._interruption as interruption, self._display() as display:
            while not self.done() and not interruption.is_requested():
                before = self.scheme.steps
                self.step()
                display.update(self.scheme.steps, self._metrics)
                if checkpoint_every and _crossed(checkpoint_every, before, self.scheme.steps):
                    self.save_checkpoint()
            if self.done() and self._evaluated_at != self.scheme.steps and self.scheme.algorithm.test_every:
                self.evaluate()
                display.update(self.scheme.steps, self._metrics)
        self.save_checkpoint()
        self._draw_curve()
        if not self.done():
            print(f"Stopped at {self.scheme.steps:,} of {self.target_steps:,} steps; continue with")
            print(f"  {self.resume_command}")
        return self.done()

    def step(self) -> None:
        """Collect until an update is due, make it, and log and evaluate where their time has come."""
        started = time.perf_counter()
        scheme, before = self.scheme, self.scheme.steps
        episodes, phases_due = scheme.collect(self.target_steps, stopped=self._interruption.is_requested)
        scheme.set_progress(self.target_steps)
        self._training.add_episodes(episodes)
        for _ in range(phases_due):
            for info in scheme.update():
                self._training.add_update(info)
        self._seconds += time.perf_counter() - started
        if _crossed(self.log_every, before, scheme.steps) or self.done():
            self._log_training()
        test_every = scheme.algorithm.test_every
        if test_every and _crossed(test_every, before, scheme.steps):
            self.evaluate()

    def done(self) -> bool:
        """Whether the target is reached."""
        return self.scheme.steps >= self.target_steps

    def evaluate(self, episodes: int | None = None) -> Evaluation:
        """Run test episodes now and log their mean return; None takes the algorithm's number of them."""
        evaluation = self.scheme.evaluate(episodes or self.scheme.algorithm.num_test_episodes)
        self._evaluated_at = self.scheme.steps
        self._log(evaluation.metrics)
        return evaluation

    # What came of it

    def get_metrics(self) -> dict[str, float]:
        """The latest value of everything measured, and "steps" and "seconds"."""
        return dict(self._metrics)

    def print_info(self) -> None:
        """Print where the run stands, in a line."""
        metrics = self._metrics
        shown = [f"{self.scheme.steps:,} of {self.target_steps:,} steps"]
        for name, label in (("train/return", "train return"), ("test/return", "test return")):
            if name in metrics:
                shown.append(f"{label} {metrics[name]:.1f}")
        if "speed/steps_per_second" in metrics:
            shown.append(f"{metrics['speed/steps_per_second']:,.0f} steps/s")
        print(" | ".join(shown))

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
        """What to type to continue the run in a new process."""
        return shlex.join([_python(), "-m", "pytorchrl", "resume", str(self._folder.path)])

    def save_checkpoint(self) -> Path:
        """Write everything to the run folder, whole or not at all; returns the file."""
        state = {
            "config": self.scheme.config,
            "scheme": self.scheme.state_dict(),
            "learner": {
                "seconds": self._seconds,
                "evaluated_at": self._evaluated_at,
                "logged": self._logged,
                "metrics": self._metrics,
                "training": self._training.state_dict(),
            },
        }
        checkpoint.save(self._folder.checkpoint_file, state)
        return self._folder.checkpoint_file

    def close(self) -> None:
        """Close environments and logs."""
        self.scheme.close()
        for writer in self._writers:
            writer.close()

    # Inside

    def _prepare(
        self, scheme: Scheme, folder: RunFolder, config: Mapping[str, Any], writers: Sequence[MetricsWriter]
    ) -> None:
        self.scheme = scheme
        self.target_steps: int = config["target_steps"]
        self.log_every: int = config["log_every"]
        self._folder = folder
        self._file = MetricsFile(folder.metrics_file)
        self._writers = writers
        self._training = TrainingMetrics()
        self._interruption = Interruption()
        self._metrics: dict[str, float] = {}
        self._seconds = 0.0
        self._evaluated_at = -1
        self._logged = (0, 0.0)
        scheme.set_progress(self.target_steps)

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._seconds = state["seconds"]
        self._evaluated_at = state["evaluated_at"]
        self._logged = tuple(state["logged"])
        self._metrics = dict(state["metrics"])
        self._training.load_state_dict(state["training"])

    def _display(self) -> ProgressDisplay:
        title = f"{self.scheme.config['algorithm']['name']} in {self._folder.path}"
        return ProgressDisplay(self.target_steps, title, initial_steps=self.scheme.steps)

    def _log_training(self) -> None:
        steps, seconds = self._logged
        record = self._training.collect()
        if self._seconds > seconds:
            record["speed/steps_per_second"] = (self.scheme.steps - steps) / (self._seconds - seconds)
        self._logged = (self.scheme.steps, self._seconds)
        self._log(record)

    def _log(self, metrics: Mapping[str, float]) -> None:
        record = {"steps": self.scheme.steps, "seconds": self._seconds, **metrics}
        self._metrics |= record
        self._file.write(record)
        for writer in self._writers:
            writer.write(self.scheme.steps, metrics)

    def _draw_curve(self) -> None:
        # A short run may have ended no episode.
        if "train/return" in self._metrics or "test/return" in self._metrics:
            plot_runs([self._folder.path], self._folder.curve_file)


def _python() -> str:
    """What to type for the running interpreter: its name where the shell finds it, else its path."""
    executable = Path(sys.executable)
    if shutil.which(executable.name) == sys.executable:
        return executable.name
    if executable.is_relative_to(Path.cwd()):
        return str(executable.relative_to(Path.cwd()))
    return sys.executable


def _settings(target_steps: int, log_to: Sequence[str], log_every: int) -> dict[str, Any]:
    for name, value in (("target_steps", target_steps), ("log_every", log_every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"Learner: {name} must be an int from 1, got {value!r}")
    return {"target_steps": target_steps, "log_to": list(log_to), "log_every": log_every}


def _refuse_other_composition(ours: Mapping[str, Any], saved: Mapping[str, Any], folder: RunFolder) -> None:
    differing = differences(ours, saved)
    if differing:
        raise CheckpointError(
            f"{folder.checkpoint_file} is of another composition; {'; '.join(differing)}. Resume with the composition "
            f"it was saved with, or start a new run in another folder"
        )


def _crossed(interval: int, before: int, after: int) -> bool:
    """Whether a multiple of the interval lies in (before, after]."""
    return after // interval > before // interval
