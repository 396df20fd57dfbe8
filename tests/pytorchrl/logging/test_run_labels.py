"""Names, groups, tags and settings of runs, as services show them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.logging.run_labels import group_of_run, name_of_run, settings_by_option, tags_of_run
from tests.support.run_folders import composition

RUN = "--algorithm=sac --env=Pendulum-v1 --storage=per --no-preset --seed=3 --steps=500 --env.num-envs=2"
SETTINGS = (
    *("--algorithm.lr-q=LinearSchedule(1e-3, 0)", "--algorithm.optimizer=Adam(eps=1e-4)", "--storage.alpha=0.7"),
    *("--actor.hidden-sizes=64,32", "--algorithm.test-every=100", "--storage.sequences=Sequences(20, burn_in=5)"),
)


def config_of(arguments: list[str]) -> dict[str, Any]:
    scheme = described_run(arguments).scheme(3)
    scheme.close()
    config: dict[str, Any] = json.loads(json.dumps(scheme.config))
    return config | {"target_steps": 500}


@pytest.mark.parametrize("settings", [SETTINGS[:5], (*SETTINGS[5:], "--actor.memory=gru")], ids=["usual", "memory"])
def test_the_settings_given_to_train_again_compose_the_same_run(settings: tuple[str, ...]) -> None:
    config = config_of([*RUN.split(), *settings])
    names = settings_by_option(config)
    # What has no option: the class of an actor or a storage has one, but not that of environments.
    unset = {"test_envs", "normalize_rewards", "collection", "max_test_episode_steps", "test_seed"}
    given = {name: value for name, value in names.items() if name not in unset and not name.startswith("hogwild.")}
    assert {"algorithm", "env", "seed", "steps", "algorithm.lr_q", "storage.alpha", "env.num_envs"} <= given.keys()
    assert config_of(["--no-preset", *(f"--{name}={value}" for name, value in given.items())]) == config


def test_a_sweep_may_choose_the_seed_by_the_name_that_the_config_has() -> None:
    assert described_run([*RUN.split(), "--seed=7"]).seeds == [7]


def test_numbers_and_lists_stay_what_they_are_and_objects_are_texts() -> None:
    schedule = {"name": "LinearSchedule", "hyper_parameters": {"initial": 1.0, "final": 0.05}}
    settings = {
        "lr": 0.5,
        "double": True,
        "epsilon": schedule,
        "explorer": None,
        "sizes": [64, 32],
        "net": {"callable": "a:f"},
    }
    assert settings_by_option(
        {"algorithm": {"name": "DQN", "hyper_parameters": settings}, "spaces": {"action": 1}}
    ) == {
        "algorithm": "DQN",
        "algorithm.lr": 0.5,
        "algorithm.double": True,
        "algorithm.epsilon": "LinearSchedule(initial=1.0, final=0.05)",
        "algorithm.explorer": None,
        "algorithm.sizes": [64, 32],
        "algorithm.net": "a:f",
    }


def test_a_group_has_runs_that_differ_only_in_seed_steps_folder_and_logging() -> None:
    stored = {"name": "ReplayBuffer", "hyper_parameters": {"directory": "here"}}
    elsewhere = {"name": "ReplayBuffer", "hyper_parameters": {"directory": "there"}}
    first = composition("DQN") | {"storage": stored}
    same = composition("DQN", seed=4, target_steps=9, log_to=["wandb"]) | {"storage": elsewhere}
    other = composition("DQN", settings={"lr": 0.1}) | {"storage": stored}
    assert group_of_run(first) == group_of_run(same) != group_of_run(other)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (composition("PPO", env="ALE/Pong-v5", seed=7), "PPO-ALE-Pong-v5-seed-7"),
        (composition("TD3BC", seed=1) | {"train_envs": None}, "TD3BC-seed-1"),
        ({"seed": 1}, "folder"),
    ],
)
def test_a_run_is_named_by_algorithm_environment_and_seed(config: dict[str, Any], name: str, tmp_path: Path) -> None:
    assert name_of_run(config, tmp_path / "folder") == name


def test_a_tag_that_wandb_refuses_is_left_out() -> None:
    assert tags_of_run(composition("DQN", env="x" * 65)) == ["DQN", "ReplayBuffer"]
    assert tags_of_run({}) == []
