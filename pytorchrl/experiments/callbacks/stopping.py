"""Callbacks that stop a run."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, refuse_without_evaluations
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import Evaluation
from storages.component.annotations import Within
from storages.component.hyper_parameters import Count, UnitInterval

_SECONDS_PER_MINUTE = 60.0


@dataclass(eq=False)
class StopAtReturn(Callback):
    """Stops the run when evaluations reach a return.

    Args:
        mean_return: mean return of an evaluation, in the environments' own rewards.
        evaluations: number of consecutive evaluations that must reach it.
    """

    mean_return: float
    evaluations: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reached = 0

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Refuse a run that makes no evaluations."""
        refuse_without_evaluations(self, learner)

    def on_evaluation(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Count the evaluation, or reset the count."""
        self._reached = self._reached + 1 if evaluation.mean_return >= self.mean_return else 0
        if self._reached >= self.evaluations:
            self._reached = 0
            times = "" if self.evaluations == 1 else f" in {self.evaluations} evaluations"
            learner.stop(f"a mean return of {self.mean_return:g} was reached{times}: {evaluation.mean_return:g}")

    def state_dict(self) -> dict[str, Any]:
        """Return how many consecutive evaluations have reached it."""
        return {"reached": self._reached}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._reached = state["reached"]


@dataclass(eq=False)
class StopAtSuccess(Callback):
    """Stops the run when an evaluation reaches a success rate.

    Args:
        rate: share of successful episodes, from 0 to 1.
        info: key of the environment's info that is 1 for a success; must be in ``VecEnv(episode_infos=...)``.
    """

    rate: UnitInterval
    info: str = "is_success"

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Refuse a run that makes no evaluations."""
        refuse_without_evaluations(self, learner)

    def on_evaluation(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Stop if the rate was reached.

        Raises:
            ValueError: the environments do not report ``info``.
        """
        name = f"test/{self.info}"
        metrics = evaluation.metrics
        if name not in metrics:
            raise ValueError(
                f"StopAtSuccess: the environments report no {self.info!r} at the ends of episodes; add it to "
                f"VecEnv(episode_infos=...)"
            )
        if metrics[name] >= self.rate:
            learner.stop(f"a success rate of {self.rate:g} was reached: {metrics[name]:g}")


@dataclass(eq=False)
class StopAfter(Callback):
    """Stops the run after a time, or a number of training episodes, counted across resumes.

    Args:
        minutes: duration of :meth:`Learner.run`, including evaluations and checkpoints; None for no limit.
        episodes: number of finished training episodes; None for no limit.

    Raises:
        ValueError: neither is given.
    """

    minutes: Annotated[float, Within(0.0, open=True)] | None = None
    episodes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minutes is None and self.episodes is None:
            raise ValueError("StopAfter: give minutes or episodes, both are None")
        self._seconds, self._ended = 0.0, 0
        self._began: float | None = None

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Start measuring time."""
        # A run that an exception ended has not stopped measuring.
        self._seconds, self._began = self._measured(), time.monotonic()

    def on_episodes(self, learner: TrainingRun, episodes: Sequence[Episode]) -> None:
        """Count episodes."""
        self._ended += len(episodes)

    def on_step(self, learner: TrainingRun) -> None:
        """Stop if a limit is reached."""
        minutes = self._measured() / _SECONDS_PER_MINUTE
        if self.minutes is not None and minutes >= self.minutes:
            learner.stop(f"{minutes:.1f} minutes have passed")
        elif self.episodes is not None and self._ended >= self.episodes:
            learner.stop(f"{self._ended:,} episodes have ended")

    def on_run_end(self, learner: TrainingRun) -> None:
        """Stop measuring time."""
        self._seconds, self._began = self._measured(), None

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds and episodes so far."""
        return {"seconds": self._measured(), "episodes": self._ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._seconds, self._ended = state["seconds"], state["episodes"]

    def _measured(self) -> float:
        return self._seconds + (0.0 if self._began is None else time.monotonic() - self._began)


@dataclass(eq=False)
class PruneTrial(Callback):
    """Reports evaluations to an Optuna trial, and stops the run if its pruner decides so.

    After the run, the objective must call ``if callback.pruned: raise optuna.TrialPruned()``.

    Args:
        trial: an ``optuna.Trial``.
    """

    trial: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pruned = False
        """Whether the pruner stopped the run."""

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Refuse a run that makes no evaluations."""
        refuse_without_evaluations(self, learner)

    def on_evaluation(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Report the mean return."""
        self.trial.report(evaluation.mean_return, learner.scheme.steps)
        if self.trial.should_prune():
            self.pruned = True
            learner.stop("the trial was pruned")
