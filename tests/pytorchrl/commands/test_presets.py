"""Presets: each is a valid composition for its environment, and `train` names the return that it has reached."""

import importlib.util
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.commands import train as train_command
from pytorchrl.commands.composition import presets
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.composition.description import merge_descriptions, read_yaml
from pytorchrl.commands.composition.parts import RunParts, make_parts, part_named
from pytorchrl.commands.composition.presets import expected_return, no_preset, preset_of

FOLDER = Path(prl.__file__).parent / "commands" / "presets"
RETURNS, PUBLISHED = "returns.yaml", "published.yaml"
GAME = "ALE/Pong-v5"
PACKAGES = {
    "ALE/": "ale_py",
    "pytorchrl/MinAtar": "minatar",
    "LunarLander": "Box2D",
    "BipedalWalker": "Box2D",
    "PointMaze": "gymnasium_robotics",
    "Atari": "ale_py",
}
MUJOCO = "-v5"


def all_presets() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name not in (RETURNS, PUBLISHED):
            for algorithm, of_envs in read_yaml(file).items():
                for env, preset in of_envs.items():
                    yield algorithm, env, preset


def environment(algorithm: str, env: str) -> str:
    if env == "*":
        continuous = part_named(Algorithm, algorithm).actions in ("box", "bounded")
        return f"Mountain{'CarContinuous' if continuous else 'Car'}-v0"
    return GAME if env == "Atari" else env


def parts_of(algorithm: str, env: str, preset: dict[str, Any]) -> RunParts:
    named = {"algorithm": {"name": algorithm}, "env": {"name": environment(algorithm, env)}}
    return make_parts(merge_descriptions(preset, named))


def missing_package(env: str) -> str | None:
    needed = next((package for begin, package in PACKAGES.items() if env.startswith(begin)), None)
    needed = "mujoco" if needed is None and env.endswith(MUJOCO) else needed
    return needed if needed is not None and importlib.util.find_spec(needed) is None else None


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "env", "preset"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in all_presets()]
)
def test_a_preset_makes_a_valid_composition_for_its_environment(
    algorithm: str, env: str, preset: dict[str, Any]
) -> None:
    if (package := missing_package(env)) is not None:
        pytest.skip(f"{env} needs the package {package}")
    parts = parts_of(algorithm, env, preset)
    assert parts.algorithm.cls.__name__ == algorithm
    if env != "*":
        assert parts.steps == preset["steps"]
    if not all(needs.collected for needs in parts.algorithm.cls.sources.values()):
        return  # it learns from data, which a preset does not name
    # Only the capacity is left out: it may be gigabytes.
    size = min(parts.storage.hyper_parameters["size"], 4_096)
    whole = merge_descriptions(preset, {"algorithm": {"name": algorithm}, "env": {"name": environment(algorithm, env)}})
    small = make_parts(merge_descriptions(whole, {"storage": {"size": size}}))
    small.scheme(seed=1, device="cpu").close()


def test_presets_have_known_parts_and_are_found_by_their_environment() -> None:
    count = 0
    for algorithm, env, preset in all_presets():
        assert set(preset) <= {"algorithm", "actor", "storage", "env", "steps"}
        found, name = preset_of(getattr(prl, algorithm), environment(algorithm, env))
        said = {"*": "any environment", "Atari": "games of Atari"}.get(env, env)
        if env == "Atari" and importlib.util.find_spec("ale_py") is None:
            continue
        assert (found, name) == (preset, f"{algorithm}, {said}")
        count += 1
    assert count >= 80


@pytest.mark.parametrize(
    ("env", "others"),
    [
        ("CartPole-v1", {"DQN", "QRDQN", "Rainbow"}),
        ("Acrobot-v1", {"DQN", "QRDQN"}),
        ("MountainCar-v0", {"DQN", "QRDQN"}),
        ("LunarLander-v3", {"DQN"}),
        ("Pendulum-v1", {"SAC", "TD3", "TQC"}),
        ("MountainCarContinuous-v0", {"SAC", "TD3"}),
        ("LunarLanderContinuous-v3", {"SAC"}),
        ("BipedalWalker-v3", {"SAC", "TQC"}),
        *((f"{name}-v5", {"SAC"}) for name in ("InvertedPendulum", "InvertedDoublePendulum", "Reacher", "Swimmer")),
        *((f"{name}-v5", {"SAC", "TQC"}) for name in ("Hopper", "HalfCheetah", "Walker2d", "Ant")),
        *((f"pytorchrl/MinAtar-{game}-v0", {"DQN", "Rainbow"}) for game in ("Breakout", "Asterix", "Freeway")),
        *((f"pytorchrl/MinAtar-{game}-v0", {"DQN", "Rainbow"}) for game in ("Seaquest", "SpaceInvaders")),
    ],
)
def test_usual_tasks_have_presets_of_ppo_and_of_algorithms_with_replay(env: str, others: set[str]) -> None:
    for algorithm in {"PPO", *others}:
        preset, name = preset_of(getattr(prl, algorithm), env)
        assert preset["steps"] >= 1_000, f"{algorithm}, {env}"
        assert name == f"{algorithm}, {env}"


class SlowerSAC(prl.SAC):
    """SAC with a learning rate and a hyper-parameter of its own."""

    lr_q: float = 1e-5
    action_penalty: float = 0.1


