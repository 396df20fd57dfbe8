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
from pytorchrl.commands.composition.callbacks_and_loggers import make_callbacks
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
        assert set(preset) <= {"algorithm", "actor", "storage", "env", "callbacks", "steps"}
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
    (tmp_path / RETURNS).write_text("DQN: {CartPole-v1: {steps: 60000, returns: [480.0, 500.0], minutes: 2.1}}\n")
    monkeypatch.chdir(tmp_path)
    original = presets._content
    monkeypatch.setattr(
        presets, "_content", lambda file: read_yaml(tmp_path / file) if file == RETURNS else original(file)
    )
    monkeypatch.setattr(train_command, "_train_all", lambda described: None)
    said = "Its policies reached a mean return of 490.0 over 2 seeds after 60,000 steps, in 2.1 minutes of a processor"
    train_command.train(["--algorithm", "dqn", "--env", "CartPole-v1"])
    assert said in " ".join(capsys.readouterr().out.split())
    train_command.train(["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset"])
    assert "mean return" not in capsys.readouterr().out
    train_command.train(["--algorithm", "dqn", "--env", "Acrobot-v1"])
    published = (
        "Published: a mean return of -76.6 after 100,000 steps (rl-baselines3-zoo); the preset's own is not measured"
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert published in shown
    assert "unchanged preset" not in shown
    changes = ["--steps", "9", "--actor.dueling", "true", "--algorithm.test-every", "5", "--algorithm.gamma", "0.99"]
    train_command.train(["--algorithm", "dqn", "--env", "Acrobot-v1", *changes])
    unlike = "That is of the unchanged preset, from which this run differs in actor.dueling, steps."
    assert unlike in " ".join(capsys.readouterr().out.split())
    assert expected_return("Rainbow", "PongNoFrameskip-v4") == (
        "Published: a mean return of -19.3 after 100,000 steps (van Hasselt et al., arXiv 1906.05243); the preset's "
        "own is not measured yet."
    )
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
    game = "pytorchrl/MinAtar-Breakout-v0"
    in_game = notices(game, "--env.env-kwargs", "{'minimal_action_set': True}")
    assert in_game == lost.replace("the wrapper NormalizeReward", "max_episode_steps=5000")


def test_rewards_normalised_by_an_option_replace_the_wrapper_of_the_preset() -> None:
    run = described_run(["--algorithm", "ppo", "--env", "Acrobot-v1", "--normalize-rewards", "returns"])
    assert (
        "The wrapper NormalizeReward of the preset PPO, Acrobot-v1 is replaced by --normalize-rewards." in run.notices
    )
    assert run.changed == ["normalize_rewards"]
    scheme = run.scheme(seed=1)
    assert scheme.config["normalize_rewards"] == "returns"
    assert not scheme.config["train_envs"]["hyper_parameters"]["wrappers"]
    scheme.close()


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


def test_callbacks_of_a_preset_are_those_of_the_run_unless_others_are_given(tmp_path: Path) -> None:
    command = ["--algorithm", "bbf", "--env", GAME]
    if importlib.util.find_spec("ale_py") is None:
        pytest.skip("the preset is for games of Atari")
    reset, n_step, gamma = make_callbacks(described_run(command).settings)
    assert reset.config == prl.ResetNetworks(40_000, last_layers={"q": 1, "transition": 0}, keep=0.5).config
    assert [one.config["hyper_parameters"]["name"] for one in (n_step, gamma)] == ["n_step", "gamma"]
    # Each repetition begins where a reset is made: after 40,000 updates, of which a transition has two.
    assert [n_step.schedule.at(at, 100_000) for at in (0, 2_000, 7_000, 21_999, 22_000)] == pytest.approx(
        [10, 10, 3, 3, 10]
    )
    assert [gamma.schedule.at(at, 100_000) for at in (2_000, 7_000, 22_000)] == pytest.approx([0.97, 0.997, 0.97])
    assert described_run([*command, "--callbacks", "StopAtReturn(3)"]).settings["callbacks"] == ["StopAtReturn(3)"]
    (tmp_path / "run.yaml").write_text("callbacks: StopAfter(5)")
    of_file = described_run([*command, "--config", str(tmp_path / "run.yaml")])
    assert of_file.settings["callbacks"] == ["StopAfter(5)"]
    assert "callbacks" not in described_run([*command, "--no-preset", "--storage.sequences", "Sequences(6)"]).settings


def test_a_constant_in_place_of_a_schedule_of_the_preset_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def notices(*options: str) -> list[str]:
        return list(described_run(["--algorithm", "ppo", "--env", "CartPole-v1", *options]).notices)

    said = (
        "algorithm.lr stays constant, where the preset has LinearSchedule(1e-3, 0); a schedule is given in that form."
    )
    assert notices("--algorithm.lr", "3e-4") == [said]
    assert notices("--algorithm.lr", "LinearSchedule(3e-4, 0)") == []
    assert notices("--algorithm.gamma", "0.9") == []
    with prl.compose({"name": "PPO", "lr": 3e-4}, "CartPole-v1"):
        assert f"compose: {said}" in capsys.readouterr().out


def test_replay_holds_the_presets_transitions_with_other_numbers_of_copies(capsys: pytest.CaptureFixture[str]) -> None:
    run = described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--num-envs", "8"])
    assert run.parts.storage.hyper_parameters["size"] == 7_500
    assert "storage.size is 7,500 steps instead of 60,000, so that replay holds 60,000 transitions" in run.notices[0]
    given = described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--num-envs", "8", "--storage.size", "500"])
    assert (given.parts.storage.hyper_parameters["size"], given.notices) == (500, [])
    fewer = described_run(["--algorithm", "r2d2", "--env", "CartPole-v1", "--env.num-envs", "1"])
    assert fewer.parts.storage.hyper_parameters["size"] == 4 * 12_500
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=4)
    for env, num_envs in (("CartPole-v1", 4), (envs, None)):
        with prl.compose("DQN", env, num_envs=num_envs) as scheme:
            assert (scheme.storage.size, scheme.storage.capacity) == (15_000, 60_000)
        said = " ".join(capsys.readouterr().out.split())
        assert "compose: With 4 copies of the environment instead of 1, storage.size is" in said
    storage = prl.ReplayBuffer.create_factory(size=300)
    with prl.compose("DQN", "CartPole-v1", num_envs=4, storage=storage) as scheme:
        assert scheme.storage.size == 300
    assert "storage.size" not in capsys.readouterr().out


