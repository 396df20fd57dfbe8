"""Films and windows show the episodes that evaluations play, also in place of vector environments."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs.native.single import single_env
from pytorchrl.experiments.recordings.filming import can_render, play, stage_of
from pytorchrl.scheme.evaluation import evaluate
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

SEED = np.random.SeedSequence(3)


class Shown(Counter):
    """Renders a grey image."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - gymnasium's own way

    def __init__(self, length: int = 8, render_mode: str | None = None) -> None:
        super().__init__(length=length)
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """Ends an episode after every third step, while the wrapped game goes on at the reset until it is over."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.steps, self.is_over = 0, True
        self.shown: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.is_over or seed is not None:
            self.is_over = False
            return self.env.reset(seed=seed, options=options)
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.shown, reward, self.is_over, truncated, info = self.env.step(action)
        self.steps += 1
        return self.shown, reward, self.is_over or self.steps % 3 == 0, truncated, info


@pytest.mark.parametrize("wrappers", [[], [Lives], [("TimeLimit", {"max_episode_steps": 5})]], ids=str)
def test_films_show_the_episodes_of_the_environment_as_evaluations_play_them(wrappers: Any) -> None:
    envs = prl.VecEnv.create_factory(Shown, wrappers=wrappers)
    with dqn_scheme(envs=envs) as scheme, envs() as tested:
        evaluation = evaluate(scheme.algorithm, tested, 2, SEED)
        with stage_of(envs, "rgb_array") as stage:
            played = [one for one in play(scheme.algorithm, stage, 2, SEED) if one is not None]
        assert [(one.episode_return, one.length) for one in played] == list(
            zip(evaluation.returns, evaluation.lengths, strict=True)
        )
        assert not any(one.is_cut for one in played)
        with stage_of(envs, "rgb_array") as stage:
            (cut,) = [one for one in play(scheme.algorithm, stage, 1, SEED, longest=4) if one is not None]
        assert (cut.length, cut.is_cut) == (4, True)


def test_a_vector_environment_of_an_id_is_shown_by_a_single_one(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    one = single_env(envs).hyper_parameters
    assert (one["env"], one["num_envs"], one["vectorization_mode"]) == ("CartPole-v1", 1, None)
    assert can_render(envs)


def test_games_of_other_libraries_are_shown_by_gymnasiums_with_the_same_preprocessing() -> None:
    pytest.importorskip("ale_py")
    settings = {"stack_num": 2, "noop_max": 7, "frameskip": 3, "num_threads": 1, "episodic_life": True}
    of_ale = prl.VecEnv.create_factory("ALE/Pong-v5", 2, backend="ale", env_kwargs=settings)
    shown = single_env(of_ale)
    game = shown.hyper_parameters["env_kwargs"]
    assert (game["noop_max"], game["frame_skip"], game["repeat_action_probability"]) == (7, 3, 0.25)
    # Whole games, in which fire is pressed where a game begins.
    assert list(shown.hyper_parameters["wrappers"]) == ["FireOnReset", ("FrameStackObservation", {"stack_size": 2})]
    with of_ale() as many, shown() as one:
        assert one.observation_space == many.observation_space
        assert one.action_space == many.action_space
    coloured = prl.VecEnv.create_factory("ALE/Pong-v5", 2, backend="ale", env_kwargs={"grayscale": False})
    with pytest.raises(ValueError, match="steps many environments at once"):
        single_env(coloured)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="the package envpool is not installed")
def test_a_run_in_envpool_is_evaluated_and_filmed_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("imageio")
    envs = prl.VecEnv.create_factory("Pong-v5", 2, backend="envpool", env_kwargs={"num_threads": 1})
    assert single_env(envs).hyper_parameters["env_kwargs"]["repeat_action_probability"] == 0.0
    scheme = prl.Scheme(
        prl.PPO.create_factory(),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,), feature_extractor="small_convolutions"),
        prl.GAEBuffer.create_factory(size=4),
        envs,
    )
    with prl.Learner(scheme, 8, tmp_path / "run") as learner:
        learner.run(progress=False)
    from pytorchrl.commands.policies import record

    record(tmp_path / "run", tmp_path / "pong.gif", longest=3)
    assert (tmp_path / "pong.gif").read_bytes().startswith(b"GIF")
    unknown = prl.VecEnv.create_factory("CheetahRun-v1", 2, backend="envpool")
    with pytest.raises(ValueError, match="'CheetahRun-v1' steps many environments at once"):
        single_env(unknown)
