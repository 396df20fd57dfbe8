"""``train --data`` without an environment: the data hold the spaces, and nothing is evaluated."""

import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.envs.spaces import space_from_data
from pytorchrl.experiments.runs.run_folder import RunFolder
from storages.datasets import open_dataset, write_dataset
from tests.support.data_sets import recorded
from tests.support.layouts import LAYOUTS


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, named: str = "train") -> str:
        small = ("--actor.hidden-sizes", "8", "--algorithm.mini-batch-size", "8") if named == "train" else ()
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", named, *map(str, arguments), *small])
        main()
        return capsys.readouterr().out

    return run


def test_a_run_from_data_that_hold_their_spaces_needs_no_environment_and_resumes(train: Any, tmp_path: Path) -> None:
    arguments = ("--algorithm", "td3bc", "--data", recorded(tmp_path / "pushed.npz", "Pendulum-v1", 40))
    printed = train(*arguments, "--steps", "3")
    assert "seed 1, 0 of 3 updates" in printed
    folder = RunFolder(tmp_path / "runs" / "TD3BC-pushed-offline" / "seed-1")
    config = folder.read_config()
    assert (config["train_envs"], config["test_envs"], config["algorithm"]["hyper_parameters"]["test_every"]) == (
        None,
        None,
        0,
    )
    assert "seed 1, 3 of 5 updates" in train(*arguments, "--steps", "5")


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (("--online",), "no env is given; name one by --env"),
        (("--env.num-envs", "2"), "no env is given; name one by --env"),
        (("--algorithm.test-every", "5"), "evaluations every 5 updates need an environment; name one by --env"),
    ],
)
def test_what_needs_an_environment_is_refused_without_one(
    further: tuple[str, ...], message: str, train: Any, tmp_path: Path
) -> None:
    data = recorded(tmp_path / "pushed.npz", "Pendulum-v1", 40)
    with pytest.raises(SystemExit, match=message):
        train("--algorithm", "sac", "--data", data, "--steps", "3", *further)
    assert not (tmp_path / "runs").exists()


def test_data_without_spaces_are_refused_with_the_option_that_names_an_environment(train: Any, tmp_path: Path) -> None:
    path = tmp_path / "bare.npz"
    write_dataset(path, open_dataset(recorded(tmp_path / "pushed.npz", "Pendulum-v1", 40)))
    with pytest.raises(SystemExit, match=r"bare.npz does not contain the spaces .*in commands --env"):
        train("--algorithm", "td3bc", "--data", path, "--steps", "3")


def test_a_table_gets_the_spaces_of_a_run_and_is_trained_from_without_an_environment(
    train: Any, tmp_path: Path
) -> None:
    train("--algorithm", "td3bc", "--data", recorded(tmp_path / "pushed.npz", "Pendulum-v1", 40), "--steps", "3")
    (run,) = (tmp_path / "runs").rglob("config.json")
    rows = "".join(f"{0.1 * t},{0.2 * t},0.5,{t % 2},-1,{t // 5}\n" for t in range(20))
    table = tmp_path / "log.csv"
    table.write_text("x,y,v,push,paid,number\n" + rows)
    names = ["--episode", "number", "--names", "observations", "x,y,v", "actions", "push", "rewards", "paid"]
    made = tmp_path / "log.npz"
    train("convert", table, made, "--spaces-of", run.parent, *names, named="data")
    about = open_dataset(made).about
    policy = prl.load_policy(run.parent)
    assert space_from_data(about.observation_space) == policy.observation_space
    assert space_from_data(about.action_space) == policy.action_space
    assert "Finished 3 updates" in train(
        "--algorithm", "td3bc", "--data", made, "--steps", "3", "--log-dir", tmp_path / "again"
    )
    names[3 + names[3:].index("x,y,v")] = "x,y"
    with pytest.raises(SystemExit, match=r"observations of .*log.csv are 2 numbers a step, and those of the policy 3"):
        train("convert", table, tmp_path / "other.npz", "--spaces-of", run.parent, *names, named="data")
    assert not (tmp_path / "other.npz").exists()


def test_data_of_unknown_ends_are_refused_with_the_command_that_answers(train: Any, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    path = LAYOUTS["D4RL"].made(tmp_path, other_names=True)
    with pytest.raises(
        SystemExit, match=r"max_episode_steps= .* python -m pytorchrl data convert \S+ d4rl-converted.npz"
    ):
        train("--algorithm", "td3bc", "--env", "Pendulum-v1", "--data", path, "--steps", "3")
