"""`make gpu` reports that there is no GPU, or shows the outcomes of its tests in a table."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "storages" / "gpu.py"


def module_of(script: Path) -> Any:
    specification = importlib.util.spec_from_file_location("benchmark_of_the_gpu", script)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="the test needs a machine without a CUDA device")
def test_without_a_gpu_one_line_reports_it() -> None:
    finished = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=100)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("There is no GPU here (torch ")
    assert finished.stdout.endswith("no test and no benchmark was run.\n")
    assert finished.stdout.count("\n") == 1


SOME_TESTS = """
import pytest

@pytest.mark.parametrize("number", [1, 2, 3])
def test_of_numbers(number):
    assert number != 2

def test_that_passes():
    pass

def test_that_is_skipped():
    pytest.skip("for a reason")
"""


@pytest.mark.long
def test_the_table_counts_the_outcomes_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "--rootdir", str(tmp_path), str(tmp_path)]
    subprocess.run([*command, "-p", "no:cacheprovider"], capture_output=True, cwd=tmp_path, timeout=100)
    console = Console(width=120, record=True)
    console.print(module_of(SCRIPT).table_of(report))
    rows = [line.replace("│", " ").split() for line in console.export_text().splitlines()]
    counted = {row[1]: row[2:-1] for row in rows if row and row[0] == "test_some"}
    assert counted == {"test_of_numbers": ["2", "1"], "test_that_passes": ["1"], "test_that_is_skipped": ["1"]}


@pytest.mark.long
def test_tests_that_need_a_gpu_are_marked_and_skipped_with_the_reason() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-rs", "tests/pytorchrl/test_gpu.py"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100)
    if torch.cuda.is_available():
        assert "passed" in finished.stdout
    else:
        assert "there is no CUDA device here" in finished.stdout
        assert "passed" not in finished.stdout
