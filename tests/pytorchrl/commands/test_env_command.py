"""``python -m pytorchrl env`` describes an environment, and reports its defects."""

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.envs.random_play import format_space, play_at_random
from pytorchrl.experiments.runs import user_modules
from tests.support.toys import Counter, Noise


class Restless(Counter):
    """An environment whose observations differ even with equal seeds."""

    number = 0

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        Restless.number += 1
        return observation + Restless.number, *rest


class PaysArrays(Counter):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.ones(2), *rest


def output_of_env(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "env", *arguments])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(user_modules, "_imported", {})
    main()
    return " ".join(capsys.readouterr().out.split())


def test_an_environment_is_described(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = output_of_env(
        monkeypatch, capsys, "CartPole-v1", "--episodes", "3", "--env-kwargs", '{"max_episode_steps": 12}'
    )
    for expected in (
        "Box (4,) of float32, from [-4.8, -inf, -0.418879, -inf] to [4.8, inf, 0.418879, inf]",
        "actions Discrete(2)",
        "time limit 12 steps",
        "wrappers TimeLimit of OrderEnforcing of CartPoleEnv",
        "render modes human, rgb_array, 50 frames per second",
        "episodes 3: ",
        "reward from 1 to 1",
        "steps/s; a million take ",
        "deterministic yes",
        "compatible A2C, ",
        ", ACER, ",
        "incompatible ACERContinuous, ",
        "gymnasium's checker warns: - A Box observation space minimum value is -infinity.",
    ):
        assert expected in printed, expected
    # Classes of other tests may stand in the list, too.
    assert re.search(r", TQC(, \w+)*: needs a Box action space;", printed)


def test_an_imported_environment_class_is_described_and_trained_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = output_of_env(monkeypatch, capsys, "Restless", "--import", __name__, "--env-kwargs", "{'length': 4}")
    assert "deterministic no: with the same seed and actions, another copy differed at step 1" in printed
    assert "length 4.0 on average, from 4 to 4" in printed
    assert "time limit none by a wrapper or the id" in printed
    arguments = ["train", "--import", __name__, "--algorithm", "dqn", "--env", "Restless", "--steps", "50"]
    arguments += ["--env.env-kwargs", "{'length': 4}", "--algorithm.test-every", "0"]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    monkeypatch.chdir(tmp_path)
    main()
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "ls"])
    main()
    assert "DQN-Restless/seed-1" in capsys.readouterr().out
    learner = prl.Learner.resume("runs/DQN-Restless/seed-1")
    assert learner.resume_command.endswith(f" --import {__name__}")
    learner.close()


def several_actions(space: str) -> gym.Env[Any, Any]:
    env: Any = Counter(length=4)
    discrete = env.action_space
    parts: dict[str, gym.Space[Any]] = {
        "discrete": gym.spaces.Tuple((discrete, discrete)),
        "mixed": gym.spaces.Dict(kind=discrete, force=gym.spaces.Box(-3, 1, (1,), np.float32)),
        "text": gym.spaces.Tuple((gym.spaces.Text(3),)),
        "words": gym.spaces.Text(3),
    }
    env.action_space = parts[space]
    return env


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("discrete", r"wrapper JoinActions, with which actions are MultiDiscrete\(\[2 2\]\) compatible A2C, .*PPO"),
        (
            "mixed",
            r"wrapper JoinActions, with which actions are Box \(3,\) of float32, .* compatible A2C, .*HyAR, .*SAC,",
        ),
        ("text", r"compatible none: JoinActions: part '0' of the action space is Text"),
        ("words", r"compatible none: VecEnv: the action space is Text"),
    ],
)
def test_algorithms_are_those_that_act_with_the_wrapper_that_the_actions_need(
    space: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = output_of_env(
        monkeypatch, capsys, "several_actions", "--import", __name__, "--env-kwargs", f"{{'space': '{space}'}}"
    )
    assert re.search(expected, printed), printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["PaysArrays", "--import", __name__],
            r"step\(\) of <PaysArrays instance> returned the reward an array",
        ),
        (["NoSuch-v0"], "error: env: env 'NoSuch-v0' is no registered gymnasium id"),
        (["CartPole-v1", "--env-kwargs", "[1]"], r"error: env: env_kwargs must be a dict such as .*, got '\[1\]'"),
        (["CartPole-v1", "--episodes", "0"], "error: --episodes must be at least 1, got 0"),
    ],
)
def test_an_invalid_environment_or_option_is_refused_in_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=message) as stopped:
        output_of_env(monkeypatch, capsys, *arguments)
    assert "\n" not in str(stopped.value)


def test_random_play_repeats_with_its_seed_and_counts_how_episodes_ended() -> None:
    plays = [play_at_random(Noise, 4, 50, seed) for seed in (3, 3, 4)]
    assert plays[0].returns == plays[1].returns
    assert plays[0].returns != plays[2].returns
    assert plays[0].differs_at is None
    assert plays[0].terminated + plays[0].truncated <= 4
    short = play_at_random(lambda: Counter(length=20), 2, 5, 0)
    assert short.lengths == (5, 5)
    assert short.terminated == short.truncated == 0


class Hours(Counter):
    """Counts hours in a part of its observation whose space ends at 3, and later gives no number."""

    def __init__(self, length: int) -> None:
        super().__init__(length=length)
        self.observation_space = gym.spaces.Dict(clock=gym.spaces.Box(-1, 3, (2,)), day=gym.spaces.Discrete(9))

    def reset(self, **given: Any) -> Any:
        _, info = super().reset(**given)
        self.hour = 0
        return self._observed(), info

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        self.hour += 1
        return self._observed(), *rest

    def _observed(self) -> Any:
        return {"clock": np.array([np.inf if self.hour == 9 else 0, self.hour], np.float32), "day": 0}


