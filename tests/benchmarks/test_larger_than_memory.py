"""The benchmark of data larger than memory measures every kind of batch within the memory limit."""

import json
import sys
from pathlib import Path

import pytest

from tests.support import warm_interpreter

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "persistence" / "larger_than_memory.py"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts, and limits, all private memory of a process")
def test_a_quick_run_measures_every_kind_of_batch(tmp_path: Path) -> None:
    measured = tmp_path / "figures.json"
    finished = warm_interpreter.run(
        [SCRIPT, "--quick", "--folder", str(tmp_path), "--json", str(measured)], tmp_path, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    figures = json.loads(measured.read_text())
    assert list(figures) == ["transitions", "sequences of 20 steps", "whole episodes"]
    for contest in figures.values():
        assert len(contest["microseconds"]) == 2
        assert all(microseconds > 0 for times in contest["microseconds"].values() for microseconds in times)
        assert [target["met"] for target in contest["targets"]] in ([True], [False])
    assert finished.stdout.count("target: at most 3x the time of all in memory: ") == 3
    assert [path.name for path in tmp_path.iterdir()] == [measured.name], "the benchmark left other files"
