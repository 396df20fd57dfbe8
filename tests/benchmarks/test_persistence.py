"""The benchmark of persistence: every measurement works for this library and every other one that is installed."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("point", TABLES)
def test_a_quick_run_measures_every_installed_library(point: str, tmp_path: Path) -> None:
    measured = tmp_path / "figures.json"
    script = [sys.executable, str(ROOT / "benchmarks" / "persistence" / "persistence.py")]
    finished = subprocess.run(
        [*script, "--quick", "--only", point, "--folder", str(tmp_path), "--json", str(measured)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    installed = {package for package in PEERS.values() if find_spec(package) is not None}
    tables = json.loads(measured.read_text())[point]
    assert len(tables) == TABLES[point]
    for table in tables:
        assert all(figure > 0 for figures in table["rows"].values() for figure in figures)
        has_no_goal = point == "journal" and not {"pfrl", "torchrl"} & installed
        assert table["goals"] or has_no_goal, "the table has no goal"
        assert all(goal["target"] in " ".join(finished.stdout.split()) for goal in table["goals"])
        if point != "training":
            compared = {name for name, package in PEERS.items() if package in installed}
            assert compared - (ONLY_IN_JOURNAL if point != "journal" else set()) < set(table["rows"])
    assert [path.name for path in tmp_path.iterdir()] == [measured.name], "the benchmark left other files"
