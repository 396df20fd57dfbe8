"""Ids of Atari mean preprocessed games in every command and in `compose`."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.envs.games.atari_envs import preprocessed
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.logging.groups import environment

if importlib.util.find_spec("ale_py") is None:
    pytest.skip("the package ale-py is not installed", allow_module_level=True)

IDS = ("ALE/Breakout-v5", "BreakoutNoFrameskip-v4", "Pong-v4")
RAW = (210, 160, 3)


def envs_of(*arguments: str) -> Any:
    return described_run(("--algorithm", "dqn", *arguments)).parts.envs


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    main()


@pytest.mark.parametrize("env", IDS)
def test_train_makes_the_environments_of_atari_envs(env: str) -> None:
    assert envs_of("--env", env, "--num-envs", "2") == prl.atari_envs(env, num_envs=2)


@pytest.mark.long
@pytest.mark.parametrize("env", IDS)
def test_compose_makes_the_environments_of_atari_envs(env: str) -> None:
    with prl.compose("DQN", env, storage=prl.ReplayBuffer.create_factory(size=10), num_envs=2) as scheme:
        assert scheme.config["train_envs"] == prl.atari_envs(env, num_envs=2).config
        assert scheme.envs.observation_space.shape == (4, 84, 84)
        assert scheme.envs.stacked_frames == 4
    with prl.compose("DQN", env, storage=prl.ReplayBuffer.create_factory(size=10), preprocessing=False) as raw:
        assert raw.envs.observation_space.shape == RAW


def test_frames_stay_raw_where_the_user_says_so(tmp_path: Path) -> None:
    def raw(*arguments: str) -> bool:
        return bool(envs_of("--env", IDS[1], *arguments).hyper_parameters["env"] == IDS[1])

    assert raw("--no-preprocessing")
    file = tmp_path / "run.yaml"
    file.write_text("preprocessing: false\n")
    assert raw("--config", str(file))
    assert raw("--env.env-kwargs", "{'obs_type': 'ram'}")
    assert raw("--env.wrappers", "['AtariPreprocessing', ('FrameStackObservation', {'stack_size': 4})]")
    assert raw("--env.backend", "ale")
    assert not raw()
    file.write_text("preprocessing: 3\n")
    with pytest.raises(prl.CompositionError, match="preprocessing must be true or false, got 3"):
        raw("--config", str(file))


def test_arguments_of_ales_own_environments_keep_their_meaning() -> None:
    kwargs = "{'frameskip': 2, 'repeat_action_probability': 0.1, 'difficulty': 1, 'max_episode_steps': 50}"
    made = envs_of("--env", IDS[0], "--env.env-kwargs", kwargs, "--env.wrappers", "RandomizeAction").hyper_parameters
    assert made["env_kwargs"]["frame_skip"] == 2
    assert made["env_kwargs"]["repeat_action_probability"] == 0.1
    assert made["env_kwargs"]["game_difficulty"] == 1
    assert made["env_kwargs"]["max_episode_steps"] == 50
    assert "RandomizeAction" in made["wrappers"]
    with pytest.raises(
        ValueError, match=r"there is no setting frame_skp; did you mean frame_skip\? those of Atari are"
    ):
        envs_of("--env", IDS[0], "--env.env-kwargs", "{'frame_skp': 2}")
    with pytest.raises(ValueError, match="there is no setting num_envs; those of Atari are"):
        envs_of("--env", IDS[0], "--env.env-kwargs", "{'num_envs': 2}")
    without_lives = envs_of("--env", IDS[0], "--env.env-kwargs", "{'life_loss': False, 'full_action_space': True}")
    assert "EpisodicLife" not in without_lives.hyper_parameters["wrappers"]


@pytest.mark.long
def test_the_command_env_counts_games_and_their_own_rewards(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, "env", "SpaceInvadersNoFrameskip-v4", "--episodes", "1")
    printed = " ".join(capsys.readouterr().out.split())
    assert "Random actions, in whole games without clipped rewards" in printed
    # Three lives; invaders pay from 5 to 30 points.
    assert "episodes 1: 1 terminated" in printed
    assert int(re.search(r"reward from 0 to (\d+)", printed)[1]) > 1  # type: ignore[index]
    assert "EpisodicLife" in printed, "as training has it"


def test_other_environments_are_not_changed() -> None:
    for env in ("CartPole-v1", "pytorchrl/MinAtar-Breakout-v0", prl.BitFlipping):
        factory = prl.VecEnv.create_factory(env)
        assert preprocessed(factory) is factory


@pytest.mark.long
def test_a_command_trains_and_describes_the_preprocessed_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command(
        monkeypatch,
        *("train", "--algorithm", "dqn", "--env", IDS[1], "--steps", "20", "--algorithm.test-every", "0"),
        *("--storage.size", "50"),
    )
    assert "--no-preprocessing leaves frames raw" in capsys.readouterr().out
    run = tmp_path / "runs" / f"DQN-{IDS[1]}" / "seed-1"
    config = json.loads((run / "config.json").read_text())
    assert config["spaces"]["observation"]["shape"] == [4, 84, 84]
    assert environment(config).startswith("ALE/Breakout(")
    command(monkeypatch, "ls")
    assert IDS[1] in capsys.readouterr().out
    for arguments, shape in (((), "(4, 84, 84)"), (("--no-preprocessing",), "(210, 160, 3)")):
        command(monkeypatch, "env", IDS[1], "--episodes", "1", "--longest", "5", *arguments)
        assert shape in " ".join(capsys.readouterr().out.split())
