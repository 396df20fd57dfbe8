"""Runs are grouped by composition, and groups are named by their differences."""

import copy
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.logging.curves import Run, read_run
from pytorchrl.logging.groups import environment, grouped, named_groups, shown_environment, title, unit
from tests.support.run_folders import composition, recorded_run


def run(config: dict[str, Any], folder: str = "run") -> Run:
    return Run(Path(folder), config, [])


def members(runs: list[Run]) -> list[list[Run]]:
    return [list(group.runs) for group in grouped(runs)]


def names(configs: list[dict[str, Any]]) -> list[str]:
    return [group.name for group in grouped([run(config, f"runs/folder {n}") for n, config in enumerate(configs)])]


def test_runs_that_differ_only_in_seed_and_logging_form_one_group() -> None:
    one, two = run(composition(seed=1), "1"), run(composition(seed=2, log_to=["wandb"], log_every=7), "2")
    other = run(composition(seed=1, settings={"gamma": 0.9}), "3")
    reordered = run(dict(reversed(composition(seed=4).items())), "4")
    assert members([one, other, two, reordered]) == [[one, two, reordered], [other]]


def test_callbacks_that_only_measure_and_save_do_not_divide_runs() -> None:
    def called(name: str) -> dict[str, Any]:
        return {"name": name, "hyper_parameters": {"every": 100}}

    callbacks = [[], [called("TDError"), called("SavePolicies")], [called("ResetNetworks")], [called("OfAUser")]]
    groups = grouped([run(composition(seed=seed, callbacks=one)) for seed, one in enumerate(callbacks)])
    assert [len(group.runs) for group in groups] == [2, 1, 1]


def test_runs_of_other_lengths_form_one_group_unless_something_follows_their_target() -> None:
    falling = {"lr": {"name": "LinearSchedule", "hyper_parameters": {"initial": 0.1, "final": 0}}}
    own = {"name": "OfAUser", "hyper_parameters": {}}
    for more, groups in (({}, 1), ({"settings": falling}, 2), ({"callbacks": [own]}, 2), ({"own_classes": ["It"]}, 2)):
        runs = [run(composition(target_steps=steps, **copy.deepcopy(more)), str(steps)) for steps in (1_000, 2_000)]
        assert len(grouped(runs)) == groups
    assert names([composition(target_steps=1_000, settings=falling), composition(settings=falling, seed=2)]) == ["DQN"]


def test_a_run_that_was_changed_by_hand_is_a_group_of_its_own_with_the_change_in_its_name() -> None:
    changed = [{"steps": 4_000, "part": "DQN", "hyper_parameters": {"gamma": 0.9}}]
    assert names([composition(), composition(changed_by_hand=changed, seed=2)]) == [
        "DQN",
        "DQN, gamma=0.9 from step 4,000",
    ]
    for damaged in (3, [3], [{"steps": "x", "hyper_parameters": {}}], [{"steps": 1}]):
        assert len(names([composition(changed_by_hand=damaged)])) == 1


def test_runs_of_unknown_composition_are_not_grouped() -> None:
    one, two = run({}, "1"), run({}, "2")
    assert members([one, two]) == [[one], [two]]
    assert len(members([run({"seed": 1}, "1"), run({"seed": 1}, "2")])) == 2


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([composition("DQN"), composition("SAC")], ["DQN", "SAC"]),
        (
            [composition(storage="ReplayBuffer"), composition(storage="PERBuffer")],
            ["DQN + ReplayBuffer", "DQN + PERBuffer"],
        ),
        (
            [composition(env="CartPole-v1"), composition(env="Acrobot-v1")],
            ["DQN", "DQN"],
        ),
        ([composition(env={"callable": "toys.Counter"}), composition()], ["DQN", "DQN"]),
        (
            [composition(buffer={"n_step": 1}), composition(buffer={"n_step": 3}), composition(buffer={"n_step": 5})],
            ["DQN, n_step=1", "DQN, n_step=3", "DQN, n_step=5"],
        ),
        (
            [composition(settings={"lr": 0.1, "gamma": 0.9}), composition(settings={"lr": 0.2})],
            ["DQN, lr=0.1, gamma=0.9", "DQN, lr=0.2"],
        ),
        (
            [composition("DQN", env="A-v0"), composition("DQN", env="B-v0"), composition("SAC", env="A-v0")],
            ["DQN", "DQN", "SAC"],
        ),
        (
            [composition(settings={}), composition(settings={"a": 1, "b": 2, "c": 3, "d": 4})],
            ["folder 0", "folder 1"],
        ),
        ([composition(), {}], ["DQN", "folder 1"]),
    ],
    ids=[
        "algorithm",
        "storage",
        "environment",
        "own environment",
        "setting",
        "settings",
        "both",
        "too many",
        "unknown",
    ],
)
def test_group_names_contain_only_the_differences_within_an_environment(
    configs: list[dict[str, Any]], expected: list[str]
) -> None:
    assert names(configs) == expected


