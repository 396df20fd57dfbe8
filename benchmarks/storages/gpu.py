"""Run every test and benchmark that needs a GPU, and print a table; without a GPU, print a line that says so.

The tests are those marked ``gpu``. The benchmark is that of transferring batches to the device (`ahead.py`).
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

import torch
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).parents[2]
_WIDTH_WHERE_THERE_IS_NO_TERMINAL = 130
_OUTCOMES = ("passed", "failed", "skipped")


def main() -> int:
    """Run and print; return the exit status, 0 where all tests passed or where there is no GPU."""
    if not torch.cuda.is_available():
        why = "built without CUDA" if torch.version.cuda is None else "which finds none"
        print(f"There is no GPU here (torch {torch.__version__}, {why}): no test and no benchmark was run.")
        return 0
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WHERE_THERE_IS_NO_TERMINAL)
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        tests = _python("-m", "pytest", "-q", "-m", "gpu", f"--junitxml={report}", "tests")
        if report.exists():
            console.print(table_of(report))
    benchmark = _python("benchmarks/storages/ahead.py", "--devices", "cuda")
    return tests or benchmark


def table_of(report: Path) -> Table:
    """Return the outcomes of each test function, over all its parameters.

    Args:
        report: pytest's report in JUnit format.
    """
    outcomes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        test = case.attrib["classname"], case.attrib["name"].partition("[")[0]
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[test][outcome] += 1
        seconds[test] += float(case.attrib["time"])
    table = Table(title="Tests that need a GPU", title_justify="left")
    for heading in ("file", "test"):
        table.add_column(heading, overflow="fold")
    for heading in (*_OUTCOMES, "seconds"):
        table.add_column(heading, justify="right")
    for test, counts in sorted(outcomes.items()):
        numbers = [str(counts[outcome] or "") for outcome in _OUTCOMES]
        table.add_row(test[0].removeprefix("tests."), test[1], *numbers, f"{seconds[test]:.1f}")
    return table


def _python(*arguments: str) -> int:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=_ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
