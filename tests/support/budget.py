"""Reports tests that take more processor time than the budget of a quick test and are not marked as long.

Loaded by ``tests/conftest.py``. The time includes this process and the children that a test waited for, but not the
compilation by numba, because that depends on numba's cache from earlier runs.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest
from numba.core import event

from tests.support import profiles, warm_interpreter

BUDGET_SECONDS = 2.0 * max(1.0, profiles.SHARE / profiles.SHARES["quick"])
"""Budget of one test: two seconds, and more in profiles that try more examples."""
_PROPERTY = "processor_seconds"


class _CompileTime(event.Listener):  # type: ignore[misc]
    """Seconds that numba has spent on compilation in this process; nested compilations count once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._began = processor_seconds()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += processor_seconds() - self._began


def processor_seconds() -> float:
    """User and system time of this process, of its ended children, and of the commands of `warm_interpreter`."""
    return sum(os.times()[:4]) + warm_interpreter.seconds_of_commands


class Budget:
    """The plugin: measures each test in its process, and reports in the process that prints."""

    def __init__(self) -> None:
        self.over: dict[str, float] = {}
        self._compiling = _CompileTime()
        event.register("numba:compile", self._compiling)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._began = processor_seconds() - self._compiling.seconds
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown" and all(item.get_closest_marker(name) is None for name in ("long", "ray")):
            spent = processor_seconds() - self._compiling.seconds - self._began
            report.user_properties.append((_PROPERTY, spent))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = dict(report.user_properties).get(_PROPERTY) if report.when == "teardown" else None
        if isinstance(spent, float) and spent > BUDGET_SECONDS:
            self.over[report.nodeid] = spent

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.over:
            terminalreporter.section(f"over {BUDGET_SECONDS:g} s of processor time and not marked as long")
            for name, spent in sorted(self.over.items(), key=lambda each: -each[1]):
                terminalreporter.write_line(f"{spent:6.1f} s  {name}")
