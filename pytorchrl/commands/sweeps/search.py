"""Sweeps whose values Optuna chooses by the results of earlier trials."""

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from pytorchrl.commands.shared import STOPPED
from pytorchrl.commands.sweeps.trials import Claims, Trial, alone_in, train
from pytorchrl.comparison.tables import Table, print_table
from pytorchrl.experiments.runs.run_lock import RunInUseError
from pytorchrl.logging.tables.evaluation_table import csv_of
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.terminal import tell
from pytorchrl.version import install_command
from storages.files import write_atomically

if TYPE_CHECKING:
    import optuna
    import optuna.samplers

_STUDY_FILE = "study.db"
_RESULTS = "results.csv"
_STUDY = "sweep"
_VARIED = "varied"
"""Attribute of a study: what the sweep varies."""
_WARMUP = 0.25
"""Share of a run's steps before which it is not pruned."""
_FIRST_TRIALS = 5
"""Trials before any is pruned."""
_DATABASE_TIMEOUT_SECONDS = 60.0
"""How long a write waits for those of other processes."""


class Search:
    """Trains trials whose values Optuna chooses, several at a time, and resumes a study that was stopped.

    Several processes may share a study: each trains new trials, and unfinished ones that no other process trains.

    Args:
        vary: names with their values: a range, or several texts to choose among.
        log_dir: of the study and the runs.
        steps: of a whole run.
        seeds: with which each combination is trained; the first decides whether it is pruned.
        prune: end runs whose returns lie below the median of others at that point.
        sampler: "tpe", or "random".

    Raises:
        CompositionError: the folder holds a study that varies something else.
        RuntimeError: Optuna is not installed.
    """

    def __init__(
        self,
        vary: Mapping[str, Sequence[str]],
        log_dir: Path,
        steps: int,
        seeds: Sequence[int],
        *,
        prune: bool = True,
        sampler: str = "tpe",
    ) -> None:
        try:
            import optuna
        except ImportError as error:
            raise RuntimeError(
                'ranges and --trials need the package optuna; the extra "optuna" brings it: '
                f"{install_command('optuna')}"
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._vary, self._log_dir, self._steps, self._seeds = vary, log_dir, steps, seeds
        log_dir.mkdir(parents=True, exist_ok=True)
        with alone_in(log_dir):
            self._database = optuna.storages.RDBStorage(
                f"sqlite:///{log_dir / _STUDY_FILE}",
                engine_kwargs={"connect_args": {"timeout": _DATABASE_TIMEOUT_SECONDS}},
            )
            self._study = optuna.create_study(
                storage=self._database, study_name=_STUDY, direction="maximize", load_if_exists=True
            )
            varied = {name: list(values) for name, values in vary.items()}
            known = self._study.user_attrs.get(_VARIED, varied)
            if known != varied:
                self.close()
                raise CompositionError(
                    f"{log_dir} holds a study that varies {_format(known)}, this one varies {_format(varied)}; choose "
                    f"another --log-dir"
                )
            self._study.set_user_attr(_VARIED, varied)
        pruner = optuna.pruners.MedianPruner(_FIRST_TRIALS, int(_WARMUP * steps))
        self._study.pruner = pruner if prune else optuna.pruners.NopPruner()
        self._sampler, self._claims = sampler, Claims()
        self._lock, self._stopped = Lock(), Event()

    def run(self, trials: int, of_train: Sequence[str], processes: int) -> int:
        """Train until the study has this many trials; return how many failed.

        Args:
            trials: of the study in all, those of earlier calls included.
            of_train: options of ``train``.
            processes: how many trials at a time.
        """
        with ThreadPoolExecutor(processes) as pool:
            workers = [pool.submit(self._work, trials, of_train) for _ in range(processes)]
            try:
                for worker in as_completed(workers):
                    worker.result()
            except BaseException:
                # The running processes received the signal too, and end with a checkpoint.
                self._stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return sum(trial.state.name == "FAIL" for trial in self._study.trials)

    def write_results(self) -> None:
        """Show all trials, those with the largest returns first, and write them into a file."""
        found = [trial for trial in self._study.trials if len(trial.params) == len(self._vary)]
        if not found:
            tell("No trial has begun.")
            return
        found.sort(key=lambda trial: (trial.state.name != "COMPLETE", -(trial.value or 0.0)))
        records = [
            {
                "trial": self._folder(trial.number).name,
                "state": trial.state.name.lower(),
                **{name: trial.params[name] for name in self._vary},
                "final return": trial.value if trial.state.name == "COMPLETE" else "",
            }
            for trial in found
        ]
        columns = [name.rpartition(".")[2] for name in records[0]]
        rows = [[_short(value) for value in record.values()] for record in records]
        print_table(Table("Trials", columns, rows))
        write_atomically(self._log_dir / _RESULTS, csv_of(records).encode())
        tell(f"Table: {self._log_dir / _RESULTS}")

    def close(self) -> None:
        """Close the connections to the study's file."""
        self._database.remove_session()
        self._database.engine.dispose()

    def _work(self, trials: int, of_train: Sequence[str]) -> None:
        while not self._stopped.is_set() and (trial := self._next(trials)) is not None:
            self._train(trial, of_train)

    def _next(self, trials: int) -> "optuna.Trial | None":
        """Return an unfinished trial that no process trains, or a new one; None where there are enough."""
        with self._lock, alone_in(self._log_dir):
            trial = self._unfinished()
            if trial is None:
                if (number := len(self._study.trials)) >= trials:
                    return None
                self._study.sampler = self._sampler_of(number)
                trial = self._study.ask()
                self._claims.make(self._folder(trial.number))
            # For an unfinished trial, Optuna suggests the values that it already has.
            for name, values in self._vary.items():
                _suggest(trial, name, values)
            return trial

    def _unfinished(self) -> "optuna.Trial | None":
        """Return an unfinished trial that no process trains."""
        import optuna

        for one in self._study.trials:
            folder = self._folder(one.number)
            if one.state.is_finished() or self._claims.made_before(folder) or not self._claims.make(folder):
                continue
            # The process that trained it may have finished it since.
            if not self._study.trials[one.number].state.is_finished():
                return optuna.Trial(self._study, one._trial_id)
            self._claims.release(folder)
        return None

    def _sampler_of(self, number: int) -> "optuna.samplers.BaseSampler":
        """Return a sampler whose random numbers follow from a trial's number, in whichever process it is begun."""
        import optuna

        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        if self._sampler != "tpe":
            return optuna.samplers.RandomSampler(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

    def _train(self, trial: "optuna.Trial", of_train: Sequence[str]) -> None:
        try:
            self._train_claimed(trial, of_train)
        except RunInUseError as error:
            # Not by a search; the trial stays unfinished.
            tell(f"{self._folder(trial.number)}: {error}")
        finally:
            self._claims.release(self._folder(trial.number))

    def _train_claimed(self, trial: "optuna.Trial", of_train: Sequence[str]) -> None:
        runs = self._runs(trial)
        pruned = False
        reported = set(self._study.trials[trial.number].intermediate_values)

        def should_prune() -> bool:
            nonlocal pruned
            for steps, mean in runs[0].evaluations():
                if steps not in reported and not pruned:
                    reported.add(steps)
                    with self._lock:
                        trial.report(mean, steps)
                        pruned = trial.should_prune()
            return pruned

        status = 0
        for number, one in enumerate(runs):
            status = train(one, of_train, *([should_prune] if number == 0 else []))
            if status or pruned:
                break
        ended = partial(self._study.tell, trial.number)
        evaluations = [one.evaluations() for one in runs]
        with self._lock:
            if pruned:
                outcome, _ = "pruned", ended(state=_state("PRUNED"))
            elif status not in (0, STOPPED):
                outcome, _ = "failed", ended(state=_state("FAIL"))
            elif all(found and found[-1][0] >= self._steps for found in evaluations):
                final = sum(found[-1][1] for found in evaluations) / len(runs)
                outcome, _ = f"final return {final:.1f}", ended(final)
            else:
                # Its process was stopped; the trial goes on with the next call.
                outcome = "stopped"
            values = ", ".join(f"{name}={value}" for name, value in runs[0].values.items())
            tell(f"{self._folder(trial.number)} ({values}): {outcome}")

    def _runs(self, trial: Any) -> list[Trial]:
        values = {name: str(trial.params[name]) for name in self._vary}
        return [Trial(values, seed, self._folder(trial.number)) for seed in self._seeds]

    def _folder(self, number: int) -> Path:
        return self._log_dir / f"trial-{number}"


def _suggest(trial: "optuna.Trial", name: str, values: Sequence[str]) -> None:
    between = range_of(values[0]) if len(values) == 1 else None
    if between is None:
        trial.suggest_categorical(name, list(values))
    elif between.is_whole:
        trial.suggest_int(name, int(between.low), int(between.high), log=between.log)
    else:
        trial.suggest_float(name, between.low, between.high, log=between.log)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]


def _format(varied: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} {' '.join(values)}" for name, values in varied.items())


@dataclass(frozen=True)
class Range:
    """A closed interval of numbers: ``1e-5..1e-2:log``, ``16..256``."""

    low: float
    high: float
    log: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is a range of integers."""
        return isinstance(self.low, int)


def range_of(text: str) -> Range | None:
    """Parse a range; return None where the text is none.

    Raises:
        CompositionError: its ends are no numbers, or do not fit.
    """
    if ".." not in text:
        return None
    numbers, colon, scale = text.partition(":")
    try:
        ends = [_number(end) for end in numbers.split("..", 1)]
    except ValueError:
        raise CompositionError(f"{text!r} is no range of numbers, such as 1e-5..1e-2:log or 16..256") from None
    low, high = ends if all(isinstance(end, int) for end in ends) else map(float, ends)
    if not low < high or (colon and scale != "log") or (scale == "log" and low <= 0):
        raise CompositionError(
            f"{text!r} must go from a smaller number to a larger one, both above 0 with :log, such as 1e-5..1e-2:log"
        )
    return Range(low, high, scale == "log")


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
