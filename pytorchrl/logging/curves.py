"""Metrics of runs, as curves over steps, seconds or episodes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.metrics_file import read_metrics
from pytorchrl.run_files import RunFiles
from storages.files import read_text, refuse_link

XAxis: TypeAlias = Literal["steps", "seconds", "episodes"]
EVALUATION, TRAINING = "test/return", "train/return"
_EPISODES = "train/episodes"
SMOOTHED_SHARE = 0.1
"""Length of moving averages in figures, as a share of a curve."""
_MOST_SMOOTHED_POINTS = 500
"""Points of a curve of which the share is taken, at most."""
_WHAT_RETURNS_DEPEND_ON = ("env", "wrappers", "env_kwargs")


@dataclass(frozen=True)
class Curve:
    """Values over steps, seconds or episodes in non-decreasing order."""

    x: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.x)


NOTHING = Curve(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Run:
    """The configuration and the metrics in a run folder."""

    folder: Path
    config: Mapping[str, Any]
    """The composition, without the paths of storages and data sets; empty where unknown."""
    records: Sequence[Mapping[str, float]]
    """As :func:`read_metrics` returns them, in the order of their steps."""

    def curve(self, metric: str, x: XAxis = "steps") -> Curve:
        """Return the finite values of a metric."""
        at, values, _ = self._points(metric, x)
        return Curve(at, values)

    def smoothed(self, metric: str, x: XAxis = "steps", share: float = SMOOTHED_SHARE) -> Curve:
        """Return the moving average of a metric; values of training are weighted by the episodes of their records.

        Args:
            metric: its name.
            x: the axis.
            share: length of the average, as a share of the curve; of a curve of more than 500 points, of these.
        """
        at, values, episodes = self._points(metric, x)
        window = int(min(len(at), _MOST_SMOOTHED_POINTS) * share) // 2 * 2 + 1
        if window == 1:
            return Curve(at, values)
        kernel = np.ones(window)
        sums = np.convolve(values * episodes, kernel, mode="same")
        return Curve(at, sums / np.convolve(episodes, kernel, mode="same"))

    def evaluations(self, x: XAxis = "steps") -> Curve:
        """Mean returns of evaluations."""
        return self.curve(EVALUATION, x)

    def training(self, x: XAxis = "steps", share: float = SMOOTHED_SHARE) -> Curve:
        """Returns of training episodes, smoothed; empty where they are not comparable with those of evaluations."""
        if len(self.evaluations()) and not _returns_compare(self.config):
            return NOTHING
        return self.smoothed(TRAINING, x, share)

    def _points(self, metric: str, x: XAxis) -> NDArray[np.float64]:
        """Return positions, values, and numbers of episodes that these are means of, of shape (3, points)."""
        counted = metric.startswith("train/")
        found = [
            (at, record[metric], record.get(_EPISODES, 1.0) if counted else 1.0)
            for at, record in zip(_positions(self.records, x), self.records, strict=True)
            if np.isfinite(at) and np.isfinite(record.get(metric, np.nan))
        ]
        points = np.array(found, np.float64).reshape(-1, 3).T
        points[0] = np.maximum.accumulate(points[0])
        return points


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        FileNotFoundError: it holds no metrics.
        PersistenceError: a file of it is a symbolic link.
        ValueError: it has not measured anything yet, or holds a file that cannot be read.
    """
    run = RunFiles(folder)
    metrics_file = run.metrics_file
    refuse_link(metrics_file)
    if not metrics_file.is_file():
        if run.config_file.is_file():
            raise FileNotFoundError(f"{folder} has not measured anything yet: it has no {metrics_file.name}")
        what = "is not a run folder" if folder.exists() else "does not exist"
        raise FileNotFoundError(
            f"{folder} {what}: expected a folder with the {metrics_file.name} that a run writes into its log_dir"
        )
    records = read_metrics(metrics_file)
    if not records:
        raise ValueError(f"{metrics_file} is empty: the run has not logged anything yet")
    return Run(folder, read_config(run), _in_order(records))


def read_config(run: RunFiles) -> dict[str, Any]:
    """Return the configuration of a run, without the paths of storages and data sets; empty where there is none.

    Raises:
        PersistenceError: its file is a symbolic link.
        ValueError: it is damaged.
    """
    refuse_link(run.config_file)
    try:
        config = json.loads(read_text(run.config_file)) if run.config_file.is_file() else {}
        return without_places(_checked(config))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{run.config_file} is damaged: {error}") from error


def _in_order(records: Sequence[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Sort records by their steps; one whose steps are not finite follows the one before it."""
    at, keyed = 0.0, []
    for record in records:
        steps = record.get("steps", 0.0)
        at = steps if np.isfinite(steps) else at
        keyed.append((at, record))
    return [record for _, record in sorted(keyed, key=lambda pair: pair[0])]


def _positions(records: Sequence[Mapping[str, float]], x: XAxis) -> NDArray[np.float64]:
    """Return the positions of records on an axis, NaN where unknown."""
    if x == "episodes":
        episodes = np.nan_to_num([record.get(_EPISODES, 0.0) for record in records])
        return np.asarray(np.cumsum(episodes), np.float64)
    return np.array([record.get(x, np.nan) for record in records], np.float64)


def _checked(config: Any) -> dict[str, Any]:
    """Check that a configuration is a composition whose parts have hyper-parameters, and return it.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(config, dict):
        raise ValueError("it holds no composition")
    sources = config.get("sources") or {}
    if not isinstance(sources, dict):
        raise ValueError("its sources are not a mapping of names to storages")
    parts = {name: config.get(name) for name in ("algorithm", "storage", "train_envs", "test_envs")} | sources
    for name, part in parts.items():
        if part and not (isinstance(part, dict) and isinstance(part.get("hyper_parameters") or {}, dict)):
            raise ValueError(f"its {name} is not a class name with hyper-parameters")
    return config


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the paths of storages and data sets, which do not distinguish compositions."""
    changed: dict[str, Any] = {}
    if config.get("storage"):
        changed["storage"] = _without_place(config["storage"])
    if config.get("sources"):
        changed["sources"] = {name: _without_place(source) for name, source in config["sources"].items()}
    return {**config, **changed}


def _without_place(storage: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: value for name, value in (storage.get("hyper_parameters") or {}).items() if name != "directory"}
    return {name: value for name, value in storage.items() if name != "dataset"} | {"hyper_parameters": settings}


def _returns_compare(config: Mapping[str, Any]) -> bool:
    """Whether training and evaluations have the same environment and wrappers, so that returns are comparable."""
    train, test = ((config.get(part) or {}).get("hyper_parameters") for part in ("train_envs", "test_envs"))
    if train is None or test is None:
        return True
    # None and an empty value both mean that nothing was given.
    return all((train.get(name) or None) == (test.get(name) or None) for name in _WHAT_RETURNS_DEPEND_ON)
