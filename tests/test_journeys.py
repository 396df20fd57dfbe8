"""Eleven common tasks, and the guide from logs to a policy, run exactly as their pages show them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from tests.support import warm_interpreter
from tests.support.folders import content
from tests.support.pages import BLOCK, ROOT, commands_of
from tests.support.processes import suspend, wait_for
from tests.support.repositories import git

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "journeys.md"
GUIDE = PAGE.parent / "guides" / "logs-to-policy.md"


def section(title: str) -> list[str]:
    """The code blocks below a heading of the page, with a command in a line."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = [each for each in re.split("^## ", text, flags=re.MULTILINE) if each.splitlines()[0] == title]
    blocks = BLOCK.findall(found)
    return ["\n".join(commands_of(code)) if language == "bash" else code for language, code in blocks]


def arguments_of(line: str) -> list[str]:
    """The arguments that a line of a block passes to Python."""
    program, *arguments = shlex.split(line)
    assert program == "python"
    return arguments


def command(line: str) -> list[str]:
    """A line of a block as a command of this interpreter, for processes that are stopped or killed."""
    return [sys.executable, "-W", "error", *arguments_of(line)]


def typed(lines: str, folder: Path) -> str:
    """Run the commands of a block in a folder and return their output."""
    output = ""
    for line in commands_of(lines):
        finished = warm_interpreter.run(arguments_of(line), folder, strict=True)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        output += finished.stdout
    return output