def test_settings_of_one_storage_are_not_in_the_name_of_another() -> None:
    configs = [
        composition(storage="ReplayBuffer"),
        composition(storage="PERBuffer", buffer={"alpha": 0.4}),
        composition(storage="PERBuffer", buffer={"alpha": 0.6}),
        composition("PPO", storage="GAEBuffer"),
    ]
    assert names(configs) == ["DQN + ReplayBuffer", "DQN + PERBuffer, alpha=0.4", "DQN + PERBuffer, alpha=0.6", "PPO"]


def test_settings_that_differ_only_between_environments_are_not_in_names() -> None:
    configs = [
        composition(env="A-v0", settings={"gamma": 0.9, "lr": 1e-3}),
        composition(env="A-v0", settings={"gamma": 0.9, "lr": 1e-4}),
        composition(env="B-v0", settings={"gamma": 0.99, "lr": 1e-3}, storage="PERBuffer"),
    ]
    assert names(configs) == ["DQN, lr=0.001", "DQN, lr=0.0001", "DQN, lr=0.001"]


def test_settings_in_names_are_short_and_unambiguous() -> None:
    schedule = {"name": "LinearSchedule", "hyper_parameters": {"initial": 1e-3, "final": 0.0}}
    configs = [composition(settings={"lr": schedule}), composition(settings={"lr": 5e-4})]
    assert names(configs) == ["DQN, lr=LinearSchedule(0.001, 0)", "DQN, lr=0.0005"]
    configs = [composition(settings={"lr": 1.0, "optimizer": {"lr": rate}}) for rate in (1, 2)]
    configs += [composition(settings={"lr": 2.0, "optimizer": {"lr": 1}})]
    assert names(configs) == [
        f"DQN, algorithm.lr={lr}, algorithm.optimizer.lr={rate}" for lr, rate in ((1, 1), (1, 2), (2, 1))
    ]


def test_an_environment_with_other_arguments_counts_as_another_environment() -> None:
    shorter = composition()
    shorter["train_envs"] = {"hyper_parameters": {"env": "CartPole-v1", "env_kwargs": {"max_episode_steps": 50}}}
    assert environment(shorter) == "CartPole-v1(max_episode_steps=50)"
    assert names([composition(), shorter]) == ["DQN", "DQN"]
    assert environment(composition() | {"test_envs": shorter["train_envs"]}) == "CartPole-v1(max_episode_steps=50)"


def test_named_groups_are_divided_by_environment() -> None:
    one, two, three = (run(composition(env=env), env) for env in ("A-v0", "B-v0", "A-v0"))
    groups = named_groups({"mine": [one, two, three]})
    assert [(group.name, group.environment, len(group.runs)) for group in groups] == [
        ("mine", "A-v0", 2),
        ("mine", "B-v0", 1),
    ]


def test_seeds_are_not_in_the_names_of_groups() -> None:
    runs = [run(composition(seed=seed, settings={"lr": lr})) for lr in (0.1, 0.2) for seed in (2, 1)]
    assert [group.name for group in grouped(runs)] == ["DQN, lr=0.1", "DQN, lr=0.2"]


def test_folders_with_equal_names_are_distinguished_by_their_paths() -> None:
    assert [group.name for group in grouped([run({}, "a/run"), run({}, "b/run")])] == ["a/run", "b/run"]


