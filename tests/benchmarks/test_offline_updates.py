"""The benchmark of offline updates measures every algorithm from memory and from disk."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.support import warm_interpreter

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "throughput" / "offline_updates.py"


@pytest.mark.long
def test_update_rates_and_the_share_of_sampling_are_measured_for_every_algorithm(tmp_path: Path) -> None:
    if importlib.util.find_spec("mujoco") is None:
        pytest.skip("the package mujoco is not installed")
    command = [SCRIPT, "--quick", "--json", str(tmp_path / "figures.json")]
    finished = warm_interpreter.run(command, tmp_path, timeout=600)
    assert finished.returncode == 0, finished.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    for name in ("TD3BC", "IQL", "CQL", "BCQ"):
        of_algorithm = figures[name]
        for kind in ("cpu", "wall", "drawing"):
            rows = of_algorithm[kind]["rows"]
            assert list(rows) == ["pytorchrl, from memory", "pytorchrl, from disk"]
            assert all(figure > 0 for row in rows.values() for figure in row)
        assert len(of_algorithm["drawing"]["goals"]) == 2


@pytest.mark.long
def test_an_algorithm_that_is_not_compared_is_refused(tmp_path: Path) -> None:
    command = [SCRIPT, "--only", "DQN"]
    finished = warm_interpreter.run(command, tmp_path, timeout=120)
    assert finished.returncode == 1
    assert "--only must be one of TD3BC, IQL, CQL, BCQ, got 'DQN'" in finished.stderr