def test_a_class_of_a_users_has_the_preset_of_what_it_extends_and_its_own_values() -> None:
    of_sac, _ = preset_of(prl.SAC, "Pendulum-v1")
    preset, name = preset_of(SlowerSAC, "Pendulum-v1")
    assert name == "SAC, Pendulum-v1, which SlowerSAC extends"
    assert "lr_q" in of_sac["algorithm"]
    assert preset == of_sac | {"algorithm": {k: v for k, v in of_sac["algorithm"].items() if k != "lr_q"}}
    with prl.compose("SlowerSAC", "Pendulum-v1") as own, prl.compose("SAC", "Pendulum-v1") as theirs:
        ours: Any = own.algorithm
        assert (ours.lr_q, ours.gamma, ours.mini_batch_size) == (1e-5, 0.98, 128)
        assert own.config["actor"] == theirs.config["actor"]


def test_algorithms_of_the_toolkit_have_no_presets_of_those_that_they_extend() -> None:
    assert preset_of(prl.TD3BC, "Pendulum-v1") == ({}, None)


def test_train_names_the_return_that_a_preset_has_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / RETURNS).write_text("DQN: {CartPole-v1: {steps: 60000, returns: [480.0, 500.0]}}\n")
    monkeypatch.chdir(tmp_path)
    original = presets._content
    monkeypatch.setattr(
        presets, "_content", lambda file: read_yaml(tmp_path / file) if file == RETURNS else original(file)
    )
    monkeypatch.setattr(train_command, "_train_all", lambda described: None)
    said = "Its policies reached a mean return of 490.0 over 2 seeds after 60,000 steps."
    train_command.train(["--algorithm", "dqn", "--env", "CartPole-v1"])
    assert said in " ".join(capsys.readouterr().out.split())
    train_command.train(["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset"])
    assert "mean return" not in capsys.readouterr().out
    train_command.train(["--algorithm", "dqn", "--env", "Acrobot-v1"])
    published = (
        "Published: a mean return of -76.6 after 100,000 steps (rl-baselines3-zoo); the preset's own is not measured"
    )
    assert published in " ".join(capsys.readouterr().out.split())
    assert expected_return("TQC", "Pendulum-v1") is None


def test_train_says_which_algorithms_have_a_preset_where_this_one_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_command, "_train_all", lambda described: None)

    def said(*arguments: str) -> str:
        train_command.train(["--algorithm", *arguments])
        return " ".join(capsys.readouterr().out.split())

    in_acrobot = "No preset for IQN in Acrobot-v1: default hyper-parameters; presets there: DQN, PPO, QRDQN."
    assert in_acrobot in said("iqn", "--env", "Acrobot-v1")
    assert "No preset" not in said("iqn", "--env", "Acrobot-v1", "--no-preset")
    assert "No preset" not in said("dqn", "--env", "Acrobot-v1")


def test_ids_without_presets_name_those_of_the_same_task() -> None:
    other_version = "No preset for TD3 in HalfCheetah-v4: default hyper-parameters; presets in HalfCheetah-v5: "
    assert no_preset(prl.TD3, "HalfCheetah-v4") == f"{other_version}PPO, SAC, TDMPC2, TQC."
    assert no_preset(prl.TD3, "Corridor-v0") == "No preset for TD3 in Corridor-v0: default hyper-parameters."
    assert no_preset(prl.TD3, "Corridor") == "No preset for TD3 in Corridor: default hyper-parameters."
    if importlib.util.find_spec("ale_py") is not None:
        of_envpool = "No preset for DQN in Pong-v5: default hyper-parameters; presets in ALE/Pong-v5: "
        assert no_preset(prl.DQN, "Pong-v5").startswith(of_envpool)


def test_settings_of_the_environment_that_replace_the_presets_are_named(tmp_path: Path) -> None:
    def notices(*arguments: str) -> str:
        return " ".join(described_run(["--algorithm", "ppo", "--env", *arguments]).notices)

    lost = "Not used of the preset: the wrapper NormalizeReward, as other settings of the environment are given."
    assert notices("Acrobot-v1", "--env.wrappers", "['TerminalReward']") == lost
    assert notices("Acrobot-v1", "--env.wrappers", "TerminalReward") == lost
    file = tmp_path / "run.yaml"
    file.write_text("env: {name: Acrobot-v1, wrappers: [[TimeLimit, {max_episode_steps: 9}]]}\n")
    assert notices("Acrobot-v1", "--config", str(file)) == lost
    assert notices("Acrobot-v1", "--env.wrappers", "['NormalizeReward', 'TerminalReward']") == ""
    assert notices("Acrobot-v1", "--num-envs", "2") == ""
    game = "pytorchrl/MinAtar-Breakout-v0"
    in_game = notices(game, "--env.env-kwargs", "{'minimal_action_set': True}")
    assert in_game == lost.replace("the wrapper NormalizeReward", "max_episode_steps=5000")


def test_measured_returns_are_of_presets_as_they_are() -> None:
    returns = read_yaml(FOLDER / RETURNS)
    for algorithm, of_envs in returns.items():
        for env, found in of_envs.items():
            preset, name = preset_of(getattr(prl, algorithm), env)
            if env in gym.registry:
                # The presets of games of Atari are one for all, and need their package to be found.
                assert name == f"{algorithm}, {env}" or name == f"{algorithm}, games of Atari"
                assert preset["steps"] <= found["steps"] < 1.1 * preset["steps"] + 2_048
            assert found["returns"]
            assert all(isinstance(value, float) for value in found["returns"])
            assert statistics.mean(found["returns"]) > float("-inf")


def test_options_override_a_preset() -> None:
    run = described_run(["--algorithm", "ppo", "--env", "Acrobot-v1", "--num-envs", "4", "--storage.size", "64"])
    assert run.parts.envs is not None
    assert run.parts.envs.hyper_parameters["num_envs"] == 4
    assert run.parts.storage.hyper_parameters["size"] == 64
    assert run.parts.storage.hyper_parameters["gae_lambda"] == 0.94
    assert run.preset == "PPO, Acrobot-v1"
