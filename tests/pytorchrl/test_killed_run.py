"""A run that is killed at random times and resumed each time equals the run that was never killed, bit for bit."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from storages.persistent import read_state
from storages.transition import OBS
from tests.support import training_to_kill
from tests.support.comparison import assert_equal
from tests.support.profiles import by_profile
from tests.support.training_to_kill import BEGINS, CASES, TARGET_STEPS, storage_of

KILLS = int(os.environ.get("RUN_KILLS", by_profile(2, 3, 30)))
"""Number of kills; a few by default, so that the tests stay quick."""
KILLED_WHILE_STARTING = 0.3
"""Share of the kills that happen while the run starts or resumes."""
CLOCKS = ("seconds", "speed/steps_per_second")

WRITER_PROGRESS = ("unwritten", "watermarks")
"""How much a thread had moved from the memtable to segments when the state was taken; it changes no results."""


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_and_resumed_equals_the_run_that_was_never_killed(case: str, tmp_path: Path) -> None:
    train_until(case, tmp_path / "whole")
    random, attempts = np.random.default_rng(0), []
    for kill_at in sorted(random.integers(0, TARGET_STEPS, KILLS).tolist()):
        while_starting = random.random() < KILLED_WHILE_STARTING
        reached = train_until(case, tmp_path / "killed", BEGINS if while_starting else kill_at, random)
        attempts.append({"killed at": reached, "resumed from": saved_at(tmp_path / "killed")})
        if attempts[-1]["resumed from"] is None:
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
    train_until(case, tmp_path / "killed")
    print(json.dumps(attempts))  # noqa: T201
    assert len(attempts) == KILLS
    one, two = (result_of(tmp_path / name) for name in ("killed", "whole"))
    assert_equal(one, two)


def train_until(case: str, folder: Path, kill_at: int | str | None = None, random: Any = None) -> int | str:
    """Start or resume a run, and kill it at a random time after it has printed ``kill_at``; return its last output."""
    process = subprocess.Popen(
        [sys.executable, training_to_kill.__file__, case, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        printed: int | str = BEGINS
        for line in process.stdout:
            printed = int(line) if line.strip().isdecimal() else printed
            if kill_at == BEGINS or (isinstance(kill_at, int) and isinstance(printed, int) and printed >= kill_at):
                time.sleep((0.2 if kill_at == BEGINS else 0.03) * random.random())
                process.kill()
                # Its output in the meantime.
                rest = [int(line) for line in process.stdout.read().splitlines() if line.isdecimal()]
                printed = [printed, *rest][-1] if printed != BEGINS else printed
                break
            if printed == TARGET_STEPS:
                process.stdin.close()
    assert process.returncode == (0 if kill_at is None else -9)
    return printed


def saved_at(folder: Path) -> int | None:
    """The step of the last checkpoint, if there is one."""
    file = folder / "checkpoint.pt"
    return checkpoint.load(file)["scheme"]["collector"]["steps"] if file.exists() else None


def result_of(folder: Path) -> dict[str, Any]:
    """The result of a run: its state, its stored experience, and its logged records."""
    state = checkpoint.load(folder / "checkpoint.pt")
    beside = state["scheme"].pop("storage")
    position = beside.pop("position")
    learner = {name: value for name, value in state["learner"].items() if name not in ("seconds", "logged")}
    learner["metrics"] = without_clocks(learner["metrics"])
    return {
        "scheme": state["scheme"],
        "learner": learner,
        "storage": episodes_of(folder) if beside.pop("archive", None) else read_state(storage_of(folder), position),
        "beside the storage": {name: value for name, value in beside.items() if name not in WRITER_PROGRESS},
        "metrics": [without_clocks(record) for record in prl.read_metrics(folder / "metrics.jsonl")],
        "best": checkpoint.load(folder / "best_weights.pt")["weights"],
    }


def episodes_of(folder: Path) -> dict[str, Any]:
    learner = prl.Learner.resume(folder)
    storage: Any = learner.scheme.storage
    held = {
        "in memory": storage.get_all_buffer_data(),
        "batches": list(storage.generate_batches(20, 16)),
        "episodes": [
            {name: values.tobytes() for name, values in (episode.fields | {OBS: episode.observations}).items()}
            for episode in storage.episodes()
        ],
    }
    assert len(storage) > 2 * storage.ring.live_steps, "not all of it is in memory"
    learner.close()
    return held


def without_clocks(record: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in record.items() if name not in CLOCKS}
