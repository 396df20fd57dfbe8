"""Results of the combinations of a sweep: a table, a file and curves."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.comparison import compare_groups
from pytorchrl.comparison.notes import not_finite
from pytorchrl.comparison.scores import common_metric, scores_of
from pytorchrl.comparison.tables import Table, csv_of, figures_of, print_table, tables_of
from pytorchrl.logging.curves import Run
from pytorchrl.logging.groups import named_groups
from pytorchrl.logging.pictures.panels import Choice, draw_groups
from pytorchrl.logging.pictures.plots import save_figure
from pytorchrl.logging.run_search import read_runs
from pytorchrl.terminal import tell
from storages.persistent.log.files import write_atomically

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
    for note in not_finite(results, comparison.score):
        tell(f"- {note}")
    records = [{**values[result.name], "seeds": result.seeds, **figures_of(result)} for result in results]
    write_atomically(log_dir / _RESULTS, csv_of(records).encode())
    tell(f"Table: {log_dir / _RESULTS}")
    tell(f"Learning curves: {save_figure(draw_groups(groups, Choice()), log_dir / _PICTURE)}")
