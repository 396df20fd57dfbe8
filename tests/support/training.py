"""Training without a run folder, for tests of the learnt state."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl


def train(scheme: prl.Scheme, until: int) -> prl.Scheme:
    """Collect up to a number of steps, and do the updates that are due."""
    scheme.set_progress(scheme.steps, until)
    while scheme.steps < until:
        _, due = scheme.collect(until)
        for _ in range(due):
            list(scheme.update())
        scheme.set_progress(scheme.steps, until)
    return scheme


def saved_and_loaded(state: Any) -> Any:
    """A state that was saved to a file and loaded."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def copied_at(learner: prl.Learner, at: int, folder: Path) -> Path:
    """Run to the target; return a copy of the run folder as a checkpoint after a number of steps left it."""
    while learner.scheme.steps < at:
        learner.step()
    learner.save_checkpoint()
    shutil.copytree(learner.log_dir, folder)
    assert learner.run()
    return folder


def stopped(learner: prl.Learner, at: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run until a request to stop after a number of steps; return the run folder."""
    monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= at)
    assert not learner.run()
    learner.close()
    return learner.log_dir
