"""Configuration files of ``train``: their syntax, and what they may say."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import pytorchrl as prl
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.composition.description import read_yaml
from pytorchrl.commands.sweeps.sweep import sweep
from pytorchrl.commands.train import train as train_command
from pytorchrl.experiments.runs.run_folder import RunFolder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "algorithm: DQN\nenv: CartPole-v1\nsteps: 100\nsteps: 200\n",
            "the key 'steps' is in line 3 and again in line 4",
        ),
        (
            "algorithm:\n  name: DQN\n  lr: 1e-3\n  gamma: 0.9\n  lr: 1e-4\nenv: CartPole-v1\n",
            "the key 'lr' is in line 3 and again in line 5",
        ),
        ("algorithm: {name: DQN, 'lr': 1e-3, lr: 1e-4}\nenv: CartPole-v1\n", "the key 'lr' is in line 1"),
    ],
)
def test_a_key_that_a_configuration_file_has_twice_is_refused_with_its_lines(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(prl.CompositionError, match=re.escape(f"{file}: {message}")):
        described_run(["--config", str(file)])


def test_keys_that_a_configuration_file_merges_in_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("a: &a {lr: 1, gamma: 2}\nb: &b {<<: *a, lr: 3}\nc: {<<: *b, gamma: 4}\n")
    assert read_yaml(file) == {"a": {"lr": 1, "gamma": 2}, "b": {"lr": 3, "gamma": 2}, "c": {"lr": 3, "gamma": 4}}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": "many"}, "steps must be a whole number from 1, got 'many'"),
        ({"steps": True}, "steps must be a whole number from 1, got True"),
        ({"seeds": ["a"]}, "seeds must be whole numbers from 0, got ['a']"),
        ({"seeds": -1}, "seeds must be whole numbers from 0, got -1"),
        ({"seeds": [1, 2, 1]}, "seeds must differ, as runs of equal seeds are equal; got [1, 2, 1]"),
        ({"log_dir": 3}, "log_dir must be the path of a folder, got 3"),
        ({"from": 3}, "from must be a text, got 3"),
        ({"data": ["a", "b"]}, "data must be a text, got ['a', 'b']"),
        ({"online": "maybe"}, "online must be true or false, got 'maybe'"),
        ({"checkpoint_every": 0}, "checkpoint_every must be a whole number from 1, got 0"),
        ({"callbacks": [3]}, "callbacks must be callbacks, such as StopAtReturn(475), got [3]"),
        ({"log_to": {"wandb": True}}, "log_to must be names of destinations, got {'wandb': True}"),
        ({"algorithm": {"name": ["DQN"]}}, "the name of algorithm must be a text, got ['DQN']"),
    ],
)
def test_a_setting_of_another_type_in_a_configuration_file_is_named(
    setting: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"algorithm": "DQN", "env": "CartPole-v1"} | setting))
    with pytest.raises(prl.CompositionError, match=re.escape(message)):
        described_run(["--config", str(file)])


def test_a_single_value_may_stand_for_a_list_in_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("algorithm: DQN\nenv: CartPole-v1\nseeds: 3\nlog_to: tensorboard\ncallbacks: StopAtReturn(475)\n")
    settings = described_run(["--config", str(file)]).settings
    assert (settings["seeds"], settings["log_to"]) == ([3], ["tensorboard"])
    assert settings["callbacks"] == ["StopAtReturn(475)"]


def test_options_override_single_values_of_a_configuration_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ppo.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "algorithm": {"name": "PPO", "lr": "LinearSchedule(1e-3, 0)", "test_every": 0, "gamma": 0.95},
                "actor": {"hidden_sizes": [8, 8]},
                "storage": {"size": 16},
                "env": {"name": "CartPole-v1", "num_envs": 2, "env_kwargs": {"max_episode_steps": 20}},
                "steps": 96,
                "seeds": [2],
                "log_dir": str(tmp_path / "runs"),
            }
        )
    )
    options = ["--algorithm.gamma=0.9", "--steps", "64", "--seeds", "3"]
    train_command(["--config", str(file), *options, "--no-preset"])
    assert "Preset" not in capsys.readouterr().out
    config = RunFolder(tmp_path / "runs" / "seed-3").read_config()
    expected = prl.PPO.create_factory(lr=prl.LinearSchedule(1e-3, 0), test_every=0, gamma=0.9)
    assert config["algorithm"] == expected.config
    assert config["actor"]["hyper_parameters"]["hidden_sizes"] == [8, 8]
    assert config["storage"] == prl.GAEBuffer.create_factory(size=16).config
    assert config["train_envs"]["hyper_parameters"]["env_kwargs"] == {"max_episode_steps": 20}
    assert config["target_steps"] == 64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "must be a mapping of names to values, got list"),
        ("a: [1", "is not valid YAML"),
        ("!!python/object/apply:os.system ['ls']", "is not valid YAML"),
        (
            "algorthm: dqn",
            "unknown key 'algorthm'; did you mean algorithm\\? Choose from algorithm, actor, storage, env",
        ),
        ("storage: [1]", "storage must be a name, or a mapping"),
    ],
)
def test_an_invalid_configuration_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    with pytest.raises(prl.CompositionError, match=message):
        described_run(["--config", str(file)])


@pytest.mark.parametrize("spelt", ["sac", "SAC", "Sac"])
def test_the_class_of_a_file_keeps_its_settings_however_an_option_spells_it(
    spelt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("algorithm: {name: SAC, gamma: 0.9}\nenv: Pendulum-v1\nsteps: 10\n")
    parts = described_run(["--config", str(file), "--algorithm", spelt]).parts
    assert parts.algorithm.hyper_parameters["gamma"] == 0.9
    assert "Not used" not in capsys.readouterr().out


def test_settings_of_a_file_for_another_class_than_an_option_names_are_said_to_be_unused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("algorithm: {name: SAC, gamma: 0.9, lr_q: 0.1}\nenv: Pendulum-v1\nsteps: 10\n")
    parts = described_run(["--config", str(file), "--algorithm", "td3", "--no-preset"]).parts
    assert parts.algorithm.hyper_parameters["gamma"] == prl.TD3.create_factory().hyper_parameters["gamma"]
    said = " ".join(capsys.readouterr().out.split())
    assert "Not used of the configuration file: algorithm SAC's gamma, lr_q, as --algorithm names TD3" in said


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("CartPole-v1: {n_timesteps: 1e5}", "unknown key 'CartPole-v1'; write env: CartPole-v1, with"),
        ("algorithm: PPO\nn_timesteps: 1e5", "unknown key 'n_timesteps'; here it is steps;"),
        ("n_timesteps: 1e5", "unknown key 'n_timesteps'; here it is steps;"),
        ("algorithm: PPO\npolicy: MlpPolicy", "unknown key 'policy'; here it is actor;"),
        ("algorithm: PPO\nnormalize: true", "here it is normalize_observations: true under actor, and for rewards"),
        ("algorithm: PPO\nnormalize_rewards: return", "normalize_rewards must be returns or rewards"),
        ("algorithm: DQN\nlearning_rate: 1e-3", "unknown key 'learning_rate'; here it is lr under algorithm;"),
        ("algorithm: DQN\ndevise: cpu", "unknown key 'devise'; did you mean device?"),
        ("algorithm: {name: DQN, normalize: true}\nenv: CartPole-v1", "normalize_observations of the actor"),
        ("algorithm: {name: DQN, normalize_rewards: 1}\nenv: CartPole-v1", "it is normalize_rewards of Scheme"),
        ("algorithm: {name: PPO, lr: lin_0.001}\nenv: CartPole-v1", "is 'LinearSchedule(0.001, 0)'"),
        ("algorithm: {name: PPO, lr: lin_3e-4}\nenv: CartPole-v1", "is 'LinearSchedule(3e-4, 0)'"),
    ],
)
def test_settings_of_the_zoo_in_a_configuration_file_are_answered_with_ours(
    content: str, answer: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(answer)):
        described_run(["--config", str(file)])


@pytest.mark.parametrize("steps", ["4e3", "4.0e+3", "4000", "'4000'"])
def test_steps_may_be_written_with_an_exponent(steps: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"algorithm: PPO\nenv: CartPole-v1\nsteps: {steps}\n")
    assert described_run(["--config", str(file)]).parts.steps == 4_000
    given = ["--algorithm", "PPO", "--env", "CartPole-v1", "--steps", steps.strip("'")]
    assert described_run(given).parts.steps == 4_000


def test_steps_that_are_no_whole_number_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        described_run(["--algorithm", "PPO", "--env", "CartPole-v1", "--steps", "4.5"])
    assert "argument --steps: must be a whole number, got '4.5'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("--optimize", "here it is python -m pytorchrl sweep --vary"),
        ("--n-trials", "here it is --trials of python -m pytorchrl sweep"),
        ("--hyperparams", "here it is an option of each, such as --algorithm.gamma=0.99"),
    ],
)
def test_options_of_the_zoos_commands_are_answered_with_ours(
    option: str, here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        described_run(["--algorithm", "PPO", "--env", "CartPole-v1", option])
    assert f"there is no option {option}; {here}" in capsys.readouterr().err


def test_an_error_in_the_arguments_of_a_sweep_names_the_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sweep(["--algorithm", "PPO", "--env", "CartPole-v1", "--vary", "algorithm.lr", "1", "--unheard-of"])
    said = capsys.readouterr().err
    assert "python -m pytorchrl sweep: error: there is no option --unheard-of" in said
    assert "pytorchrl train" not in said