class Forbidding(Counter):
    """Forbids all actions but those of its mask, and says which in one of several places."""

    def __init__(self, place: str = "info", several: bool = False) -> None:
        super().__init__(length=10)
        self.place, self.allowed = place, [0, 1, 0, 1, 1]
        self.action_space = gym.spaces.MultiDiscrete([3, 2]) if several else gym.spaces.Discrete(5)
        if place == "method":
            self.action_masks = lambda: np.array(self.allowed, bool)
        if place == "observation":
            mask = gym.spaces.MultiBinary(5)
            self.observation_space = gym.spaces.Dict(count=self.observation_space, action_mask=mask)

    def _shown(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = np.array(self.allowed, np.int8)
        if self.place == "observation":
            observation = {"count": observation, "action_mask": mask}
        return observation, info | ({"action_mask": mask} if self.place == "info" else {})

    def reset(self, **given: Any) -> Any:
        return self._shown(*super().reset(**given))

    def step(self, action: Any) -> Any:
        numbers = [action] if isinstance(self.action_space, gym.spaces.Discrete) else [action[0], 3 + action[1]]
        if not all(self.allowed[number] for number in numbers):
            raise ValueError(f"{action} is forbidden")
        observation, *ends, info = super().step(0)
        observation, info = self._shown(observation, info)
        return observation, *ends, info


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("info", 'info["action_mask"], obeyed by the random actions above, and in training with the wrapper Obse'),
        ("method", "action_masks(), obeyed by the random actions above, and in training with the wrapper ObserveAct"),
        ("observation", "the part action_mask of observations, obeyed by the random actions above, and in training w"),
    ],
)
def test_random_actions_are_those_that_the_environment_allows(
    place: str, told: str, several: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--import", __name__, "--env-kwargs", f"{{'place': '{place}', 'several': {several}}}"]
    assert told in output_of_env(monkeypatch, capsys, "Forbidding", *arguments)


class Pictured(Counter):
    def __init__(self) -> None:
        super().__init__()
        image = gym.spaces.Box(0, 255, (16, 16), np.uint8)
        self.observation_space = gym.spaces.Dict(level=gym.spaces.Box(-1, 1, (2,)), image=image)
        self.action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, **given: Any) -> Any:
        return self.observation_space.sample(), super().reset(**given)[1]

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), *super().step(0)[1:]


def test_how_networks_read_observations_and_which_algorithms_cannot_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = output_of_env(monkeypatch, capsys, "Pictured", "--import", __name__)
    assert "networks read 'level': vector of 2 numbers, 'image': vector of 256 numbers" in printed
    compatible, incompatible = printed.split("incompatible")
    assert "TD3" in compatible.split("compatible")[1]
    assert "MBPO" not in compatible
    assert "MBMPC, MBPO, PDDM, PETS: predicts observations, which must be a Box of floating-point" in incompatible


def test_numbers_outside_the_bounds_are_found_in_all_steps() -> None:
    play = play_at_random(lambda: Hours(length=10), 2, 50, seed=0)
    assert play.outside == (
        "clock[1]: 4 to 10, the bounds are -1 to 3; first in step 4 of an episode",
        "clock[0]: inf, the bounds are -1 to 3; first in step 9 of an episode",
    )
    assert play_at_random(Counter, 2, 50, seed=0).outside == ()


class KeepsArrays(Counter):
    """Computes its observation from an action, of which it does not take the number."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(0, 5, (1,))

    def step(self, action: Any) -> Any:
        return np.array([1.0, action]), 0.0, False, False, {}


def test_an_action_that_is_taken_for_a_number_is_explained() -> None:
    with pytest.raises(ValueError, match="inhomogeneous") as error:
        play_at_random(KeepsArrays, 1, 5, seed=0)
    assert "is an array of shape (1,), and so is what is computed from it" in error.value.__notes__[0]


def test_each_part_of_a_nested_space_is_described_on_its_own_line() -> None:
    space = gym.spaces.Dict(
        camera=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        arm=gym.spaces.Box(np.arange(7, dtype=np.float32) - 9, np.ones(7, np.float32)),
    )
    assert format_space(space).splitlines() == [
        "camera: Box (8, 8, 3) of uint8, from 0 to 255",
        "arm: Box (7,) of float32, from -9 ... -3 to 1",
    ]


def test_a_vector_environment_is_described(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    printed = output_of_env(
        monkeypatch, capsys, "CartPole-v1", "--vectorization-mode", "vector_entry_point", "--num-envs", "3"
    )
    for expected in (
        "Box (4,) of float32, from [-4.8, -inf, -0.418879, -inf] to [4.8, inf, 0.418879, inf]",
        "actions Discrete(2)",
        "environments 3",
        "autoreset in the step after an episode's end, which makes no transition",
        "episodes 10",
        "reward from 1 to 1",
        "steps/s; a million take ",
        "compatible A2C, ",
        ", ACER, ",
    ):
        assert expected in printed, expected


def test_a_vector_environment_in_which_no_episode_ended_is_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pytorchrl.agent.envs.random_play._MOST_SECONDS", 1e-9)
    printed = output_of_env(monkeypatch, capsys, "CartPole-v1", "--vectorization-mode", "vector_entry_point")
    assert "episodes none ended" in printed
