"""The batch script of the page on clusters trains, and is put back into the queue where it was stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import BLOCK, ROOT

PAGE = ROOT / "docs" / "guides" / "clusters.md"


def run_script(folder: Path, *, is_stopped: bool) -> subprocess.CompletedProcess[str]:
    """Run the script with a scheduler that starts the command at once, with few steps, or reports that it stopped."""
    (script,) = [code for language, code in BLOCK.findall(PAGE.read_text("utf-8")) if language == "bash"]
    assert "--steps 1000000" in script
    commands = folder / "commands"
    commands.mkdir()
    srun = "exit 130" if is_stopped else 'exec "$@"'
    for name, body in {
        "srun": srun,
        "python": f'exec "{sys.executable}" "$@"',
        "scontrol": 'echo "scontrol $*"',
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    short = (
        script.replace("--steps 1000000", "--steps 300").replace(" --log-to wandb", "").replace("--log-to wandb", "")
    )
    of_job = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "6"}
    path = os.pathsep.join((str(commands), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "-c", short],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | of_job | {"PATH": path, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))},
    )


@pytest.mark.long
def test_a_job_of_the_array_trains_its_algorithm_with_its_seed(tmp_path: Path) -> None:
    finished = run_script(tmp_path, is_stopped=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "runs" / "A2C-CartPole-v1" / "seed-2" / "checkpoint.pt").is_file()
    assert "scontrol" not in finished.stdout


def test_a_job_that_was_stopped_is_put_back_into_the_queue(tmp_path: Path) -> None:
    finished = run_script(tmp_path, is_stopped=True)
    assert finished.returncode == 130
    assert finished.stdout == "scontrol requeue 17_6\n"


def test_the_python_of_the_page_names_arguments_of_ray() -> None:
    ray = pytest.importorskip("ray")
    (code,) = [code for language, code in BLOCK.findall(PAGE.read_text("utf-8")) if language == "python"]
    asked: list[dict[str, object]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", lambda **options: asked.append(options))
        exec(compile(code, str(PAGE), "exec"), {})  # the page's own code
    assert asked == [{"address": "auto", "runtime_env": {"env_vars": {"PYTHONPATH": "/shared/me/code"}}}]
