"""Learning curves as pictures: return over environment steps, runs of one composition together with their spread."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from pytorchrl.logging.metrics_file import read_metrics

_GRID_POINTS = 200
_SMOOTHED_RECORDS = 10


@dataclass(frozen=True)
class _Curve:
    steps: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class _Run:
    folder: Path
    config: dict[str, Any]
    test: _Curve
    train: _Curve

    @property
    def main(self) -> _Curve:
        """Evaluations where there are any, else the returns of training."""
        return self.test if len(self.test.steps) else self.train


def plot_runs(run_folders: Sequence[Path], output: Path) -> Path:
    """Draw the learning curves of some runs into a PNG file.

    The evaluations make the line, the smoothed returns of training episodes a faint one behind it. Runs that differ in
    nothing but their seed make one line, their mean, within a band of one standard deviation.

    Args:
        run_folders: folders that hold ``metrics.jsonl`` (and ``config.json``, for the legend).
        output: where the picture goes.

    Returns:
        ``output``.

    Raises:
        FileNotFoundError: a folder holds no metrics.
        ValueError: a run has not measured any return yet, or no run was named.
    """
    if not run_folders:
        raise ValueError("no run folder was named; there is nothing to plot")
    groups: dict[str, list[_Run]] = {}
    for folder in run_folders:
        run = _read(Path(folder))
        groups.setdefault(_composition(run), []).append(run)

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    labels = _labels([runs[0] for runs in groups.values()])
    for number, (runs, label) in enumerate(zip(groups.values(), labels, strict=True)):
        _draw(axes, runs, label, f"C{number}")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return per episode")
    axes.set_title(_title([run for runs in groups.values() for run in runs]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_suffix(".partial.png")
    figure.savefig(partial)
    partial.replace(output)
    return output


def _draw(axes: Axes, runs: Sequence[_Run], label: str, color: str) -> None:
    if len(runs) > 1:
        _draw_group(axes, runs, f"{label} ({len(runs)} runs)", color)
        return
    run = runs[0]
    evaluated = run.main is run.test
    if evaluated and len(run.train.steps):
        smooth = _smoothed(run.train.values)
        axes.plot(run.train.steps, smooth, color=color, alpha=0.3, linewidth=1, label=f"{label}, training")
    suffix = ", evaluation" if evaluated else ", training"
    values = run.main.values if evaluated else _smoothed(run.main.values)
    axes.plot(run.main.steps, values, color=color, marker="o" if evaluated else "", markersize=4, label=label + suffix)


def _draw_group(axes: Axes, runs: Sequence[_Run], label: str, color: str) -> None:
    first = max(run.main.steps[0] for run in runs)
    last = min(run.main.steps[-1] for run in runs)
    grid = np.linspace(first, max(first, last), _GRID_POINTS)
    curves = np.stack([np.interp(grid, run.main.steps, run.main.values) for run in runs])
    mean, spread = curves.mean(axis=0), curves.std(axis=0)
    axes.plot(grid, mean, color=color, label=label)
    axes.fill_between(grid, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)


def _read(folder: Path) -> _Run:
    metrics_file = folder / "metrics.jsonl"
    if not metrics_file.is_file():
        raise FileNotFoundError(f"{folder} is not a run folder: it has no {metrics_file.name}")
    records = read_metrics(metrics_file)
    test, train = _curve(records, "test/return"), _curve(records, "train/return")
    if not len(test.steps) and not len(train.steps):
        raise ValueError(f"{folder} has not measured a return yet: no episode has ended, no evaluation was made")
    config_file = folder / "config.json"
    return _Run(folder, json.loads(config_file.read_text()) if config_file.is_file() else {}, test, train)


def _curve(records: Sequence[dict[str, float]], name: str) -> _Curve:
    points = [(record["steps"], record[name]) for record in records if np.isfinite(record.get(name, np.nan))]
    steps, values = np.array(points, np.float64).reshape(-1, 2).T
    return _Curve(steps, values)


def _composition(run: _Run) -> str:
    if not run.config:
        return str(run.folder)
    return json.dumps({key: value for key, value in run.config.items() if key != "seed"}, sort_keys=True)


def _name(config: dict[str, Any], part: str) -> str | None:
    name: str | None = config.get(part, {}).get("name")
    return name


def _environment(config: dict[str, Any]) -> str:
    env = config.get("train_envs", {}).get("hyper_parameters", {}).get("env", "")
    return env if isinstance(env, str) else str(env.get("callable", ""))


def _labels(runs: Sequence[_Run]) -> list[str]:
    """The algorithm's name, more where that does not tell the runs apart."""
    for parts in (("algorithm",), ("algorithm", "storage")):
        labels = [" + ".join(filter(None, (_name(run.config, part) for part in parts))) for run in runs]
        if all(labels) and len(set(labels)) == len(labels):
            return labels
    return [run.folder.name for run in runs]


def _title(runs: Sequence[_Run]) -> str:
    environments = dict.fromkeys(filter(None, (_environment(run.config) for run in runs)))
    algorithms = dict.fromkeys(filter(None, (_name(run.config, "algorithm") for run in runs)))
    if environments and algorithms:
        return f"{', '.join(algorithms)} on {', '.join(environments)}"
    return ", ".join(run.folder.name for run in runs)


def _smoothed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each value and those just before it."""
    window = min(_SMOOTHED_RECORDS, len(values))
    sums = np.cumsum(np.concatenate([np.zeros(1), values]))
    starts = np.maximum(np.arange(1, len(values) + 1) - window, 0)
    smooth: NDArray[np.float64] = (sums[1:] - sums[starts]) / (np.arange(1, len(values) + 1) - starts)
    return smooth