def test_groups_named_by_folders_have_the_name_of_the_folder_of_their_seeds() -> None:
    far = [{}, {"a": 1, "b": 2, "c": 3, "d": 4}]
    runs = [
        run(composition(seed=seed, settings=settings), f"sweep/{number}/seed-{seed}")
        for number, settings in enumerate(far)
        for seed in (1, 2)
    ]
    assert [group.name for group in grouped(runs)] == ["0", "1"]
    beside = [Run(Path(f"runs/{number}"), one.config, []) for number, one in enumerate(runs)]
    assert [group.name for group in grouped(beside)] == ["0 and 1 more", "2 and 1 more"]
    below = [run(one.config, f"runs/dqn/seed-{number}") for number, one in enumerate(runs[:2])]
    below += [run(one.config, f"runs/dqn/trials/{number}/seed-1") for number, one in enumerate(runs[2:])]
    assert [group.name for group in grouped(below)] == ["dqn", "trials"]


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([composition(), composition(seed=3)], "DQN on CartPole-v1"),
        ([composition(), composition("SAC", env="Pendulum-v1")], "DQN, SAC on CartPole-v1, Pendulum-v1"),
        ([composition(name) for name in ("A2C", "DQN", "PPO", "SAC")], "CartPole-v1"),
        ([{}, {}], "folder 0, folder 1"),
    ],
)
def test_the_title_names_algorithms_and_environments(configs: list[dict[str, Any]], expected: str) -> None:
    assert title(grouped([run(config, f"runs/folder {n}") for n, config in enumerate(configs)])) == expected


def test_the_steps_of_offline_runs_are_updates() -> None:
    envs = {"name": "VecEnv", "hyper_parameters": {"env": "Pendulum-v1"}}
    trained, offline = run(composition()), run(composition("BCQ") | {"train_envs": None, "test_envs": envs})
    assert unit(grouped([trained])) == unit(grouped([run({})])) == "environment steps"
    assert unit(grouped([offline, offline])) == "updates"
    assert unit(grouped([trained, offline])) == "environment steps, or updates"
    assert title(grouped([offline])) == "BCQ on Pendulum-v1"


def test_the_title_of_runs_without_environments_names_the_data_set() -> None:
    storage = {"name": "ReplayBuffer", "hyper_parameters": {}, "dataset": "logs/ward.npz"}
    configs = [
        composition("BCQ", seed=seed) | {"train_envs": None, "test_envs": None, "storage": storage} for seed in (1, 2)
    ]
    assert title(grouped([run(one, f"runs/bcq/seed-{number}") for number, one in enumerate(configs)])) == (
        "BCQ on ward.npz"
    )


def test_runs_that_differ_only_in_the_directory_of_a_source_form_one_group(tmp_path: Path) -> None:
    runs = []
    for number in range(2):
        source = {"name": "ReplayBuffer", "hyper_parameters": {"size": 9, "directory": f"expert-{number}"}}
        config = composition("GAIL", seed=number) | {"sources": {"expert": source}}
        runs.append(read_run(recorded_run(tmp_path / str(number), [{"steps": 10, "test/return": 1.0}], config)))
    assert len(grouped(runs)) == 1


@pytest.mark.parametrize(
    ("of_config", "shown"),
    [
        ("ALE/Pong(repeat_action_probability=0.25, full_action_space=False, max_frames=108000)", "ALE/Pong-v5"),
        ("ALE/Pong(repeat_action_probability=0, full_action_space=False, max_frames=108000)", "PongNoFrameskip-v4"),
        (
            "ALE/Pong(repeat_action_probability=0.25, full_action_space=True, max_frames=108000, frame_skip=5)",
            "ALE/Pong-v5(full_action_space=True, frame_skip=5)",
        ),
        ("ALE/Pong(repeat_action_probability=0.1)", "ALE/Pong(repeat_action_probability=0.1)"),
        ("ALE/Pong-v5(frameskip=1)", "ALE/Pong-v5(frameskip=1)"),
        ("CartPole-v1", "CartPole-v1"),
        ("", ""),
    ],
)
def test_headings_have_the_ids_of_games_of_atari(of_config: str, shown: str) -> None:
    assert shown_environment(of_config) == shown


def test_the_id_in_a_heading_is_the_one_that_makes_the_environment() -> None:
    pytest.importorskip("ale_py")
    for env in ("ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4"):
        assert shown_environment(environment({"train_envs": prl.atari_envs(env).config})) == env
