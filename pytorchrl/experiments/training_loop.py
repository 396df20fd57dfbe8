"""The steps of a run: collection, updates, records of metrics, evaluations and callbacks."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import Callbacks, TrainingRun, is_due
from pytorchrl.experiments.explanation import Explanation, PhaseResult, explain
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.measurements import Measurements
from pytorchrl.scheme.evaluation import EvaluationStoppedError
from pytorchrl.terminal import tell

_SECONDS_WITHOUT_UPDATES = 60.0
"""Time without any update after which a run says why."""


@dataclass
class LoopState:
    """The training loop's state in checkpoints."""

    seconds: float = 0.0
    """Time spent collecting and updating."""
    settled_at: int = 0
    """Steps when updates were last due."""
    settled_before: int = 0
    """Steps when they were due the time before."""
    phases_due: int = 0
    """Update phases that are due and not made yet."""
    evaluated_at: int = -1
    """Steps at the last evaluation."""
    evaluation_is_due: bool = False
    best_return: float = -math.inf
    """Largest mean return of an evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; other keys are ignored."""
        for field in fields(self):
            setattr(self, field.name, state[field.name])


class LoopTimer:
    """Accumulates the time spent in named parts of a loop."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("collect", "update", "evaluate", "save"), 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Return a context manager whose duration is added to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by part, since the learner was made."""
        return dict(self._seconds)


