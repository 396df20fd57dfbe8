"""``python -m pytorchrl data make``: the data of each kind, which is equal for equal seeds and after a kill."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.commands.data.making.agent import EvaluatedPolicy, TrainedAgent, agent_of
from storages.datasets import Dataset, open_dataset, references_of, return_of
from storages.transition import ACT, OBS
from tests.support import warm_interpreter
from tests.support.comparison import assert_equal


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def made(kind: Any, runs: Path, folder: Path, **changes: Any) -> Dataset:
    path = folder / f"{kind}.npz"
    arguments: dict[str, Any] = {"transitions": 300, "train_steps": 2_500, "runs": runs} | changes
    prl.make_dataset("CartPole-v1", kind, path, **arguments)
    return open_dataset(path)


def contents(dataset: Dataset) -> list[Any]:
    return [
        ({key: torch.from_numpy(leaf) for key, leaf in {OBS: one.observations, **one.fields}.items()}, one.terminated)
        for one in dataset
    ]


def test_random_data_has_whole_episodes_and_uniform_actions_determined_by_the_seed(runs: Path, tmp_path: Path) -> None:
    one = made("random", runs, tmp_path, transitions=2_000)
    assert 2_000 <= one.steps < 2_100
    assert all(episode.terminated for episode in one)
    share = np.concatenate([episode.fields[ACT] for episode in one]).mean()
    assert 0.45 < share < 0.55
    (tmp_path / "again").mkdir()
    assert_equal(contents(made("random", runs, tmp_path / "again", transitions=2_000)), contents(one))
    (tmp_path / "other").mkdir()
    other = made("random", runs, tmp_path / "other", transitions=2_000, seed=1)
    assert [len(episode) for episode in other] != [len(episode) for episode in one]
    assert not list(runs.iterdir()), "random actions need no agent"


@pytest.mark.long
def test_all_kinds_come_from_one_trained_agent_and_record_how_they_were_made(runs: Path, tmp_path: Path) -> None:
    expert = made("expert", runs, tmp_path)
    (folder,) = [path for path in runs.iterdir() if (path / "checkpoint.pt").is_file()]
    trained = (folder / "checkpoint.pt").stat().st_mtime_ns
    replay, mixed = made("medium-replay", runs, tmp_path), made("mixed", runs, tmp_path)
    assert (folder / "checkpoint.pt").stat().st_mtime_ns == trained, "the agent is trained once"
    assert [path for path in runs.iterdir() if path.is_dir()] == [folder], "no recorded parts are left"
    assert replay.steps == replay.about.further["trained_steps"]["medium"]
    assert mixed.steps >= 300
    assert set(mixed.about.further["trained_steps"]) == {"medium", "expert"}
    assert expert.about.algorithm_name == "DQN"
    assert expert.about.dataset_id == "cartpole/expert-v0"
    assert references_of(expert.about) == (22.2, 475.0)
    returns = mixed.about.further["policy_returns"]
    assert returns["medium"] < returns["expert"]


def test_the_medium_policy_is_nearest_a_third_of_the_experts_normalised_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of("CartPole-v1", None, 100, 0, tmp_path)
    curve = [20.0, 30.0, 48.0, 60.0, 90.0, 52.0, 120.0, 110.0]
    policies = [EvaluatedPolicy(10 * number, mean, Path()) for number, mean in enumerate(curve)]
    monkeypatch.setattr(TrainedAgent, "policies", lambda self: policies)
    assert agent.expert().mean_return == 120.0
    # 20 is normalised to 0 and 120 to 1, so that a third is 53.3. The later 52 follows 90, more than two thirds.
    assert agent.medium(20.0).mean_return == 48.0
    with pytest.raises(ValueError, match=r"returned 120, no more than random actions do \(130\); train for more than"):
        agent.medium(130.0)


@pytest.mark.long
def test_a_killed_data_make_resumes_and_makes_the_same_data(tmp_path: Path) -> None:
    arguments = ["--env", "CartPole-v1", "--kind", "expert", "--train-steps", "3000", "--transitions", "25000"]
    command = ["-m", "pytorchrl", "data", "make", *arguments, "-o", "expert.npz"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for folder in (killed, whole):
        folder.mkdir()

    def kill_when(pattern: str) -> None:
        process = subprocess.Popen([sys.executable, *command], cwd=killed, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        while not list(killed.glob(pattern)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (killed / "expert.npz").exists()

    kill_when("runs/data/*/policies/steps-*12*.pt")
    kill_when("runs/data/*-expert-*/part-00000-*.npz")
    for folder in (killed, whole):
        made = warm_interpreter.run(command, folder)
        assert made.returncode == 0, made.stderr
    one, two = (open_dataset(folder / "expert.npz") for folder in (killed, whole))
    assert one.steps >= 25_000
    assert_equal(contents(one), contents(two))
    assert one.about == two.about
    assert np.mean([return_of(episode) for episode in one]) > 22.2
