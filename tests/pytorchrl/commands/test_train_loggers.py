"""``train --log-to``: loggers with settings, names of runs in wandb, and folders of the trials of its sweeps."""

import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.composition.callbacks_and_loggers import make_loggers
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.commands.sweeps.trials import _labels_in_wandb as labels_in_wandb
from pytorchrl.experiments.runs.run_folder import RunFolder


def train(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "train", *arguments])
    main()


def test_loggers_are_given_with_settings_as_callbacks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", "--log-to"]
    described = described_run([*arguments, 'Wandb(project="paper", tags=["first", "long"])', "tensorboard"])
    assert make_loggers(described.settings) == [prl.Wandb(project="paper", tags=("first", "long")), "tensorboard"]
    train(monkeypatch, *arguments, "TensorBoard()", "--no-preset", "--steps", "30", "--log-dir", "runs")
    assert RunFolder("runs/seed-1").read_config()["log_to"] == [prl.TensorBoard().config]
    assert list(Path("runs/seed-1/tensorboard").iterdir())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "wand",
            r"unknown destination 'wand'; did you mean 'wandb'\? .* WANDB_PROJECT, WANDB_RUN_GROUP and WANDB_TAGS",
        ),
        ("LinearSchedule(1, 0)", r"unknown destination 'LinearSchedule\(1, 0\)' \(choose from wandb, tensorboard"),
        ("wandb,tensorboard", r"unknown destination 'wandb,tensorboard'"),
        ("Wandb(projet=1)", "projet"),
    ],
)
def test_an_unknown_logger_is_refused_before_a_run_begins(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--log-to", text])


@pytest.mark.long
def test_a_trial_of_a_wandb_sweep_uses_its_values_and_has_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    for trial, lr in (("trial1", 0.002), ("trial2", 0.003)):
        monkeypatch.setenv("WANDB_RUN_ID", trial)
        # An agent writes the values of a sweep for ${args} in this form.
        values = [f"--algorithm.lr={lr}", "--actor.dueling=True", "--seeds=2"]
        shared = ["--algorithm=dqn", "--env=CartPole-v1", "--no-preset", "--steps=100", "--actor.hidden-sizes=8"]
        train(monkeypatch, *shared, *values)
        config = RunFolder(tmp_path / "runs" / "sweep-DQN-CartPole-v1" / "sweep1" / trial / "seed-2").read_config()
        assert config["algorithm"]["hyper_parameters"]["lr"] == lr
        assert config["actor"]["hyper_parameters"]["dueling"] is True


def test_trials_of_a_wandb_sweep_have_folders_below_log_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    monkeypatch.setenv("WANDB_RUN_ID", "trial1")
    arguments = ["--algorithm=dqn", "--env=CartPole-v1", "--steps=100", "--log-dir=mine"]
    assert described_run(arguments).run_folder(2) == Path("mine/sweep1/trial1/seed-2")
    # Our sweep, that an agent started, has chosen the folders of its trials itself.
    assert described_run([*arguments, "--parent-process=1"]).run_folder(2) == Path("mine/seed-2")
    assert described_run(arguments[:-1]).sweep_folder == Path("runs/sweep-DQN-CartPole-v1")


def test_runs_of_several_seeds_have_different_names_in_wandb() -> None:
    arguments = ["--algorithm=dqn", "--env=CartPole-v1", "--steps=100", "--log-to", 'Wandb(run_name="mine")']

    def name(seed: int, *more: str) -> str | None:
        (logger,) = described_run([*arguments, *more]).loggers(seed) or ()
        assert isinstance(logger, prl.Wandb)
        return logger.run_name

    assert name(1) == name(3, "--seeds", "3") == "mine"
    assert [name(seed, "--seeds", "1", "2") for seed in (1, 2)] == ["mine-seed-1", "mine-seed-2"]
    trial = Trial({"algorithm.lr": "1e-3"}, 2, Path("sweep/lr"))
    options = ["--seeds=2", "--parent-process=1", "--log-dir=sweep/lr"]
    assert name(2, *options) is None
    assert labels_in_wandb(trial, described_run([*arguments, *options]))["WANDB_NAME"] == "mine-lr=1e-3-seed-2"


def test_a_name_of_wandbs_variable_differs_between_seeds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_NAME", "paper")
    arguments = ["--algorithm=dqn", "--env=CartPole-v1", "--steps=100", "--log-to=wandb", "--seeds", "1", "2"]
    (logger,) = described_run(arguments).loggers(2) or ()
    assert isinstance(logger, prl.Wandb)
    assert logger.run_name == "paper-seed-2"
    assert described_run(arguments[:-1]).loggers(1) == ["wandb"]
