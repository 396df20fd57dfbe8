"""What runs have measured, as curves over steps, and which of them belong together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.metrics_file import read_metrics
from storages.persistent.log.files import read_text

_SMOOTHED_PART = 10
_MOST_SMOOTHED_RECORDS = 50
_MOST_SETTINGS_IN_A_LABEL = 3
_WHAT_RETURNS_DEPEND_ON = ("env", "wrappers", "env_kwargs")
_NO_PART_OF_A_COMPOSITION = frozenset({"seed", "log_to", "log_every", "keep_checkpoints", "checkpoint_every"})


@dataclass(frozen=True)
class Curve:
    """Values over steps, which do not fall."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Run:
    """What a run folder holds of returns."""

    folder: Path
    config: Mapping[str, Any]
    test: Curve
    """Returns of evaluations."""
    train: Curve
    """Returns of training episodes, smoothed; empty where they are not to be compared with those of evaluations."""


def read_run(folder: Path) -> Run:
    """Read a run folder.

    Raises:
        FileNotFoundError: it holds no metrics.
        ValueError: it holds no return, or a file that cannot be read.
    """
    metrics_file, config_file = folder / "metrics.jsonl", folder / "config.json"
    if not metrics_file.is_file():
        what = "is not a run folder" if folder.exists() else "does not exist"
        raise FileNotFoundError(
            f"{folder} {what}: expected a folder with the {metrics_file.name} that a run writes into its log_dir"
        )
    records = read_metrics(metrics_file)
    if not records:
        raise ValueError(f"{metrics_file} is empty: the run has not logged anything yet")
    test, train = _curve(records, "test/return"), _smoothed(_curve(records, "train/return"), records)
    if not len(test) and not len(train):
        raise ValueError(f"{folder} has not measured a return yet: no episode has ended, no evaluation was made")
    try:
        config = json.loads(read_text(config_file)) if config_file.is_file() else {}
        if not isinstance(config, dict):
            raise ValueError("it holds no composition")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{config_file} is damaged: {error}") from error
    if len(test) and not _returns_compare(config):
        train = Curve(np.empty(0), np.empty(0))
    return Run(folder, _without_places(config), test, train)


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs that differ in nothing but their seed (and in where they were logged) together."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        composition = {key: value for key, value in run.config.items() if key not in _NO_PART_OF_A_COMPOSITION}
        key = json.dumps(composition, sort_keys=True) if composition else str(run.folder)
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def mean_and_spread(curves: Sequence[Curve]) -> tuple[Curve, NDArray[np.float64]] | None:
    """Mean and standard deviation of curves where all of them were measured; None where they do not overlap.

    Beyond the end of the shortest the mean would be that of the runs that went on, which are others.
    """
    first, last = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    if first > last:
        return None
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves])  # (curves, steps)
    return Curve(steps, values.mean(axis=0)), values.std(axis=0, ddof=1 if len(curves) > 1 else 0)


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group: no longer than what tells it from the others."""
    runs = [group[0] for group in groups]
    algorithms, storages = ([_name(run.config, part) for run in runs] for part in ("algorithm", "storage"))
    environments = [_environment(run.config) for run in runs]
    candidates = [
        algorithms,
        [f"{algorithm} + {storage}" for algorithm, storage in zip(algorithms, storages, strict=True)],
        [f"{algorithm} on {environment}" for algorithm, environment in zip(algorithms, environments, strict=True)],
    ]
    differing = _differing_settings(runs)
    if differing:
        candidates.append([", ".join(filter(None, pair)) for pair in zip(algorithms, differing, strict=True)])
    candidates.append([run.folder.resolve().name for run in runs])
    if not all(algorithms):
        candidates = candidates[-1:]
    unique = (names for names in candidates if len(set(names)) == len(names))
    return next(unique, [str(run.folder) for run in runs])


def title(runs: Sequence[Run]) -> str:
    """Which algorithms on which environments, or the folders where that is not known."""
    algorithms = dict.fromkeys(filter(None, (_name(run.config, "algorithm") for run in runs)))
    environments = dict.fromkeys(filter(None, (_environment(run.config) for run in runs)))
    if algorithms and environments:
        return f"{', '.join(algorithms)} on {', '.join(environments)}"
    return ", ".join(dict.fromkeys(run.folder.resolve().name for run in runs))


def unit(runs: Sequence[Run]) -> str:
    """What the steps of some runs are: those without environments to train in count updates."""
    units = {"updates" if run.config.get("train_envs", "") is None else "environment steps" for run in runs}
    return units.pop() if len(units) == 1 else "environment steps, or updates"


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """The composition as it would be anywhere else: where a storage or a data set is kept makes it no other."""
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
    """Whether returns of training and of evaluations mean the same: not where rewards of the former are scaled, say."""
    train, test = ((config.get(part) or {}).get("hyper_parameters") for part in ("train_envs", "test_envs"))
    if train is None or test is None:
        return True
    # None and empty are the same: nothing was asked for.
    return all((train.get(name) or None) == (test.get(name) or None) for name in _WHAT_RETURNS_DEPEND_ON)


def _curve(records: Sequence[Mapping[str, float]], name: str) -> Curve:
    points = [(record["steps"], record[name]) for record in records if np.isfinite(record.get(name, np.nan))]
    steps, values = np.array(sorted(points, key=lambda point: point[0]), np.float64).reshape(-1, 2).T
    return Curve(steps, values)


def _smoothed(curve: Curve, records: Sequence[Mapping[str, float]]) -> Curve:
    """The mean of each value and those around it; episodes count alike, however many a record holds."""
    window = min(len(curve) // _SMOOTHED_PART, _MOST_SMOOTHED_RECORDS) // 2 * 2 + 1
    if window == 1:
        return curve
    with_return = [record for record in records if np.isfinite(record.get("train/return", np.nan))]
    episodes = np.array([record.get("train/episodes", 1.0) for record in sorted(with_return, key=lambda r: r["steps"])])
    kernel = np.ones(window)
    sums = np.convolve(curve.values * episodes, kernel, mode="same")
    return Curve(curve.steps, sums / np.convolve(episodes, kernel, mode="same"))


def _name(config: Mapping[str, Any], part: str) -> str:
    return str((config.get(part) or {}).get("name") or "")


def _environment(config: Mapping[str, Any]) -> str:
    envs = config.get("train_envs") or config.get("test_envs") or {}
    env = (envs.get("hyper_parameters") or {}).get("env") or ""
    return str(env.get("callable", "") if isinstance(env, Mapping) else env)


def _differing_settings(runs: Sequence[Run]) -> list[str] | None:
    """What each run has where they differ, ``n_step=3``; None where that is too much to read."""
    configs = [_flat(run.config) for run in runs]
    names = [
        name
        for name in dict.fromkeys(name for config in configs for name in config)
        if len({json.dumps(config.get(name)) for config in configs}) > 1
    ]
    if len(names) > _MOST_SETTINGS_IN_A_LABEL:
        return None
    short = [name.rpartition(".")[2] for name in names]
    return [
        ", ".join(f"{label}={config.get(name)}" for name, label in zip(names, short, strict=True)) for config in configs
    ]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if not prefix and key in _NO_PART_OF_A_COMPOSITION:
            continue
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
