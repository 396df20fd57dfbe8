"""The C++ program of the examples acts as the policy in Python."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy
from tests.support.finished_runs import trained
from tests.support.profiles import FULL

pytestmark = [pytest.mark.long, FULL]
SOURCES = Path(__file__).resolve().parents[2] / "examples" / "cpp"


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[list[float]]]:
    """The program, built with the LibTorch that the package torch brings."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("cpp")
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for arguments in (["-S", SOURCES, "-B", folder, prefix], ["--build", folder]):
        built = subprocess.run(["cmake", *arguments], capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr

    def run(*arguments: Any, lines: list[str]) -> list[list[float]]:
        command = [str(folder / "act"), *map(str, arguments)]
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [[float(number) for number in line.split()] for line in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize("name", ["dqn", "sac", "ppo with memory"])
def test_the_program_prints_the_actions_of_the_policy_in_python(
    name: str, act: Callable[..., list[list[float]]], tmp_path: Path
) -> None:
    trained(name, tmp_path / "run").close()
    policy: TrainedPolicy = prl.load_policy(tmp_path / "run")
    file = policy.export(tmp_path / "policy.ts")
    states = policy.algorithm.actor.initial_memory(1)
    seen = np.random.default_rng(0).normal(size=(2, 5, *policy.observation_space.shape)).astype(np.float32)
    expected, lines = [], list[str]()
    for episode in seen:
        policy.reset()
        for observation in episode:
            expected.append(np.asarray(policy(observation)).ravel())
            lines.append(" ".join(map(str, observation.tolist())))
        lines.append("")
    found = act(file, *([] if states is None else [states.shape[1]]), lines=lines)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
