"""``python -m pytorchrl sweep``: train a composition with every combination of some hyper-parameters, in processes."""

import argparse
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytorchrl.commands.options import dashed
from pytorchrl.commands.train import described_run
from pytorchrl.comparison import compare_groups
from pytorchrl.comparison.scores import common_metric, scores_of
from pytorchrl.comparison.tables import Table, csv_of, figures_of, print_table, tables_of
from pytorchrl.experiments.run_lock import RunInUseError, RunLock
from pytorchrl.logging.curves import Run
from pytorchrl.logging.groups import named_groups
from pytorchrl.logging.panels import Choice, draw_groups
from pytorchrl.logging.plots import save_figure
from pytorchrl.logging.run_search import read_runs
from pytorchrl.scheme.fitting import CompositionError
from storages.persistent.log.files import write_atomically

_SECONDS_TO_WAIT = 30.0
"""For a trial of a sweep that was killed: its process ends when it finds out."""
_RESULTS = "results.csv"
_PICTURE = "learning_curves.png"


@dataclass(frozen=True)
class Trial:
    """A combination of values, with a seed."""

    values: Mapping[str, str]
    seed: int
    folder: Path
    """Which holds the run, in ``seed-SEED``, and what it printed."""

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / f"seed-{self.seed}"

    @property
    def options(self) -> list[str]:
        """Options of ``train``."""
        return [f"--{name}={value}" for name, value in self.values.items()]


def sweep(arguments: Sequence[str]) -> None:
    """Train all trials that the arguments describe, those that have finished left out."""
    parser = _parser()
    given, of_train = parser.parse_known_args([dashed(argument) for argument in arguments])
    if not given.vary:
        parser.error("say what varies: --vary algorithm.lr 1e-3 3e-4")
    described = described_run(of_train)
    log_dir = given.log_dir or described.log_dir.with_name(f"sweep-{described.log_dir.name}")
    seeds = given.seeds or described.settings.get("seeds") or [1]
    trials = _trials(given.vary, seeds, log_dir)
    for trial in trials:
        # A value that does not fit is refused before any run is trained.
        described_run([*of_train, *trial.options])
    print(f"{len(trials)} runs in {log_dir}, {given.processes} at a time")
    try:
        failed = _train_all(trials, of_train, given.processes)
    except KeyboardInterrupt:
        print("Stopped; the same command goes on.")
        return
    _write_results(trials, log_dir)
    if failed:
        raise RuntimeError(f"{failed} of {len(trials)} runs failed; output.txt in their folders says why")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m pytorchrl sweep",
        usage="%(prog)s --algorithm NAME --env ID --vary NAME VALUES... [options of train]",
        description="Train a composition with every combination of some hyper-parameters.",
        epilog="All other options are those of train; see `python -m pytorchrl train --help`.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--vary",
        nargs="+",
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a hyper-parameter as in the options of train, without dashes before it, and its values",
    )
    parser.add_argument("--processes", type=int, default=1, metavar="INT", help="runs at a time (default: 1)")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="INT", help="of each combination (default: 1)")
    parser.add_argument("--log-dir", type=Path, metavar="FOLDER", help="of all runs (default: runs/sweep-...)")
    return parser


def _trials(vary: Sequence[Sequence[str]], seeds: Sequence[int], log_dir: Path) -> list[Trial]:
    for name, *values in vary:
        if not values:
            raise CompositionError(f"--vary {name} needs values: --vary {name} VALUE VALUE")
    names = [name.lstrip("-").replace("_", "-") for name, *_ in vary]
    combinations = [dict(zip(names, values, strict=True)) for values in itertools.product(*(v for _, *v in vary))]
    folders = [log_dir / _folder_name(values) for values in combinations]
    if len(set(folders)) < len(folders):
        raise CompositionError("two combinations of the sweep have the same name; give each value once")
    return [
        Trial(values, seed, folder)
        for values, folder in zip(combinations, folders, strict=True)
        for seed in dict.fromkeys(seeds)
    ]


def _folder_name(values: Mapping[str, str]) -> str:
    text = ",".join(f"{name}={value}" for name, value in values.items())
    return re.sub(r"[^\w.,=()+-]+", "_", text)


def _train_all(trials: Sequence[Trial], of_train: Sequence[str], processes: int) -> int:
    """Train trials in processes of their own; returns how many failed."""
    failed = 0
    with ThreadPoolExecutor(processes) as pool:
        runs = {pool.submit(_train, trial, of_train): trial for trial in trials}
        try:
            for number, run in enumerate(as_completed(runs), start=1):
                trial = runs[run]
                failed += run.result() != 0
                final = _final_return(trial)
                said = "failed" if run.result() else "no evaluation" if final is None else f"final return {final:.1f}"
                print(f"{number} of {len(trials)}: {trial.run}: {said}", flush=True)
        except BaseException:
            # Those that run have got the signal too, and end with a checkpoint.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return failed


def _train(trial: Trial, of_train: Sequence[str]) -> int:
    """Train a trial to its end, or go on with it; returns the exit status."""
    trial.folder.mkdir(parents=True, exist_ok=True)
    _wait_until_free(trial.run)
    command = [sys.executable, "-m", "pytorchrl", "train", *of_train, *trial.options]
    command += ["--seeds", str(trial.seed), "--log-dir", str(trial.folder), "--parent-process", str(os.getpid())]
    with (trial.folder / "output.txt").open("ab") as output:
        # A process for each core, rather than all cores for each process.
        environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
        return subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False).returncode


def _wait_until_free(run: Path) -> None:
    """Wait for a process of an earlier sweep to release a run folder; no longer than it may take."""
    if not run.exists():
        return
    until = time.monotonic() + _SECONDS_TO_WAIT
    while time.monotonic() < until:
        with suppress(RunInUseError):
            RunLock(run).release()
            return
        time.sleep(0.5)


def _final_return(trial: Trial) -> float | None:
    run = _measured(trial)
    return None if run is None else scores_of(run, common_metric([run])).final


def _measured(trial: Trial) -> Run | None:
    """The run of a trial; None where it has measured no return."""
    try:
        runs, _ = read_runs([trial.run])
    except (OSError, RuntimeError, ValueError):
        return None
    return runs[0]


def _write_results(trials: Sequence[Trial], log_dir: Path) -> None:
    """Show the final returns of each combination, the largest first, and write them into a file."""
    values = {trial.folder.name: trial.values for trial in trials}
    runs: dict[str, list[Run]] = {name: [] for name in values}
    for trial in trials:
        if (run := _measured(trial)) is not None:
            runs[trial.folder.name].append(run)
    groups = named_groups(runs)
    if not groups:
        print("No run has measured a return.")
        return
    comparison = compare_groups(groups)
    results = sorted(comparison.results, key=lambda result: -result.iqm.value)
    table, *_ = tables_of(replace(comparison, results=tuple(results), improvements=()))
    of_values = [list(values[result.name].values()) for result in results]
    rows = [[*of, *row[1:]] for of, row in zip(of_values, table.rows, strict=True)]
    print_table(Table(table.title, [*trials[0].values, *table.columns[1:]], rows))
    records = [{**values[result.name], "seeds": result.seeds, **figures_of(result)} for result in results]
    write_atomically(log_dir / _RESULTS, csv_of(records).encode())
    print(f"Table: {log_dir / _RESULTS}")
    print(f"Learning curves: {save_figure(draw_groups(groups, Choice()), log_dir / _PICTURE)}")
