"""The benchmark of vector environments measures every library and reports whether the targets are met."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.support import warm_interpreter
from tests.support.profiles import FULL

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "throughput" / "vector_envs.py"


@FULL
@pytest.mark.long
def test_the_step_time_of_every_library_is_measured(tmp_path: Path) -> None:
    for package in ("envpool", "rlox", "stable_baselines3"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    options = ["--repetitions", "1", "--rollouts", "1", "--atari-rollouts", "1"]
    command = [SCRIPT, *options, "--json", str(tmp_path / "figures.json")]
    finished = warm_interpreter.run(command, tmp_path, timeout=600)
    assert finished.returncode == 0, finished.stderr
    about, cartpole, breakout = json.loads((tmp_path / "figures.json").read_text()).values()
    assert about["torch threads"] == "1"
    ours = {"pytorchrl", "pytorchrl, its update alone"}
    assert set(cartpole["rows"]) == ours | {"stable-baselines3", "rlox"}
    assert set(breakout["rows"]) == ours | {"CleanRL's loop"}
    for rows in (cartpole["rows"], breakout["rows"]):
        assert all(len(times) == 1 and times[0] > 0 for times in rows.values())
        assert rows["pytorchrl, its update alone"] < rows["pytorchrl"]
    assert finished.stdout.count("target:") == 4
