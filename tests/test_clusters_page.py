"""The batch script of the page on clusters trains, and is put back into the queue where it was stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import BLOCK, ROOT

PAGE = ROOT / "docs" / "guides" / "clusters.md"


def scripts() -> list[str]:
    """The batch scripts of the page: that of an array of jobs, and that of a job on several machines."""
    return [code for language, code in BLOCK.findall(PAGE.read_text("utf-8")) if language == "bash"]


def run_script(folder: Path, *, is_stopped: bool) -> subprocess.CompletedProcess[str]:
    """Run the script with a scheduler that starts the command at once, with few steps, or reports that it stopped."""
    script, _ = scripts()
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


def test_a_job_on_several_machines_waits_for_its_learner_and_is_put_back_into_the_queue(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, body in {
        "srun": 'echo "$*" >> asked.txt',
        "sleep": "exit 0",
        "hostname": "echo 10.0.0.1 172.17.0.1",
        "scontrol": '[ "$1" = show ] && printf "one\\ntwo\\n" || echo "scontrol $*"',
        # It needs a moment to save after the signal.
        "python": f"exec '{sys.executable}' -c '{_LEARNER}'",
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    job = subprocess.Popen(
        ["bash", "-c", scripts()[1]],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "one,two"}
        | {"PATH": os.pathsep.join((str(commands), os.environ["PATH"]))},
    )
    with job:
        assert job.stdout is not None
        assert job.stdout.readline() == "training on 10.0.0.1:6379\n"
        job.terminate()
        assert job.stdout.read() == "saved\nscontrol requeue 17\n"
    assert job.returncode == 130
    asked = sorted((tmp_path / "asked.txt").read_text().splitlines())
    assert len(asked) == 2
    assert "-w one --overlap ray start --head --port=6379" in asked[0]
    assert "-w two --overlap ray start --address=10.0.0.1:6379" in asked[1]


_LEARNER = """
import os, signal, sys, threading
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
print("training on", os.environ["RAY_ADDRESS"], flush=True)
stopped.wait()
threading.Event().wait(0.3)
print("saved", flush=True)
sys.exit(130)
"""


def test_the_python_of_the_page_names_arguments_of_ray() -> None:
    ray = pytest.importorskip("ray")
    (code,) = [code for language, code in BLOCK.findall(PAGE.read_text("utf-8")) if language == "python"]
    asked: list[dict[str, object]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", lambda **options: asked.append(options))
        exec(compile(code, str(PAGE), "exec"), {})  # the page's own code
    assert asked == [{"address": "auto", "runtime_env": {"env_vars": {"PYTHONPATH": "/shared/me/code"}}}]
