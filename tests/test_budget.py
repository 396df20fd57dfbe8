"""The plugin that reports slow tests without the ``long`` mark."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import time
import pytest
from tests.support import budget

budget.BUDGET_SECONDS = 0.2


def spend(seconds):
    began = budget.processor_seconds()
    while budget.processor_seconds() < began + seconds:
        pass


def test_slow(): spend(0.3)
def test_quick(): spend(0.01)
def test_waiting(): time.sleep(0.3)
@pytest.mark.long
def test_marked(): spend(0.3)
"""
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
def test_only_slow_tests_without_the_long_mark_are_reported(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-c", str(ROOT / "pyproject.toml")]
    finished = subprocess.run(
        [*command, "-p", "tests.conftest", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert "4 passed" in finished.stdout, finished.stdout + finished.stderr
    named = finished.stdout[finished.stdout.index("not marked as long") :]
    assert "test_some.py::test_slow" in named
    assert not any(name in named for name in ("test_quick", "test_waiting", "test_marked"))
