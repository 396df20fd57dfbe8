"""``python -m pytorchrl sweep``: train a composition with several values of some hyper-parameters, in parallel."""

import argparse
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from pytorchrl.commands.composition.described_run import DescribedRun, described_run
from pytorchrl.commands.composition.description import check_settings
from pytorchrl.commands.composition.options import dashed
from pytorchrl.commands.shared import STOPPED, check_counts
from pytorchrl.commands.sweeps.search import Search, range_of
from pytorchrl.commands.sweeps.trials import Trial, ended_by_signals, folder_name, train
from pytorchrl.comparison import compare_groups
from pytorchrl.comparison.notes import behind, not_finite, unfinished
from pytorchrl.comparison.scores import common_metric, scores_of
from pytorchrl.comparison.tables import Table, figures_of, print_table, tables_of
from pytorchrl.experiments.runs.run_lock import RunInUseError
from pytorchrl.logging.curves import Run
from pytorchrl.logging.groups import named_groups
from pytorchrl.logging.pictures.curve_styles import Choice
from pytorchrl.logging.pictures.panels import draw_groups
from pytorchrl.logging.pictures.plots import save_figure
from pytorchrl.logging.run_search import read_runs
from pytorchrl.logging.tables.evaluation_table import csv_of
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.terminal import tell
from storages.files import write_atomically


def sweep(arguments: Sequence[str]) -> None:
    """Train all trials that the arguments describe, except those that have finished."""
    parser = _parser()
    given, of_train = parser.parse_known_args([dashed(argument) for argument in arguments])
    if not given.vary:
        parser.error("name a hyper-parameter to vary: --vary algorithm.lr 1e-3 3e-4")
    described = described_run(of_train, "sweep")
    log_dir = given.log_dir or described.sweep_folder
    seeds = check_settings({"seeds": given.seeds})["seeds"] or described.seeds
    vary = _varied(given.vary)
    ranges = [name for name, values in vary.items() if any(range_of(value) for value in values)]
    if ranges and given.trials is None:
        raise CompositionError(f"{ranges[0]} varies within a range; give the number of trials: --trials 20")
    check_counts(trials=given.trials, processes=given.processes)
    try:
        with ended_by_signals():
            if given.trials is None:
                failed, number = _train_all_combinations(
                    vary, seeds, log_dir, of_train, given.processes, is_dry=described.is_dry
                )
            else:
                failed, number = _search(vary, seeds, log_dir, of_train, given, described)
    except KeyboardInterrupt:
        tell("Stopped; run the same command again to continue.")
        raise SystemExit(STOPPED) from None
    if failed:
        raise RuntimeError(f"{failed} of {number} runs failed; output.txt in the folder of a trial says why")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m pytorchrl sweep",
        usage="%(prog)s --algorithm NAME --env ID --vary NAME VALUES... [options of train]",
        description="Train a composition with every combination of some hyper-parameters, or with values that Optuna "
        "chooses.",
        epilog="All other options are those of train; see `python -m pytorchrl train --help`.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a hyper-parameter as in the options of train, without dashes before it, and its values, or with --trials "
        "a range of numbers: 16..256, 0.9..0.999, 1e-5..1e-2:log",
    )
    parser.add_argument("--processes", type=int, default=1, metavar="INT", help="runs at a time (default: 1)")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="INT", help="seeds of each combination (default: 1)")
    parser.add_argument("--log-dir", type=Path, metavar="FOLDER", help="folder of all runs (default: runs/sweep-...)")
    parser.add_argument("--trials", type=int, metavar="INT", help="total number of combinations, which Optuna chooses")
    parser.add_argument("--sampler", choices=("tpe", "random"), default="tpe", help="Optuna's sampler (default: tpe)")
    parser.add_argument(
        "--no-prune", action="store_true", help="train all trials to the end, also those below the median of the others"
    )
    return parser