def test_other_rollouts_and_minibatches_than_the_presets_are_named_with_what_keeps_them() -> None:
    command = ["--algorithm", "ppo", "--env", "Acrobot-v1", "--num-envs"]
    assert described_run([*command, "32"]).notices == [
        "With 32 copies of the environment instead of 16, a rollout has 8,192 transitions instead of 4,096, and a "
        "minibatch 128 instead of 64; storage.size=128 keeps those of the preset, algorithm.num_mini_batch=128 its "
        "minibatches alone."
    ]
    assert described_run([*command, "32", "--storage.size", "128"]).notices == []
    assert described_run([*command, "16"]).notices == []


def test_rewards_are_not_normalised_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with prl.compose("PPO", "MountainCar-v0", normalize_rewards="returns", num_envs=16) as scheme:
        assert scheme.config["train_envs"]["hyper_parameters"]["wrappers"] == []
    replaced = "NormalizeReward of the preset PPO, MountainCar-v0 is replaced by normalize_rewards"
    assert replaced in " ".join(capsys.readouterr().out.split())
    own = {"name": "MountainCar-v0", "wrappers": [["NormalizeReward", {"gamma": 0.9}]], "num_envs": 16}
    with pytest.raises(prl.CompositionError, match="normalised twice, by the wrapper NormalizeReward and by"):
        prl.compose("PPO", own, normalize_rewards="returns")


def test_a_dry_run_prints_all_values_that_the_preset_names_and_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train_command.train(["--algorithm", "ppo", "--env", "CartPole-v1", "--dry-run"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "num_mini_batch=4" in shown, "it is the default, too"
    assert "100,000 steps, seeds 1, in runs/PPO-CartPole-v1: not trained; the parts fit each other and the" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithm", "sac", "--env", "CartPole-v1"], "SAC needs a Box action space, the environments have Discr"),
        (
            ["--algorithm", "dqn", "--env", "CartPole-v1", "--env.wrappers", "JoinActions"],
            "JoinActions: the action spa",
        ),
        (["--algorithm", "mbpo", "--env", "pytorchrl/PixelPendulum-v0"], "MBPO predicts observations, which must be a"),
        (["--algorithm", "dqn", "--env", "CartPole-v1", "--actor.action-mask", "mask"], "mask"),
        (["--algorithm", "dqn", "--env", "CartPole-v1", "--storage", "gae"], "DQN"),
    ],
)
def test_a_dry_run_refuses_parts_that_do_not_fit_as_a_run_would(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = []
    for way in (["--dry-run", "--storage.directory", "replay"] if "gae" not in arguments else ["--dry-run"], []):
        with pytest.raises(ValueError, match=message) as error:
            train_command.train([*arguments, *way, "--no-preset"])
        said.append(str(error.value))
    assert said[0] == said[1]
    assert not Path("replay").exists()


def test_help_names_the_preset_and_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "The preset DQN, CartPole-v1 is used; --no-preset leaves it out." in shown
    assert "(here: LinearSchedule(1e-3, 0); default: 0.001)" in shown
    with pytest.raises(SystemExit):
        described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset", "--help"])
    assert "here: " not in capsys.readouterr().out


def test_games_that_another_library_steps_lack_preprocessing_which_is_said() -> None:
    if importlib.util.find_spec("ale_py") is None:
        pytest.skip("the games need their package")
    command = ["--algorithm", "ppo", "--env", "ALE/Breakout-v5", "--env.backend", "ale"]
    (said,) = described_run(command).notices
    assert "the loss of a life ends no episode and rewards are not clipped" in said
    assert "episodic_life=True in env_kwargs ends one, and restarts the game" in said
    clipping = "[('ClipReward', {'min_reward': -1, 'max_reward': 1})]"
    assert clipping.replace("'", '"') in said
    flags = "{'episodic_life': True}"
    assert described_run([*command, "--env.env-kwargs", flags, "--env.wrappers", clipping]).notices == []
    if importlib.util.find_spec("envpool") is not None:
        of_pool = ["--algorithm", "dqn", "--env", "Breakout-v5", "--env.backend", "envpool"]
        said = described_run([*of_pool, "--env.env-kwargs", "{'reward_clip': True}"]).notices[-1]
        assert said == (
            "EnvPool preprocesses the games itself: the loss of a life ends no episode; episodic_life=True in "
            "env_kwargs ends one; returns stay those of whole games."
        )


def test_options_override_a_preset() -> None:
    run = described_run(["--algorithm", "ppo", "--env", "Acrobot-v1", "--num-envs", "4", "--storage.size", "64"])
    assert run.parts.envs is not None
    assert run.parts.envs.hyper_parameters["num_envs"] == 4
    assert run.parts.storage.hyper_parameters["size"] == 64
    assert run.parts.storage.hyper_parameters["gae_lambda"] == 0.94
    assert run.preset == "PPO, Acrobot-v1"
