"""The guide from a folder of logs to a policy, run block by block as `docs/guides/logs-to-policy.md` shows it."""

import re
import shlex
from pathlib import Path

import pytest

import pytorchrl as prl
from tests.support import warm_interpreter

pytestmark = pytest.mark.long

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guides" / "logs-to-policy.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def typed(language: str, code: str, folder: Path) -> str:
    if language == "python":
        commands = [["-c", code]]
    else:
        lines = [shlex.split(line) for line in code.splitlines()]
        assert all(line[0] == "python" for line in lines)
        commands = [line[1:] for line in lines]
    output = ""
    for command in commands:
        finished = warm_interpreter.run(command, folder, strict=True)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        output += finished.stdout
    return output


def test_the_commands_of_the_guide_turn_a_folder_of_logs_into_a_policy(tmp_path: Path) -> None:
    output = [typed(language, code, tmp_path) for language, code in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]
    assert "episodes=12, steps=2400" in output[1]
    assert "12 episodes" in (tmp_path / "logged.html").read_text(encoding="utf-8")
    records = prl.read_metrics(tmp_path / "runs" / "logged" / "seed-1" / "metrics.jsonl")
    differences = [one["offline/action_difference"] for one in records if "offline/action_difference" in one]
    assert len(differences) == 4
    assert differences[-1] < 2 / 3, "two uniform actions differ by two thirds on average"
    assert any("test/normalized_score" in one for one in records)
    assert "Normalised score" in output[4]
    assert (tmp_path / "policy.pt2").is_file()
    assert re.search(r"return -\d", output[5])
    assert "From runs/logged/seed-1" in output[6]
    assert prl.read_metrics(tmp_path / "runs" / "logged-online" / "seed-1" / "metrics.jsonl")[-1]["steps"] == 300