def run_script(code: str, folder: Path) -> str:
    finished = warm_interpreter.run(["-c", code], folder, strict=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the first task, with its six runs, and the output of its commands."""
    folder = tmp_path_factory.mktemp("journeys")
    (lines,) = section("Train with several seeds, and compare")
    return folder, typed(lines, folder)


def test_three_seeds_are_trained_by_a_command_and_compared(trained: tuple[Path, str]) -> None:
    folder, output = trained
    assert len(list((folder / "runs").glob("*/seed-*/checkpoint.pt"))) == 6
    scores, improvement = output.partition("Scores in CartPole-v1")[2].split("Probability of improvement over")
    assert "final IQM" in scores
    seeds_of = dict(re.findall(r"^ (DQN \+ \w+) +(\d+) ", scores, re.MULTILINE))
    assert seeds_of == {"DQN + PERBuffer": "3", "DQN + NStepReplayBuffer": "3"}
    assert sorted(re.findall(r"^ DQN \+ (\w+)", improvement, re.MULTILINE)) == ["NStepReplayBuffer", "PERBuffer"]


def test_six_runs_are_plotted(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    (lines,) = section("Plot six runs")
    typed(lines, folder)
    assert (folder / "curves.svg").read_text(encoding="utf-8").count("<path") > 2


def test_a_run_stops_at_a_target_return(tmp_path: Path) -> None:
    (code,) = section("Stop at a return")
    run_script(code, tmp_path)
    last = prl.read_metrics(tmp_path / "runs" / "stopped" / "metrics.jsonl")[-1]
    assert last["steps"] < 5_000
    assert last["test/return"] >= 8.0


def test_a_custom_callback_logs_a_metric(tmp_path: Path) -> None:
    (code,) = section("Add a callback")
    run_script(code, tmp_path)
    records = prl.read_metrics(tmp_path / "runs" / "logged" / "metrics.jsonl")
    longest = [record["mine/longest_episode"] for record in records if "mine/longest_episode" in record]
    assert longest == sorted(longest)
    assert longest[-1] >= 8


def test_an_interrupted_run_in_an_own_environment_is_resumed_by_the_printed_command(tmp_path: Path) -> None:
    module, train, resume = section("Resume with an environment of your own")
    (tmp_path / "corridor.py").write_text(module, encoding="utf-8")
    stopped = train.replace("--steps 300", "--steps 1_000_000").strip()
    process = subprocess.Popen(
        command(stopped), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    metrics = tmp_path / "runs" / "corridor" / "seed-1" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    (printed,) = re.findall(r"^\s*\S+ (-m pytorchrl resume .*)$", output, re.MULTILINE)
    assert resume.startswith(f"python {printed}"), "the page shows the printed command and a new target"
    steps = int(prl.read_metrics(metrics)[-1]["steps"])
    typed(f"python {printed} --target-steps {steps + 2_000}", tmp_path)
    assert prl.read_metrics(metrics)[-1]["steps"] >= steps + 2_000


def test_an_episode_is_recorded_as_a_gif(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    (lines,) = section("Record a video")
    typed(lines, folder)
    assert (folder / "episode.gif").read_bytes().startswith(b"GIF8")


def test_a_policy_acts_in_a_plain_loop(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    before = content(folder / "runs")
    (code,) = section("Deploy a policy")
    assert 8 <= int(run_script(code, folder)) <= 500
    assert content(folder / "runs") == before


def test_a_killed_sweep_of_six_runs_in_two_processes_resumes(tmp_path: Path) -> None:
    (line,) = section("Sweep")
    process = subprocess.Popen(
        command(line.strip()),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    sweep = tmp_path / "runs" / "sweep"
    wait_for(lambda: any(sweep.glob("**/checkpoint.pt")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    typed(line, tmp_path)
    results = (sweep / "results.csv").read_text(encoding="utf-8").splitlines()
    assert len(results) == 7, results


def test_monitoring_a_live_run_changes_none_of_its_files(tmp_path: Path) -> None:
    first = section("Train with several seeds, and compare")[0].splitlines()[0]
    line = first.replace("--steps 400", "--steps 1_000_000").replace("--seeds 1 2 3", "--seeds 1")
    process = subprocess.Popen(command(line), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = tmp_path / "runs" / "uniform" / "seed-1"
    try:
        wait_for(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, process)
        # Suspended, so that only the commands of the page could change files.
        suspend(process)
        before = content(run)
        (lines,) = section("Monitor a run in progress")
        output = typed(lines, tmp_path)
        assert content(run) == before
        assert "DQN" in output
        assert (tmp_path / "live.png").read_bytes().startswith(b"\x89PNG")
    finally:
        process.kill()
        process.wait()


def test_the_commit_and_the_changes_of_a_run_are_shown(tmp_path: Path) -> None:
    git("init", "-q", folder=tmp_path)
    (tmp_path / "notes.txt").write_text("first\n", encoding="utf-8")
    git("add", "notes.txt", folder=tmp_path)
    git("commit", "-qm", "first", folder=tmp_path)
    (tmp_path / "notes.txt").write_text("second\n", encoding="utf-8")
    train = section("Train with several seeds, and compare")[0].splitlines()[0].replace("--seeds 1 2 3", "--seeds 1")
    typed(train, tmp_path)
    (lines,) = section("Find the commit of a run")
    output = typed(lines, tmp_path)
    assert git("rev-parse", "HEAD", folder=tmp_path)[:8] in output
    assert "-first\n+second\n" in output


def test_the_transition_with_the_largest_error_is_recorded_as_a_gif(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    before = content(folder / "runs")
    (line,) = section("Find the transitions with the largest errors")
    output = typed(line, folder)
    assert (folder / "surprising.gif").read_bytes().startswith(b"GIF8")
    assert "priority" in output
    assert content(folder / "runs") == before


def test_the_commands_of_the_guide_turn_a_folder_of_logs_into_a_policy(tmp_path: Path) -> None:
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    output = [run_script(code, tmp_path) if kind == "python" else typed(code, tmp_path) for kind, code in blocks]
    assert "episodes=12, steps=2400" in output[1]
    assert "12 episodes" in (tmp_path / "logged.html").read_text(encoding="utf-8")
    records = prl.read_metrics(tmp_path / "runs" / "logged" / "seed-1" / "metrics.jsonl")
    differences = [one["offline/action_difference"] for one in records if "offline/action_difference" in one]
    assert len(differences) == 4
    assert differences[-1] < 2 / 3, "two uniform actions differ by two thirds on average"
    assert any("test/normalized_score" in one for one in records)
    assert "policy, fitted Q evaluation" in output[5]
    assert "learnt from these episodes" not in output[5]
    assert "Normalised score" in output[5]
    assert (tmp_path / "policy.pt2").is_file()
    assert re.search(r"return -\d", output[6])
    assert "From runs/logged/seed-1" in output[7]
    assert prl.read_metrics(tmp_path / "runs" / "logged-online" / "seed-1" / "metrics.jsonl")[-1]["steps"] == 300
    # Of the table, and of the merged one.
    assert "From runs/stays/seed-1" in output[-1]
    assert "all-stays.npz: 120 episodes" in output[-1]
