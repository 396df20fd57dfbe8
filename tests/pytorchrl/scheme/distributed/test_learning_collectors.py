"""Runs of the page that compares collectors with one process can be made."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.learning.collectors_tasks import COLLECTORS
from benchmarks.learning.staged_runs import make

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


@pytest.mark.parametrize("task_name", COLLECTORS.tasks)
@pytest.mark.parametrize("collectors", [", one process", "2 asynchronous collectors"])
def test_runs_of_every_task_can_be_made(task_name: str, collectors: str, tmp_path: Path) -> None:
    task = replace(COLLECTORS.tasks[task_name], episodes=1)
    stages = [stage for stage in task.stages if stage.name.endswith(collectors)]
    assert stages
    for stage in stages:
        assert make(task, stage, tmp_path / stage.name, 1, steps=16).steps >= 16
