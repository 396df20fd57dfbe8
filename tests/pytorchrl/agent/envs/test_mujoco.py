"""Where MuJoCo finds no OpenGL, no display or an unsuited version, one line names the way out."""

import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs.copies.making import bare_env
from pytorchrl.agent.envs.mujoco import render
from pytorchrl.experiments.recordings.filming import stage_of

if importlib.util.find_spec("mujoco") is None:
    pytest.skip("the package mujoco is not installed", allow_module_level=True)

ENV = "InvertedPendulum-v5"
KINDS_OF_JOINT = {f"mjJNT_{kind}": kind for kind in ("FREE", "BALL", "SLIDE", "HINGE")}
"""They equal no numbers."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture
def rendering() -> Any:
    with gym.make(ENV, render_mode="rgb_array") as env:
        env.reset(seed=0)
        yield env


class WithoutContext:
    """Replaces the import of OpenGL's context by one that fails as on a machine without its library."""

    def __init__(self, width: int, height: int) -> None:
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")


def test_an_image_without_opengl_is_refused_in_a_line_that_names_mujoco_gl(
    rendering: gym.Env[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymnasium.envs.mujoco import mujoco_rendering

    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(mujoco_rendering._ALL_RENDERERS, "egl", WithoutContext)
    with pytest.raises(
        RuntimeError, match=r"no OpenGL for MUJOCO_GL=egl: it needs .*libEGL.*; or start with MUJOCO_GL=osmesa, "
    ) as ended:
        render(rendering)
    assert "\n" not in str(ended.value)
    assert "eglQueryString" in str(ended.value)
    assert "with MUJOCO_GL=egl" not in str(ended.value), "it is what has failed"


@pytest.mark.parametrize("chosen", ["", "vulkan"])
def test_an_unknown_value_of_mujoco_gl_is_refused_with_those_that_exist(
    chosen: str, rendering: gym.Env[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUJOCO_GL", chosen)
    with pytest.raises(RuntimeError, match=f"MUJOCO_GL='{chosen}'; choose from egl, osmesa, glfw"):
        render(rendering)


def test_deprecated_attributes_of_gymnasiums_models_are_not_reported_for_each_copy(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with prl.VecEnv.create_factory("HalfCheetah-v5", num_envs=2)() as envs:
        envs.reset(seed=0)
    assert "WARNING" not in "".join(capfd.readouterr())
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()


def test_warnings_of_a_users_own_model_are_raised_once_as_warnings_of_python() -> None:
    import mujoco

    class Own(gym.Env[Any, Any]):
        observation_space = action_space = gym.spaces.Box(-1, 1, (2,))

        def __init__(self) -> None:
            # As MuJoCo calls it, for each model that it compiles.
            for text in ("attribute 'mass' is deprecated", "attribute 'mass' is deprecated", "tendon 3 has no length"):
                mujoco.get_mju_user_warning()(text)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare_env(Own, {})
    assert [(one.category, str(one.message)) for one in caught] == [
        (DeprecationWarning, "MuJoCo: attribute 'mass' is deprecated"),
        (RuntimeWarning, "MuJoCo: tendon 3 has no length"),
    ]
    assert mujoco.get_mju_user_warning() is None


def test_a_failure_of_the_environment_itself_is_not_called_one_of_opengl() -> None:
    class Broken(gym.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            raise KeyError("no camera")

    with gym.make(ENV) as env, pytest.raises(KeyError, match="no camera"):
        render(Broken(env))


def test_videos_that_cannot_be_rendered_are_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "vulkan")
    scheme = prl.Scheme(
        algo_factory=prl.SAC.create_factory(start_steps=40, mini_batch_size=16, test_every=100),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=prl.ReplayBuffer.create_factory(size=150),
        train_envs_factory=prl.VecEnv.create_factory(ENV),
    )
    pytest.importorskip("imageio")
    with prl.Learner(scheme, 200, tmp_path / "run", callbacks=[prl.RecordVideos(suffix=".gif")]) as learner:
        with pytest.raises(RuntimeError, match="MUJOCO_GL='vulkan'"):
            learner.run()
        assert scheme.steps == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere windows need no variable")
def test_a_window_without_a_display_is_refused_instead_of_ending_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    with (
        pytest.raises(RuntimeError, match=r"no display on which MuJoCo .* write a video instead: -o video\.mp4"),
        stage_of(prl.VecEnv.create_factory(ENV), "human"),
    ):
        pass


@pytest.mark.long
@pytest.mark.parametrize("env", [ENV, "FetchReach-v4"])
def test_a_mujoco_that_cannot_be_imported_for_its_backend_is_explained(env: str) -> None:
    if env == "FetchReach-v4":
        pytest.importorskip("gymnasium_robotics")
    code = f"from pytorchrl.agent.envs.copies.making import bare_env; bare_env({env!r}, {{}})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"MUJOCO_GL": "vulkan"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith(f"RuntimeError: VecEnv: '{env}': MuJoCo cannot render here")
    assert last.endswith("without images leave MUJOCO_GL unset")


def test_an_environment_that_does_not_fit_the_version_of_mujoco_says_which_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("gymnasium_robotics")
    from gymnasium_robotics.utils import mujoco_utils

    # As with MuJoCo from 3.12 on, whose kinds of joint equal no numbers.
    monkeypatch.setattr(mujoco_utils.mujoco, "mjtJoint", SimpleNamespace(**KINDS_OF_JOINT))
    message = r"VecEnv: 'FetchReach-v4' does not work with gymnasium-robotics .* pip install \"mujoco<3.12\""
    with pytest.raises(RuntimeError, match=message):
        bare_env("FetchReach-v4", {})


@pytest.mark.parametrize(
    ("env", "kwargs", "camera"),
    [
        ("HalfCheetah-v5", {}, "track"),
        ("HalfCheetah-v5", {"default_camera_config": {"distance": 9.0}}, None),
        ("HalfCheetah-v5", {"camera_id": 0}, "track"),
        (ENV, {}, None),
    ],
)
def test_a_video_follows_the_robot_unless_a_camera_was_chosen(
    env: str, kwargs: dict[str, Any], camera: str | None
) -> None:
    import mujoco

    with stage_of(prl.VecEnv.create_factory(env, env_kwargs=kwargs), "rgb_array") as stage:
        renderer = stage.env.unwrapped.mujoco_renderer  # type: ignore[attr-defined]
        name = mujoco.mj_id2name(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, renderer.camera_id)
    assert name == camera
