"""``train --data`` without an environment: the data hold the spaces, and nothing is evaluated."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
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


def test_a_run_from_data_goes_on_with_new_data_without_an_environment(train: Any, tmp_path: Path) -> None:
    first, second = (recorded(tmp_path / f"{name}.npz", "Pendulum-v1", steps) for name, steps in (("a", 40), ("b", 60)))
    train("--algorithm", "td3bc", "--data", first, "--steps", "3", "--log-dir", tmp_path / "run")
    run = tmp_path / "run" / "seed-1"
    with pytest.raises(
        SystemExit,
        match=r"make it larger\. A run goes on with .* python -m pytorchrl train --from \S+ --data \S+b.npz",
    ):
        train(run, "--data", second, named="resume")
    printed = train("--from", run, "--data", second, "--steps", "2")
    assert f"From {run}: policy" in printed
    (config,) = (tmp_path / "runs").rglob("config.json")
    described = RunFolder(config.parent).read_config()
    assert (described["train_envs"], described["test_envs"], described["started_from"]["steps"]) == (None, None, 3)
    with pytest.raises(SystemExit, match=r"had no environments; .* from data by: python -m pytorchrl evaluate"):
        train(run, named="evaluate")
    evaluate = ("--episodes", "2")
    assert "2 episodes: mean return" in train(run, *evaluate, "--env", "Pendulum-v1", named="evaluate")
    wrapper = "['FlattenObservation']"
    assert "2 episodes: mean return" in train(
        run, *evaluate, "--env", "Pendulum-v1", "--wrappers", wrapper, "--baseline", "random", named="evaluate"
    )
    for options, message in (
        (("--env", "CartPole-v1"), "evaluate: .*--env CartPole-v1"),
        (("--wrappers", wrapper), "those of an environment that --env names; give both"),
        (("--env", "Pendulum-v1", "--data", second), "--data estimates the value without an environment; leave out -"),
    ):
        with pytest.raises(SystemExit, match=message):
            train(run, *options, named="evaluate")


def test_bounds_of_actions_give_a_table_the_spaces_that_training_needs(train: Any, tmp_path: Path) -> None:
    table, made = tmp_path / "log.csv", tmp_path / "log.npz"
    table.write_text("x,v,push,paid,run\n" + "".join(f"{0.1 * t},0.5,{t % 3 / 4},1,{t // 5}\n" for t in range(20)))
    names = ["--episode", "run", "--names", "observations", "x,v", "actions", "push", "rewards", "paid"]
    train("convert", table, made, "--action-low", "0", "--action-high", "0.5", *names, named="data")
    data = open_dataset(made)
    assert space_from_data(data.about.action_space) == gym.spaces.Box(0, 0.5, (1,))
    assert "Finished 3 updates" in train("--algorithm", "td3bc", "--data", made, "--steps", "3")
    for options, message in (
        (("--action-low", "0"), "--action-low and --action-high go together; give both"),
        (("--action-low", "0", "--action-high", "0.4"), r"the action is \[0.5\] in row 2, outside of --action-low"),
        (
            ("--action-low", "0", "1", "--action-high", "3"),
            "--action-low: give one number, or one for each",
        ),
        (("--action-low", "1", "--action-high", "0"), "--action-low must be below --action-high"),
    ):
        with pytest.raises(SystemExit, match=message):
            train("convert", table, tmp_path / "other.npz", *options, *names, named="data")
    assert not (tmp_path / "other.npz").exists()


def test_quantities_are_no_choices_of_a_discrete_policy(train: Any, tmp_path: Path) -> None:
    train("--algorithm", "discrete-bcq", "--data", recorded(tmp_path / "a.npz", steps=40), "--steps", "2")
    (config,) = (tmp_path / "runs").rglob("config.json")
    table = tmp_path / "log.csv"
    table.write_text("a,b,c,d,push,paid,run\n" + "".join(f"1,2,3,{t},{t % 3 / 4},1,{t // 5}\n" for t in range(20)))
    names = ["--episode", "run", "--names", "observations", "a,b,c,d", "actions", "push", "rewards", "paid"]
    with pytest.raises(SystemExit, match=r"actions of .*log.csv are \[0.25\] in row 1, outside of Discrete\(2\)"):
        train("convert", table, tmp_path / "log.npz", "--spaces-of", config.parent, *names, named="data")


def test_numbers_that_are_not_finite_are_named_with_their_file_and_step(train: Any, tmp_path: Path) -> None:
    data = open_dataset(recorded(tmp_path / "pushed.npz", "Pendulum-v1", 40))
    episode = next(iter(data))
    seen = np.asarray(episode.observations).copy()
    seen[3, 1] = np.nan
    path = tmp_path / "with-nan.npz"
    write_dataset(path, [replace(episode, observations=seen)], about=data.about, allow_nonfinite=True)
    with pytest.raises(SystemExit, match=r"with-nan.npz: Observation\[1\] is nan in step 3 of episode 0; correct it"):
        train("--algorithm", "td3bc", "--data", path, "--steps", "3")
    with pytest.raises(SystemExit, match=r"Observation\[1\] is nan in step 3 of episode 0"):
        train("convert", path, tmp_path / "copy.npz", named="data")
    train("convert", path, tmp_path / "copy.npz", "--allow-nonfinite", named="data")


def test_several_data_sets_are_refused_with_the_command_that_merges_them() -> None:
    storage = prl.ReplayBuffer.create_factory(size=10)
    with pytest.raises(TypeError, match=r"one data set, got 2; .* data merge a.npz b.npz -o merged.npz"):
        prl.from_dataset(storage, ["a.npz", "b.npz"])  # type: ignore[arg-type]


def test_the_initials_of_an_algorithm_are_understood(train: Any) -> None:
    with pytest.raises(SystemExit, match="no algorithm 'bc'; did you mean BehaviourCloning"):
        train("--algorithm", "bc", "--data", "some.npz", "--steps", "3")


def test_data_of_unknown_ends_are_refused_with_the_command_that_answers(train: Any, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    path = LAYOUTS["D4RL"].made(tmp_path, other_names=True)
    with pytest.raises(
        SystemExit, match=r"max_episode_steps= .* python -m pytorchrl data convert \S+ d4rl-converted.npz"
    ):
        train("--algorithm", "td3bc", "--env", "Pendulum-v1", "--data", path, "--steps", "3")
