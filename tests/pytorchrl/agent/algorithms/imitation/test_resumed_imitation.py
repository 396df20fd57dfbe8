"""Runs that learn from an expert, stopped at any step and resumed, equal the uninterrupted ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.pytorchrl.agent.algorithms.imitation.test_airl import airl_scheme
from tests.pytorchrl.agent.algorithms.imitation.test_amp import amp_scheme
from tests.pytorchrl.agent.algorithms.imitation.test_dagger import dagger
from tests.pytorchrl.agent.algorithms.imitation.test_gail import gail_scheme
from tests.pytorchrl.agent.algorithms.imitation.test_ppod import ppod
from tests.pytorchrl.agent.algorithms.offline.test_bcq import bcq_scheme
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.training import stopped

RUNS: dict[str, tuple[Callable[[Path], prl.Scheme], tuple[int, ...]]] = {
    "GAIL": (gail_scheme, (6, 34, 64, 100)),
    "GAIL with a memory": (lambda data: gail_scheme(data, memory="lstm"), (6, 64, 100)),
    "AIRL": (airl_scheme, (6, 34, 64, 100)),
    "AMP with a memory": (lambda data: amp_scheme(data, memory="gru"), (6, 64, 100)),
    "PPOD": (ppod, (6, 61, 140, 200)),
    "PPOD with a memory": (lambda data: ppod(data, "lstm"), (6, 61, 200)),
    "DAgger with a memory": (lambda data: dagger(memory="gru", beta=0.4), (10, 50, 120)),
    "BCQ": (bcq_scheme, (3, 9, 10, 20)),
}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_equals_an_uninterrupted_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, (*stops, target) = RUNS[name]
    data = recorded(tmp_path / "data.npz", "Pendulum-v1" if name == "BCQ" else "CartPole-v1")
    whole = prl.Learner(make(data), target, tmp_path / "whole")
    assert whole.run()
    learner = prl.Learner(make(data), target, tmp_path / "parts")
    for stop in stops:
        learner = prl.Learner.resume(stopped(learner, stop, monkeypatch), scheme=make(data))
    assert learner.run()
    state: Any = learner.scheme.state_dict()
    assert_equal(state, whole.scheme.state_dict())
    for source in state["sources"].values():
        # The data of experts are not in the checkpoint, running rollouts are.
        assert "ring" not in source or name.startswith("PPOD")
