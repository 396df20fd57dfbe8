"""The C++ program of the examples acts as the policy in Python."""

import json
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy
from tests.support.exported import loaded_script
from tests.support.finished_runs import trained
from tests.support.profiles import FULL

pytestmark = [pytest.mark.long, FULL]
SOURCES = Path(__file__).resolve().parents[2] / "examples" / "cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built with the LibTorch that the package torch brings."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("cpp")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for arguments in (["-S", SOURCES, "-B", folder, prefix], ["--build", folder]):
        built = subprocess.run(["cmake", *arguments], capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    return folder / "act"


@pytest.fixture(scope="module")
def act(program: Path) -> Callable[..., list[list[float]]]:
    """Runs the program on lines of observations."""

    def run(*arguments: Any, lines: list[str]) -> list[list[float]]:
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [[float(number) for number in line.split()] for line in done.stdout.splitlines()]

    return run


def test_a_line_that_is_no_observation_is_answered_by_an_error_and_said(program: Path, tmp_path: Path) -> None:
    trained("sac", tmp_path / "run").close()
    file = prl.load_policy(tmp_path / "run").export(tmp_path / "policy.ts")
    lines = ["0 1 2", "5", "0 1 nan", "0 1 2 3", "0 x 2", "", "0 1 2"]
    done = subprocess.run([program, file], input="\n".join(lines), capture_output=True, text=True, check=True)
    first, *errors, last = done.stdout.splitlines()
    assert errors == ["error"] * 4
    assert first == last
    for number, reason in ((2, "got 1 numbers"), (3, "'nan' is not"), (4, "got 4 numbers"), (5, "'x' is not")):
        assert f"act: line {number}: expected 3 finite numbers of an observation: {reason}" in done.stderr


def test_the_program_reads_the_sizes_in_files_of_earlier_versions(program: Path, tmp_path: Path) -> None:
    trained("ppo with memory", tmp_path / "run").close()
    file = prl.load_policy(tmp_path / "run").export(tmp_path / "policy.ts")
    extra: dict[str, Any] = {"metadata.json": ""}
    script = loaded_script(file, extra)
    # Each value was a text that held JSON.
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in json.loads(extra["metadata.json"]).items()
    }
    older = tmp_path / "older.ts"
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(script, str(older), _extra_files={"metadata.json": json.dumps(texts)})  # type: ignore[no-untyped-call]
    line = " ".join(["0.1"] * int(np.prod(prl.load_policy(tmp_path / "run").observation_space.shape)))
    found = [
        subprocess.run([program, each], input=line, capture_output=True, text=True, check=True).stdout
        for each in (file, older)
    ]
    assert found[0] == found[1] != "error\n"


@pytest.mark.parametrize("name", ["dqn", "sac", "ppo with memory"])
def test_the_program_prints_the_actions_of_the_policy_in_python(
    name: str, act: Callable[..., list[list[float]]], tmp_path: Path
) -> None:
    trained(name, tmp_path / "run").close()
    policy: TrainedPolicy = prl.load_policy(tmp_path / "run")
    file = policy.export(tmp_path / "policy.ts")
    seen = np.random.default_rng(0).normal(size=(2, 5, *policy.observation_space.shape)).astype(np.float32)
    expected, lines = [], list[str]()
    for episode in seen:
        policy.reset()
        for observation in episode:
            expected.append(np.asarray(policy(observation)).ravel())
            lines.append(" ".join(map(str, observation.tolist())))
        lines.append("")
    found = act(file, lines=lines)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
