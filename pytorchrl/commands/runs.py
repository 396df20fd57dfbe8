"""Commands that list runs and show their evaluations."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pytorchrl.commands.shared import Run
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.logging import read_metrics
from pytorchrl.logging.curves import read_run
from pytorchrl.logging.tables.evaluation_table import as_csv, as_markdown, evaluations_of

_RUNS = Path("runs")
"""Where `ls` looks; it need not exist, as the first run makes it."""


def ls(path: tyro.conf.Positional[Path] = _RUNS) -> None:
    """List the runs in a folder and all folders below it, with the mean returns of training and evaluation.

    Args:
        path: where to look.
    """
    if not path.is_dir() and (path.exists() or path != _RUNS):
        what = "is no folder" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}; ls lists the runs in a folder: name one, or none for {_RUNS}")
    folders = sorted(file.parent for file in path.glob("**/config.json") if _is_run(file.parent))
    if not folders:
        print(f"There is no run in {path}.")
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # Only a long name is wrapped.
    table.add_column("run", overflow="fold")
    for column in ("algorithm", "environment", "seed", "steps", "train", "test"):
        table.add_column(column, justify="left" if column in ("algorithm", "environment") else "right", no_wrap=True)
    # A reason in a cell would take the width of the names.
    unreadable = []
    for folder in folders:
        try:
            table.add_row(*_row(folder, path))
        except (CheckpointError, OSError, ValueError) as error:
            unreadable.append(f"{folder.relative_to(path)} cannot be read: {error}")
    if table.row_count:
        Console().print(table)
    for reason in unreadable:
        print(reason)


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
        print(as_markdown(rows))
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(as_csv(rows) if output.suffix == ".csv" else as_markdown(rows) + "\n")
    print(output)


def _is_run(folder: Path) -> bool:
    """Whether a folder with a ``config.json``, which other programs write too, has another file of a run."""
    return any((folder / name).exists() for name in ("versions.json", "metrics.jsonl", "checkpoint.pt"))


def _row(folder: Path, path: Path) -> list[str]:
    """Return the row of a run.

    Raises:
        CheckpointError: its configuration cannot be read.
        MetricsError: its metrics are damaged.
    """
    config = RunFolder(folder).read_config()
    metrics: dict[str, float] = {}
    if (folder / "metrics.jsonl").exists():
        for record in read_metrics(folder / "metrics.jsonl"):
            metrics |= record
    env = ((config["train_envs"] or config["test_envs"] or {}).get("hyper_parameters") or {}).get("env", "")
    return [
        str(folder.relative_to(path)),
        str(config["algorithm"]["name"]),
        str(env["callable"]) if isinstance(env, dict) and "callable" in env else str(env),
        str(config["seed"]),
        f"{metrics.get('steps', 0):,.0f} of {config['target_steps']:,}",
        *(f"{metrics[key]:.1f}" if key in metrics else "" for key in ("train/return", "test/return")),
    ]
