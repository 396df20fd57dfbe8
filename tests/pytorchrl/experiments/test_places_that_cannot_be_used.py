"""Errors of files and folders that cannot be used name them, and the way out where there is one."""

import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from storages import DatasetError
from tests.support.compositions import dqn_scheme

TRAIN = ["pytorchrl", "train", "--algorithm", "DQN", "--env", "CartPole-v1", "--steps", "10"]


def test_a_run_folder_below_a_file_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    scheme = dqn_scheme()
    with pytest.raises(NotADirectoryError, match=r"the run folder .*file/run cannot be made: Not a directory"):
        prl.Learner(scheme, 10, tmp_path / "file" / "run")
    scheme.close()


def test_a_learning_curve_that_cannot_be_written_does_not_end_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("runs", "runs/seed-1"):
        Path(folder, "learning_curve.png").mkdir(parents=True)
    arguments = ["--algorithm.start-steps", "5", "--actor.hidden-sizes", "8", "--steps", "100", "--log-dir", "runs"]
    monkeypatch.setattr(sys, "argv", [*TRAIN[:-2], *arguments])
    with pytest.warns(RuntimeWarning, match=r"the picture .*\.png cannot be written: Is a directory") as warned:
        main()
    for picture in ("runs/learning_curve.png", "runs/seed-1/learning_curve.png"):
        assert any(f"the picture {picture} cannot" in str(one.message) for one in warned)
    assert "Learning curve:" not in capsys.readouterr().out
    assert prl.read_metrics("runs/seed-1/metrics.jsonl")[-1]["steps"] == 100


@pytest.mark.parametrize(("name", "reason"), [("missing.yaml", "No such file or directory"), (".", "Is a directory")])
def test_a_configuration_file_that_cannot_be_read_is_named(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [*TRAIN, "--config", str(tmp_path / name)])
    with pytest.raises(SystemExit, match=f"error: the configuration file .* cannot be read: {reason}"):
        main()


def test_a_run_given_as_a_data_set_is_refused_with_the_command_that_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = prl.Learner(dqn_scheme(storage=prl.ReplayBuffer.create_factory(size=100)), 60, "run")
    learner.run()
    learner.close()
    command = "python -m pytorchrl data convert run replay.npz"

    def scheme(path: str) -> prl.Scheme:
        return prl.Scheme(
            prl.BehaviourCloning.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), path),
            test_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        )

    with pytest.raises(DatasetError, match=f"run is the folder of a run; .*: {command}"):
        scheme("run")
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *command.split()[3:]])
    main()
    assert len(scheme("replay.npz").storage) > 0


def test_a_name_in_the_place_of_a_hyper_parameters_value_is_refused() -> None:
    scheme = dqn_scheme()
    with pytest.raises(
        TypeError, match=r"the value of a hyper-parameter is needed, such as self\.lr, not its name 'lr'"
    ):
        scheme.algorithm.current("lr")  # type: ignore[arg-type]
    scheme.close()
