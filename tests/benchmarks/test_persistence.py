"""The benchmark of persistence: every measurement works for this library and every other one that is installed."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import warm_interpreter

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
TABLES = {"journal": 2, "training": 1, "reopening": 1, "bytes": 2}
PEERS = {
    "PFRL": "pfrl",
    "PFRL, episodes": "pfrl",
    "torchrl": "torchrl",
    "Minari, HDF5": "minari",
    "Minari, Arrow": "minari",
}
ONLY_IN_JOURNAL = {"PFRL, episodes"}


def test_a_quick_run_measures_every_installed_library_at_every_point(tmp_path: Path) -> None:
    measured = tmp_path / "figures.json"
    script = ROOT / "benchmarks" / "persistence" / "persistence.py"
    finished = warm_interpreter.run(
        [script, "--quick", "--folder", tmp_path, "--json", measured], tmp_path, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    installed = {package for package in PEERS.values() if find_spec(package) is not None}
    figures = json.loads(measured.read_text())
    for point, number in TABLES.items():
        tables = figures[point]
        assert len(tables) == number
        for table in tables:
            assert all(figure > 0 for figures in table["rows"].values() for figure in figures)
            has_no_goal = point == "journal" and not {"pfrl", "torchrl"} & installed
            assert table["goals"] or has_no_goal, "the table has no goal"
            assert all(goal["target"] in " ".join(finished.stdout.split()) for goal in table["goals"])
            if point != "training":
                compared = {name for name, package in PEERS.items() if package in installed}
                assert compared - (ONLY_IN_JOURNAL if point != "journal" else set()) < set(table["rows"])
    assert [path.name for path in tmp_path.iterdir()] == [measured.name], "the benchmark left other files"


def test_a_point_is_measured_alone(tmp_path: Path) -> None:
    measured = tmp_path / "figures.json"
    script = ROOT / "benchmarks" / "persistence" / "persistence.py"
    options = ["--quick", "--only", "bytes", "--folder", tmp_path, "--json", measured]
    finished = warm_interpreter.run([script, *options], tmp_path, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert set(TABLES) & set(json.loads(measured.read_text())) == {"bytes"}
