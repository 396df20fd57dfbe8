"""Commands that list runs and their evaluations."""

from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.commands.shared import Run
from pytorchrl.comparison.tables import Table, print_table
from pytorchrl.logging import read_metrics
from pytorchrl.logging.curves import read_config, read_run
from pytorchrl.logging.formats import counted
from pytorchrl.logging.groups import environment, shown_environment
from pytorchrl.logging.run_search import is_backup
from pytorchrl.logging.tables.evaluation_table import COLUMNS, as_csv, as_markdown, evaluations_of, texts_of
from pytorchrl.run_files import RunFiles
from pytorchrl.terminal import on_one_line, tell
from storages.files import refuse_link

_RUNS = Path("runs")
"""Where `ls` looks; it need not exist, as the first run makes it."""


def ls(path: tyro.conf.Positional[Path] = _RUNS) -> None:
    """List the runs in a folder and all folders below it, with the mean returns of training and evaluation.

    Runs that others replaced, in folders RUN.backup-NUMBER, are only counted, unless path is such a folder or in one.

    Args:
        path: where to look.
    """
    if not path.is_dir() and (path.exists() or path != _RUNS):
        what = "is no folder" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}; ls lists the runs in a folder: name one, or none for {_RUNS}")
    folders = sorted(file.parent for file in path.glob(f"**/{RunFiles(path).config_file.name}") if _is_run(file.parent))
    replaced = [folder for folder in folders if is_backup(folder.relative_to(path))]
    folders = [folder for folder in folders if folder not in replaced]
    if replaced:
        tell(f"Left out: {counted(len(replaced), 'run')} that others replaced, in folders such as {replaced[0]}")
    if not folders:
        tell(f"There is no run in {path}.")
        return
    rows, unreadable = [], []
    for folder in folders:
        try:
            rows.append(_row(folder, path))
        except (OSError, RuntimeError, ValueError) as error:
            # A reason in a cell would take the width of the names.
            unreadable.append(f"{folder.relative_to(path)} cannot be read: {error}")
    if rows:
        print_table(Table("", ["run", "algorithm", "environment", "seed", "steps", "train", "test"], rows, left=3))
    for reason in unreadable:
        tell(on_one_line(reason))


def evaluations(run: Run, output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None) -> None:
    """Show all evaluations of a run.

    Args:
        run: the run folder.
        output: a file that ends in .csv, or in .md; the terminal where left out.
    """
    if output is not None and output.suffix not in (".csv", ".md"):
        raise ValueError(f"evaluations are written to a file that ends in .csv or .md, got {output}")
    rows = evaluations_of(read_run(run).records)
    if output is None:
        if rows:
            print_table(Table("", list(COLUMNS), [texts_of(row) for row in rows], left=0))
        else:
            tell(f"{run} has made no evaluation.")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(as_csv(rows) if output.suffix == ".csv" else as_markdown(rows) + "\n")
    tell(output)


def _is_run(folder: Path) -> bool:
    """Whether a folder with a ``config.json``, which other programs write too, has another file of a run."""
    run = RunFiles(folder)
    return any(file.exists() for file in (run.versions_file, run.metrics_file, run.checkpoint_file))


def _row(folder: Path, path: Path) -> list[str]:
    """Return the row of a run.

    Raises:
        OSError: a file cannot be read.
        PersistenceError: a file is a symbolic link.
        ValueError: the configuration or the metrics are damaged.
    """
    run = RunFiles(folder)
    config = read_config(run)
    refuse_link(run.metrics_file)
    metrics: dict[str, float] = {}
    if run.metrics_file.exists():
        for record in read_metrics(run.metrics_file):
            metrics |= record
    try:
        algorithm, seed, target_steps = config["algorithm"]["name"], config["seed"], int(config["target_steps"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.config_file} is damaged: it holds no composition") from error
    return [
        str(folder.relative_to(path)),
        str(algorithm),
        shown_environment(environment(config)).partition("(")[0],
        str(seed),
        f"{metrics.get('steps', 0):,.0f} of {target_steps:,}",
        *(f"{metrics[key]:.1f}" if key in metrics else "" for key in ("train/return", "test/return")),
    ]
