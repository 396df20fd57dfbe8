"""The ``long`` mark: slow tests without it are reported, and a share of the cases of a test can do without it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import shares
from tests.support.profiles import FULL

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


CASES = """
import pytest

@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("row", range(4))
def test_some(row, column): pass
@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.long), 1, 2])
def test_two(case): pass
def test_plain(): pass
"""


@pytest.mark.long
def test_a_share_of_the_cases_of_a_test_is_quick_and_varies_in_each_parameter(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    chosen = {}
    for marks in ("not long", "long"):
        finished = subprocess.run(
            [*command, "--collect-only", "-m", marks, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        chosen[marks] = [line.rpartition("::")[2] for line in finished.stdout.splitlines() if "::" in line]
    quick = [name for name in chosen["not long"] if name.startswith("test_some")]
    assert 3 <= len(quick) <= 5
    assert quick[0] == "test_some[0-0]"
    assert all(len({name[place] for name in quick}) > 2 for place in (-2, -4))
    assert [name for name in chosen["not long"] if name not in quick] == ["test_two[1]", "test_plain"]
    assert len(quick) + len(chosen["long"]) == 16 + 2


class Case:
    """A case of a test, as far as marking needs it."""

    def __init__(self, number: int, *marks: pytest.MarkDecorator) -> None:
        self.nodeid, self.marks = f"test_some[{number}]", [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def test_a_share_of_the_long_cases_is_left_to_full_runs() -> None:
    share = pytest.mark.quick_share(0.2, long=0.5)
    cases: Any = [Case(number, share) for number in range(50)]
    long: Any = [Case(number, share, pytest.mark.long) for number in range(50)]
    shares.mark_long(cases + long)
    quick = [case for case in cases if case.get_closest_marker("long") is None]
    left = [[case for case in each if FULL.mark in case.marks] for each in (cases, long)]
    assert 8 <= len(quick) <= 12
    assert all(22 <= len(each) <= 28 for each in left)
    assert not set(quick) & set(left[0])
    assert FULL.mark not in long[0].marks


@pytest.mark.parametrize("given", [(0.2,), ()])
def test_without_a_share_of_the_long_cases_none_is_left_to_full_runs(given: tuple[float, ...]) -> None:
    cases: Any = [Case(number, *(pytest.mark.quick_share(share) for share in given)) for number in range(20)]
    shares.mark_long(cases)
    assert not any(FULL.mark in case.marks for case in cases)
