"""Run folders like those of learners, without training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pytorchrl.logging import MetricsFile

Points: TypeAlias = Sequence[tuple[float, float]]


def composition(algorithm: str = "DQN", seed: int = 0, env: Any = "CartPole-v1", **more: Any) -> dict[str, Any]:
    """The parts of a configuration that curves and comparisons read."""
    return {
        "algorithm": {"name": algorithm, "hyper_parameters": more.pop("settings", {})},
        "storage": {"name": more.pop("storage", "ReplayBuffer"), "hyper_parameters": more.pop("buffer", {})},
        "train_envs": {"name": "VecEnv", "hyper_parameters": {"env": env}},
        "seed": seed,
        "target_steps": 1000,
        "log_to": [],
        "log_every": 100,
    } | more


def recorded_run(folder: Path, records: Sequence[Mapping[str, float]], config: Mapping[str, Any] | None = None) -> Path:
    """A run folder with some records; without a configuration, its composition is unknown."""
    folder.mkdir(parents=True)
    file = MetricsFile(folder / "metrics.jsonl")
    for record in records:
        file.write(record)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def evaluated_run(folder: Path, returns: Points, **settings: Any) -> Path:
    """A run with given mean returns of evaluations after given steps; each step takes a tenth of a second."""
    records = [{"steps": steps, "seconds": steps / 10, "test/return": value} for steps, value in returns]
    return recorded_run(folder, records, composition(**settings))
