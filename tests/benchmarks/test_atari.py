"""The Atari benchmark measures every library in every task and reports whether the target is met."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.support import warm_interpreter
from tests.support.profiles import FULL

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "throughput" / "atari.py"


@FULL
@pytest.mark.long
def test_the_speed_of_every_library_is_measured_in_every_task(tmp_path: Path) -> None:
    for package in ("ale_py", "cv2", "stable_baselines3"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    options = ["--repetitions", "1", "--env-steps", "10", "--training-steps", "8", "--stacks", "3000"]
    command = [SCRIPT, *options, "--json", str(tmp_path / "figures.json")]
    finished = warm_interpreter.run(command, tmp_path, timeout=300)
    assert finished.returncode == 0, finished.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert 6_000 < figures["bytes"] < 9_000
    assert len(figures["steps_per_second"]) == 3
    for speeds in figures["steps_per_second"].values():
        assert set(speeds) == {"pytorchrl", "stable-baselines3", "CleanRL"}
        assert all(len(of_library) == 1 and of_library[0] > 0 for of_library in speeds.values())
    assert finished.stdout.count("1.3x") == 6