def _varied(vary: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    varied: dict[str, list[str]] = {}
    for given, *values in vary:
        name = given.lstrip("-").replace("_", "-")
        if not values:
            raise CompositionError(f"--vary {given} needs values: --vary {given} VALUE VALUE")
        if name in varied:
            raise CompositionError(f"--vary {name} is given twice; list all its values after one")
        varied[name] = values
    return varied


def _search(
    vary: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    log_dir: Path,
    of_train: Sequence[str],
    given: argparse.Namespace,
    described: DescribedRun,
) -> tuple[int, int]:
    """Train the trials that Optuna chooses; return how many failed, and how many there are."""
    notices: dict[str, None] = {}
    for name, values in vary.items():
        for value in values:
            between = range_of(value)
            if between is not None and len(values) > 1:
                raise CompositionError(f"--vary {name} mixes a range with other values; give one range, or only values")
            # A value that does not fit is refused before any run is trained.
            for end in (value,) if between is None else (between.low, between.high):
                notices |= dict.fromkeys(_checked([*of_train, f"--{name}={end}"]).notices)
    if not described.parts.algorithm.hyper_parameters.get("test_every"):
        raise CompositionError(
            "Optuna maximises the returns of evaluations; enable them by --algorithm.test-every 1000"
        )
    steps = described.parts.steps
    if described.is_dry:
        _tell_all(notices)
        tell(f"{given.trials} trials of {steps:,} steps in {log_dir}: not trained")
        return 0, 0
    search = Search(vary, log_dir, steps, seeds, prune=not given.no_prune, sampler=given.sampler)
    with contextlib.closing(search):
        _tell_all(notices)
        tell(f"{given.trials} trials in {log_dir}, {given.processes} at a time")
        failed = search.run(given.trials, of_train, given.processes)
        search.write_results()
    return failed, given.trials


def _train_all_combinations(
    vary: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    log_dir: Path,
    of_train: Sequence[str],
    processes: int,
    *,
    is_dry: bool,
) -> tuple[int, int]:
    """Train all combinations; return how many runs failed, and how many there are."""
    trials = _trials(vary, seeds, log_dir)
    notices: dict[str, None] = {}
    for trial in trials:
        # A value that does not fit is refused before any run is trained.
        notices |= dict.fromkeys(_checked([*of_train, *trial.options]).notices)
    _tell_all(notices)
    if is_dry:
        for trial in trials:
            tell(trial.folder)
        tell(f"{len(trials)} runs: not trained")
        return 0, 0
    tell(f"{len(trials)} runs in {log_dir}, {processes} at a time")
    failed = _train_all(trials, of_train, processes)
    write_results(trials, log_dir)
    return failed, len(trials)


def _checked(arguments: Sequence[str]) -> DescribedRun:
    """Describe a trial, and if it is only to be printed, check that its parts fit each other and the environment."""
    described = described_run(arguments, "sweep")
    if described.is_dry:
        described.check()
    return described


def _tell_all(notices: Iterable[str]) -> None:
    for notice in notices:
        tell(notice)


def _trials(vary: Mapping[str, Sequence[str]], seeds: Sequence[int], log_dir: Path) -> list[Trial]:
    combinations = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    folders = [log_dir / folder_name(values) for values in combinations]
    if len(set(folders)) < len(folders):
        raise CompositionError("two combinations of the sweep have the same folder name; give each value once")
    return [Trial(values, seed, folder) for values, folder in zip(combinations, folders, strict=True) for seed in seeds]


def _train_all(trials: Sequence[Trial], of_train: Sequence[str], processes: int) -> int:
    """Train each trial in a process of its own; return how many failed."""
    failed = 0
    with ThreadPoolExecutor(processes) as pool:
        runs = {pool.submit(train, trial, of_train): trial for trial in trials}
        try:
            for number, run in enumerate(as_completed(runs), start=1):
                trial = runs[run]
                try:
                    status = run.result()
                except RunInUseError as error:
                    tell(f"{number} of {len(trials)}: {error}")
                    continue
                failed += status not in (0, STOPPED)
                tell(f"{number} of {len(trials)}: {trial.run}: {_outcome(trial, status)}")
        except BaseException:
            # The running processes received the signal, and end with a checkpoint.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failed


def _outcome(trial: Trial, status: int) -> str:
    if status:
        return "stopped; the same command continues it" if status == STOPPED else "failed"
    final = final_return(trial)
    return "no evaluation" if final is None else f"final return {final:.1f}"


_RESULTS = "results.csv"
_PICTURE = "learning_curves.png"


def final_return(trial: Trial) -> float | None:
    """Return the final return of a trial's evaluations, else of its training episodes; None where none ended."""
    run = _measured(trial)
    return None if run is None else scores_of(run, common_metric([run])).final


def _measured(trial: Trial) -> Run | None:
    """Return the run of a trial; None where it has measured no return."""
    try:
        runs, _ = read_runs([trial.run])
    except (OSError, RuntimeError, ValueError):
        return None
    return runs[0]


def write_results(trials: Sequence[Trial], log_dir: Path) -> None:
    """Show the final returns of each combination, the largest first, and write them into a file."""
    values = {trial.folder.name: trial.values for trial in trials}
    runs: dict[str, list[Run]] = {name: [] for name in values}
    for trial in trials:
        if (run := _measured(trial)) is not None:
            runs[trial.folder.name].append(run)
    groups = named_groups(runs)
    if not groups:
        tell("No run has measured a return.")
        return
    comparison = compare_groups(groups)
    results = sorted(comparison.results, key=lambda result: -result.iqm.value)
    table, *_ = tables_of(replace(comparison, results=tuple(results), improvements=()))
    of_values = [list(values[result.name].values()) for result in results]
    rows = [[*of, *row[1:]] for of, row in zip(of_values, table.rows, strict=True)]
    print_table(Table(table.title, [*trials[0].values, *table.columns[1:]], rows))
    for note in (*not_finite(results, comparison.score), *unfinished(results)):
        tell(f"- {note}")
    records = [
        {**values[result.name], "seeds": result.seeds, **figures_of(result), "unfinished": len(behind(result))}
        for result in results
    ]
    write_atomically(log_dir / _RESULTS, csv_of(records).encode())
    tell(f"Table: {log_dir / _RESULTS}")
    tell(f"Learning curves: {save_figure(draw_groups(groups, Choice()), log_dir / _PICTURE)}")
