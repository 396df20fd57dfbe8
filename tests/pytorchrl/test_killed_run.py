"""A run that is killed at any instants and resumed each time is the run that was never killed, to the bit."""

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
from tests.support.training_to_kill import BEGINS, CASES, TARGET_STEPS, storage_of

KILLS = int(os.environ.get("RUN_KILLS", "3"))
"""How often; a few by default, so that the tests stay quick."""
WHILE_IT_RESUMES = 0.3
"""How often of these before it goes on."""
CLOCKS = ("seconds", "speed/steps_per_second")

WHAT_THE_WRITER_DECIDES = ("unwritten", "watermarks")
"""How much a thread had moved from the memtable to segments when the state was taken; nothing else follows."""


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_and_resumed_is_the_run_that_was_never_killed(case: str, tmp_path: Path) -> None:
    live(case, tmp_path / "whole")
    random, lives = np.random.default_rng(0), []
    for kill_at in sorted(random.integers(0, TARGET_STEPS, KILLS).tolist()):
        begins = random.random() < WHILE_IT_RESUMES
        reached = live(case, tmp_path / "killed", BEGINS if begins else kill_at, random)
        lives.append({"killed at": reached, "resumed from": saved_at(tmp_path / "killed")})
        if lives[-1]["resumed from"] is None:
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
    live(case, tmp_path / "killed")
    print(json.dumps(lives))  # noqa: T201
    assert len(lives) == KILLS
    one, two = (everything(tmp_path / name) for name in ("killed", "whole"))
    assert_equal(one, two)


def live(case: str, folder: Path, kill_at: int | str | None = None, random: Any = None) -> int | str:
    """Begin a run or go on with it, up to a random instant after it has said ``kill_at``; returns what it said last."""
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
        said: int | str = BEGINS
        for line in process.stdout:
            said = int(line) if line.strip().isdecimal() else said
            if kill_at == BEGINS or (isinstance(kill_at, int) and isinstance(said, int) and said >= kill_at):
                time.sleep((0.2 if kill_at == BEGINS else 0.03) * random.random())
                process.kill()
                # What it said in the meantime.
                said = int([said, *process.stdout.read().split()][-1]) if said != BEGINS else said
                break
            if said == TARGET_STEPS:
                process.stdin.close()
    assert process.returncode == (0 if kill_at is None else -9)
    return said


def saved_at(folder: Path) -> int | None:
    """The step of the last checkpoint, if there is one."""
    file = folder / "checkpoint.pt"
    return checkpoint.load(file)["scheme"]["collector"]["steps"] if file.exists() else None


def everything(folder: Path) -> dict[str, Any]:
    """All that a run comes to: its state, what is stored, and what was logged on the way."""
    state = checkpoint.load(folder / "checkpoint.pt")
    beside = state["scheme"].pop("storage")
    position = beside.pop("position")
    learner = {name: value for name, value in state["learner"].items() if name not in ("seconds", "logged")}
    learner["metrics"] = without_clocks(learner["metrics"])
    return {
        "scheme": state["scheme"],
        "learner": learner,
        "storage": episodes_of(folder) if beside.pop("archive", None) else read_state(storage_of(folder), position),
        "beside the storage": {name: value for name, value in beside.items() if name not in WHAT_THE_WRITER_DECIDES},
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
