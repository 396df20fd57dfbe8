"""Atari games match gymnasium's preprocessing and are reported, evaluated and saved as whole games."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pytorchrl as prl
from pytorchrl.agent.envs import Atari

if importlib.util.find_spec("ale_py") is None:
    pytest.skip("the package ale-py is not installed", allow_module_level=True)


def steps_of(env: Any, count: int, seed: int = 0) -> list[Any]:
    """Return (observation, reward, terminated, truncated) of random actions, and (observation,) of resets."""
    actions = np.random.default_rng(seed)
    seen = [env.reset(seed=seed)[:1]]
    for _ in range(count):
        step = env.step(np.int64(actions.integers(env.action_space.n)))
        seen.append(step[:4])
        if step[2] or step[3]:
            seen.append(env.reset()[:1])
    return seen


@pytest.mark.long
def test_atari_passes_gymnasiums_environment_checker() -> None:
    env = gym.make("pytorchrl/Atari-v0", game="breakout", render_mode="rgb_array").unwrapped
    check_env(env, skip_render_check=True)
    assert env.observation_space == gym.spaces.Box(0, 255, (84, 84), np.uint8)
    assert env.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert env.render().shape == (210, 160, 3)
    assert Atari("breakout", full_action_space=True, screen_size=42).action_space == gym.spaces.Discrete(18)


@pytest.mark.parametrize(
    "frame_skip", [4, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)]
)
def test_frames_match_gymnasiums_preprocessing(frame_skip: int) -> None:
    pytest.importorskip("cv2")
    importlib.import_module("ale_py")
    emulator = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    theirs = gym.wrappers.AtariPreprocessing(emulator, noop_max=0, frame_skip=frame_skip)
    ours = Atari("pong", frame_skip=frame_skip, repeat_action_probability=0.0, noop_max=0, fire=False)
    assert np.abs(ours.reset(seed=0)[0].astype(int) - theirs.reset(seed=0)[0]).max() <= 1
    actions = np.random.default_rng(0)
    for _ in range(150):
        action = actions.integers(6)
        one, other = ours.step(action), theirs.step(action)
        assert one[1:4] == other[1:4]
        # A mean that lies between two numbers may be rounded to either.
        difference = np.abs(one[0].astype(int) - other[0])
        assert difference.max() <= 1
        assert np.mean(difference > 0) < 0.01


def test_equal_seeds_give_equal_games_and_different_seeds_different_starts() -> None:
    env, other = Atari("breakout"), Atari("breakout")
    steps_of(other, 10, seed=5)
    first = steps_of(env, 60, seed=3)
    for again in (steps_of(other, 60, seed=3), steps_of(env, 60, seed=3)):
        for one, two in zip(first, again, strict=True):
            np.testing.assert_array_equal(one[0], two[0])
            assert one[1:] == two[1:]
    begins = {other.reset(seed=seed)[0].tobytes() + bytes([other.ale.getFrameNumber() % 256]) for seed in range(6)}
    assert len(begins) > 3


@pytest.mark.long
def test_a_sticky_action_is_repeated_at_probability_one_but_not_at_zero() -> None:
    played = []
    for probability in (0.0, 1.0):
        env = Atari("pong", repeat_action_probability=probability, noop_max=0, fire=False)
        played.append([env.reset(seed=0)[0], *(env.step(np.int64(2))[0] for _ in range(30))][-1])
    idle = Atari("pong", repeat_action_probability=0.0, noop_max=0, fire=False)
    expected = [idle.reset(seed=0)[0], *(idle.step(np.int64(0))[0] for _ in range(30))][-1]
    np.testing.assert_array_equal(played[1], expected)
    assert not np.array_equal(played[0], expected)


@pytest.mark.long
def test_fire_is_pressed_at_the_start_of_each_life_so_that_games_continue() -> None:
    lives = {}
    for fire in (True, False):
        env = Atari("breakout", fire=fire, noop_max=0)
        env.reset(seed=0)
        for _ in range(400):
            if env.step(np.int64(0))[2]:
                break
        lives[fire] = env.ale.lives()
    assert lives == {True: 0, False: 5}


def test_a_game_is_truncated_after_max_frames() -> None:
    env = Atari("pong", max_frames=60, noop_max=0)
    env.reset(seed=0)
    ends = [env.step(np.int64(0))[2:4] for _ in range(14)]
    assert ends == [(False, False)] * 13 + [(False, True)]


def test_an_atari_id_determines_the_settings_of_the_factory() -> None:
    factory = prl.atari_envs("ALE/Breakout-v5", 2, noop_max=5)
    assert factory.hyper_parameters["env_kwargs"] == {
        "game": "breakout",
        "repeat_action_probability": 0.25,
        "full_action_space": False,
        "max_frames": 108_000,
        "noop_max": 5,
    }
    envs = factory()
    assert envs.reset(seed=0).shape == (2, 4, 84, 84)
    assert envs.stacked_frames == 4
    assert [name for name, _ in map(name_and_settings, factory.hyper_parameters["wrappers"])] == [
        "EpisodicLife",
        "ClipReward",
        "FrameStackObservation",
    ]
    envs.close()
    old = prl.atari_envs("PongNoFrameskip-v4", training=False, wrappers=["FlickerFrames"], frame_stack=1)
    assert old.hyper_parameters["env_kwargs"]["repeat_action_probability"] == 0.0
    assert list(old.hyper_parameters["wrappers"]) == ["FlickerFrames"]


def name_and_settings(wrapper: Any) -> tuple[str, Any]:
    return (wrapper, {}) if isinstance(wrapper, str) else tuple(wrapper)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartPole-v1",), "atari_envs: env 'CartPole-v1' is no game of Atari; their ids are like 'ALE/Pong-v5'"),
        (("ALE/Pongg-v5",), "atari_envs: env 'ALE/Pongg-v5' is no id that is registered"),
    ],
)
def test_ids_of_other_environments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.atari_envs(*arguments)


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"there is no setting frame_skp; did you mean frame_skip\? those of Atari are .*frame_skip"
    ):
        prl.atari_envs("ALE/Pong-v5", frame_skp=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sticky_actions": 0.25}, "sticky_actions is repeat_action_probability, from 0 to 1; those of Atari are "),
        ({"frameskip": 4}, "frameskip is frame_skip;"),
        ({"skip": 4}, "skip is frame_skip;"),
        ({"terminal_on_life_loss": True}, "terminal_on_life_loss is life_loss, true or false;"),
        ({"grayscale_obs": False}, "grayscale_obs is no setting: frames are greyscale; raw frames, by --no-preproc"),
        ({"no_stack": 1}, "those of Atari are clip_rewards, fire, frame_skip, frame_stack, .*, life_loss, .*training"),
    ],
)
def test_names_of_ale_and_of_papers_are_refused_with_those_here(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.atari_envs("ALE/Pong-v5", **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"game": "Pong"}, "there is no game 'Pong'; their names are like 'space_invaders'"),
        ({"frame_skip": 0}, "frame_skip must be at least 1, got 0"),
        ({"screen_size": 170}, "screen_size must be at most 160, got 170"),
        ({"noop_max": -1}, "noop_max must be at least 0, got -1"),
        ({"repeat_action_probability": 2.0}, r"repeat_action_probability must lie in \[0, 1\], got 2.0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"Atari: {message}"):
        Atari(**{"game": "pong", **settings})


def test_a_missing_package_is_reported_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = importlib.import_module

    def without(name: str) -> Any:
        if name == "ale_py":
            raise ModuleNotFoundError(name)
        return import_module(name)

    monkeypatch.setattr(importlib, "import_module", without)
    for make in (lambda: prl.atari_envs("ALE/Pong-v5"), lambda: Atari("pong")):
        with pytest.raises(
            gym.error.DependencyNotInstalled, match=r'ale-py is not installed.*"pytorchrl-toolkit\[atari\]"'
        ):
            make()


def scheme_of(num_envs: int, mode: Any = "sync", **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=40, update_every=20, mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(),
        prl.ReplayBuffer.create_factory(size=200),
        prl.atari_envs("ALE/Pong-v5", num_envs, mode=mode, **settings),
    )


@pytest.mark.long
def test_whole_games_are_reported_and_evaluated_with_unmodified_rewards(tmp_path: Path) -> None:
    # An additional reward wrapper, which would change the reported returns if it were counted.
    scheme = scheme_of(1, wrappers=[("ScaleReward", {"factor": 0.5})], max_frames=4_000)
    learner = prl.Learner(scheme, 1_300, tmp_path / "run")
    learner.run()
    evaluation = scheme.evaluate(1)
    metrics = learner.get_metrics()
    learner.close()
    assert evaluation.returns == (float(int(evaluation.mean_return)),)
    assert -21 <= evaluation.mean_return <= -15
    assert metrics["train/return"] == int(metrics["train/return"]) < -10
    assert metrics["train/shaped_return"] == metrics["train/return"] / 2


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_resumed_run_of_pong_equals_an_uninterrupted_one(mode: Any, tmp_path: Path) -> None:
    def weights(learner: prl.Learner) -> dict[str, Any]:
        return {name: value.numpy() for name, value in learner.scheme.algorithm.actor.state_dict().items()}

    whole = prl.Learner(scheme_of(2, mode), 1_400, tmp_path / "whole")
    whole.run()
    expected = weights(whole)
    whole.close()
    stopped = prl.Learner(scheme_of(2, mode), 1_400, tmp_path / "stopped")
    while stopped.scheme.steps < 1_200:
        stopped.step()
    stopped.save_checkpoint()
    stopped.close()
    resumed = prl.Learner.resume(tmp_path / "stopped")
    resumed.run()
    found = weights(resumed)
    resumed.close()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "preset"), [(prl.DQN, prl.DQN.nature), (prl.Rainbow, prl.Rainbow.paper), (prl.IQN, prl.IQN.paper)]
)
def test_paper_presets_train_on_pong_and_store_each_frame_once(algorithm: Any, preset: Any, tmp_path: Path) -> None:
    parts = preset(400, 2)
    shorter = parts["algo_factory"].hyper_parameters | {"start_steps": 60, "test_every": 0}
    parts |= {"algo_factory": algorithm.create_factory(**shorter)}
    scheme = prl.Scheme(**parts, train_envs_factory=prl.atari_envs("ALE/Pong-v5", 2))
    learner = prl.Learner(scheme, 100, tmp_path / "run")
    learner.run()
    assert np.isfinite(learner.get_metrics()["losses/loss"])
    assert scheme.storage.nbytes < 1.1 * 400 * 84 * 84
    learner.close()