class TrainingLoop:
    """Makes the steps of a run.

    Args:
        run: has the scheme, and is given to callbacks.
        callbacks: of the run.
        measurements: log the metrics.
        interruption: ends collection and evaluation early.
        best_weights_file: where the policy of the best evaluation is saved.
    """

    def __init__(
        self,
        run: TrainingRun,
        callbacks: Callbacks,
        measurements: Measurements,
        interruption: Interruption,
        best_weights_file: Path,
    ) -> None:
        self.at = LoopState()
        """The part of the loop that checkpoints hold."""
        self.timer = LoopTimer()
        self.is_updating = False
        """Whether updates are being made, or were interrupted by an exception."""
        self._run, self._callbacks, self._measurements = run, callbacks, measurements
        self._interruption, self._best_weights_file = interruption, best_weights_file
        self._last_phase: PhaseResult | None = None
        self._is_checkpoint_due: Callable[[], bool] | None = None
        """Ends the collection before the first update, which may take long."""
        self._explain_after = math.inf
        """Monotonic time at which a run without updates says why."""

    @contextmanager
    def pausing(self, is_checkpoint_due: Callable[[], bool]) -> Iterator[None]:
        """Within it, a step before the first update ends early where a checkpoint is due."""
        self._is_checkpoint_due = is_checkpoint_due
        try:
            yield
        finally:
            self._is_checkpoint_due = None

    def step(self) -> None:
        """Collect until an update is due, make it, and log and evaluate if they are due."""
        if self.at.evaluation_is_due or self._callbacks.are_due:
            self.finish_step()
            return
        if self.has_ended():
            return
        self._callbacks.call("on_step_begin", self._run)
        started = time.perf_counter()
        # After an exception between the two, a resumed run goes on with the updates that are due.
        if self.at.phases_due or self._collect():
            self._update()
            self.at.seconds += time.perf_counter() - started
            self._settle()
        else:
            self.at.seconds += time.perf_counter() - started

    def _collect(self) -> bool:
        """Collect until updates are due, or the target is reached; return whether it is so."""
        scheme, at = self._run.scheme, self.at
        stopped = self._interruption.is_requested if scheme.algorithm.updates else self._is_stopped
        with self.timer.part("collect"):
            episodes, phases_due = scheme.collect(self._run.target_steps, stopped=stopped)
        if not phases_due and not self._is_done():
            return False
        at.settled_before, at.settled_at, at.phases_due = at.settled_at, scheme.steps, phases_due
        scheme.set_progress(scheme.steps, self._run.target_steps)
        self._measurements.training.add_episodes(episodes, scheme.take_shaped_returns())
        if episodes:
            self._callbacks.call("on_episodes", self._run, episodes)
        if phases_due:
            self._callbacks.call("on_rollout", self._run)
        return True

    def _update(self) -> None:
        """Make the updates that are due."""
        scheme, phases = self._run.scheme, self.at.phases_due
        self.is_updating = phases > 0
        is_logged = is_due(self._run.log_every, self.at.settled_before, scheme.steps) or self._is_done()
        updates_before, batches, metrics = scheme.algorithm.updates, 0, dict[str, Any]()
        with self.timer.part("update"):
            for phase in range(phases):
                for metrics in scheme.update(measured=is_logged and phase == 0):
                    batches += 1
                    self._measurements.training.add_update(metrics)
                    self._callbacks.call("on_update", self._run, metrics)
        if phases:
            made = scheme.algorithm.updates - updates_before
            self._last_phase = PhaseResult(scheme.steps, phases, batches, made, metrics)
            if batches:
                self._explain_after = math.inf
        self.at.phases_due = 0
        self.is_updating = False

    def _settle(self) -> None:
        """Log and evaluate if they are due, after collection and updates, and call the callbacks."""
        steps, before, test_every = self._run.scheme.steps, self.at.settled_before, self._test_every
        self.at.evaluation_is_due = bool(test_every) and is_due(test_every, before, steps)
        if is_due(self._run.log_every, before, steps) or self._is_done():
            self._measurements.write_training(steps, self.at.seconds)
        self._callbacks.announce_step()
        self.finish_step()

    def finish_step(self) -> None:
        """Make the evaluation that is due, and call the callbacks that are due after it."""
        if self.at.evaluation_is_due:
            with suppress(EvaluationStoppedError):
                self._evaluate()
        if not self.at.evaluation_is_due:
            self._callbacks.call_due(self._run)

    def finish_run(self) -> None:
        """Make the last evaluation, unless the last step has made it, and call the callbacks."""
        self.at.evaluation_is_due |= bool(self._test_every) and self.at.evaluated_at != self._run.scheme.steps
        self.finish_step()

    def _evaluate(self) -> None:
        """Make an evaluation of the run: log it, keep the best weights, and call the callbacks."""
        scheme = self._run.scheme
        with self.timer.part("evaluate"):
            evaluation = scheme.evaluate(scheme.algorithm.num_test_episodes, self._interruption.is_requested)
        self.at.evaluated_at = scheme.steps
        self._measurements.write(scheme.steps, self.at.seconds, evaluation.metrics)
        if evaluation.mean_return > self.at.best_return:
            self.at.best_return = evaluation.mean_return
            self._run.save_policy(self._best_weights_file, test_return=evaluation.mean_return)
        # An exception of a callback must not repeat it.
        self.at.evaluation_is_due = False
        self._callbacks.call_evaluated(self._run, evaluation)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loop, its metrics and callbacks, as tensors and plain data."""
        self._measurements.begin()
        return {
            **self.at.state_dict(),
            **self._measurements.state_dict(),
            "gradients": self._run.scheme.algorithm.training.measurements(),
            "callbacks": self._callbacks.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self.at.load_state_dict(state)
        self._run.scheme.set_progress(self.at.settled_at, self._run.target_steps)
        self._measurements.load_state_dict(state)
        # Earlier versions saved none.
        self._run.scheme.algorithm.training.load_measurements(state.get("gradients", {}))
        self._callbacks.load_state_dict(state["callbacks"])

    def has_ended(self) -> bool:
        """Whether the target is reached, and the updates that were due there are made."""
        return self._is_done() and not self.at.phases_due

    @property
    def has_more_due(self) -> bool:
        """Whether an evaluation or callbacks of the last step are due."""
        return self.at.evaluation_is_due or self._callbacks.are_due

    def _is_done(self) -> bool:
        return self._run.scheme.steps >= self._run.target_steps

    @property
    def _test_every(self) -> int:
        return self._run.scheme.algorithm.test_every if self._run.scheme.can_evaluate else 0

    # Why nothing is learnt

    def explain(self) -> Explanation:
        """Return why no update is due, or why none was made, and what the run waits for."""
        return explain(
            self._run.scheme, self._run.target_steps, self.at.phases_due, self.has_more_due, self._last_phase
        )

    def watch_for_updates(self) -> None:
        """Say in a minute why no update was made, if that is so then."""
        if not self._run.scheme.algorithm.updates:
            self._explain_after = time.monotonic() + _SECONDS_WITHOUT_UPDATES

    def end_watch(self, is_told: bool) -> None:
        """Say at the end of a run why no update was made, unless that was told before."""
        if self._explain_after != math.inf and self._is_done() and not is_told:
            tell(self.explain())
        self._explain_after = math.inf

    def _is_stopped(self) -> bool:
        if time.monotonic() >= self._explain_after:
            self._explain_after = math.inf
            tell(self.explain())
        if self._is_checkpoint_due is not None and self._is_checkpoint_due():
            return True
        return self._interruption.is_requested()
