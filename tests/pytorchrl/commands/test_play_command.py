"""``play`` and ``record`` show a trained policy in a window or a video, in one copy of the environment."""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

pytest.importorskip("imageio")
pytest.importorskip("pygame", reason="CartPole renders by pygame")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    main()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in three copies of CartPole."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=3)
    scheme = dqn_scheme(algorithm={"explorer": prl.EpsilonGreedy(0.9)}, envs=envs)
    learner = prl.Learner(scheme, 60, folder)
    learner.run()
    learner.close()
    return folder


def test_play_shows_a_policy_in_a_window_and_prints_its_episodes(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A window that is not displayed.
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr("pygame.time.Clock", Clock)
    before = {file: file.read_bytes() for file in run.iterdir() if file.is_file()}
    command(monkeypatch, "play", run, "--episodes", "2", "--seed", "5")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Press Ctrl-C to stop."
    assert [line.partition(" of ")[0] for line in printed[1:]] == ["An episode", "An episode"]
    command(monkeypatch, "play", run, "--episodes", "2", "--seed", "5")
    assert capsys.readouterr().out.splitlines() == printed
    command(monkeypatch, "play", run, "--episodes", "2", "--seed", "5", "--explore")
    assert capsys.readouterr().out.splitlines() != printed
    assert {file: file.read_bytes() for file in run.iterdir() if file.is_file()} == before


@pytest.mark.parametrize("name", ["evaluate", "play", "record", "export"])
def test_commands_for_policies_take_the_best_weights_instead_of_the_last(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []

    def load(path: Path, *_: Any) -> Any:
        taken.append(path)
        raise prl.CompositionError("it is noted")

    monkeypatch.setattr("pytorchrl.commands.policies.policy_of", load)
    monkeypatch.setattr("pytorchrl.commands.policies.read_policy", load)
    output = [] if name == "evaluate" else ["-o", tmp_path / ("policy.ts" if name == "export" else "policy.gif")]
    for best in ([], ["--best"]):
        with pytest.raises(SystemExit, match="it is noted"):
            command(monkeypatch, name, run, *output, *best)
    assert taken == [run, run / "best_weights.pt"]
    with pytest.raises(SystemExit, match=r"--best takes .*, and zoo:ppo-cartpole is no run folder; leave it out"):
        command(monkeypatch, name, "zoo:ppo-cartpole", *output, "--best")
    with pytest.raises(SystemExit, match=r"has no best_weights.pt, which the first evaluation saves"):
        command(monkeypatch, name, tmp_path, *output, "--best")


class Clock:
    """A clock that does not wait between frames."""

    def tick(self, frames_per_second: int) -> None:
        pass


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", ["play", "record"])
def test_a_video_shows_one_of_several_copies_of_an_environment(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import imageio.v3 as imageio

    video = tmp_path / "videos" / "policy.gif"
    command(monkeypatch, name, run, "-o", video, "--episodes", "1", "--seed", "5")
    printed = capsys.readouterr().out.split()
    frames = imageio.imread(video)
    # The first frame shows the reset; equal consecutive frames are stored as one.
    assert 1 < len(frames) <= int(printed[3]) + 1
    assert frames.shape[1:] == (400, 600, 3)
    assert [file.name for file in video.parent.iterdir()] == ["policy.gif"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere windows need no variable")
def test_without_a_display_play_suggests_to_write_a_video(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        SystemExit, match=rf"no display to open a window on; write a video instead: play {run} -o video.mp4"
    ):
        command(monkeypatch, "play", run)


class Picture(Counter):
    """An environment that renders in the mode "ansi" only."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = "ansi" if render_mode else None


@pytest.mark.parametrize("arguments", [[], ["-o", "video.gif"]], ids=["window", "video"])
def test_play_says_at_once_that_an_environment_does_not_render(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gym.registry, "Blind-v0", gym.envs.registration.EnvSpec("Blind-v0", entry_point=Counter))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory("Blind-v0")), 50, tmp_path / "run") as learner:
        learner.run()
    with pytest.raises(SystemExit, match=r"'Blind-v0' does not render, neither in a window nor in a video: that needs"):
        command(monkeypatch, "play", tmp_path / "run", *arguments)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Counter, r"the environment <class '.*Counter'> does not render: it takes no render_mode='rgb_array'"),
        (Picture, r"the environment <Picture instance> renders 'ansi', not 'rgb_array'"),
    ],
)
def test_an_environment_that_does_not_render_is_refused_by_name(
    env: type[gym.Env[Any, Any]], message: str, tmp_path: Path
) -> None:
    video = prl.RecordVideos(suffix=".gif")
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(env)), 50, tmp_path / "run", callbacks=[video])
    with pytest.raises(ValueError, match=message):
        learner.run()
    learner.close()
    assert not (tmp_path / "run" / "videos").exists()


def test_an_interrupted_video_leaves_no_file(tmp_path: Path) -> None:
    from pytorchrl.experiments.recordings.video import write_video

    def frames() -> Any:
        yield np.zeros((4, 4, 3), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_video(tmp_path / "video.gif", frames(), 10)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "a-run", "--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["evaluate", "a-run", "--episodes", "-3"], "--episodes must be at least 1, got -3"),
        (["evaluate", "a-run", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["play", "a-run", "--episodes", "0"], "--episodes must be at least 1, got 0"),
        (["record", "a-run", "--longest", "0"], "--longest must be at least 1, got 0"),
        (["record", "a-run", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["record", "a-run", "-o", "a"], "a file that ends in .mp4 or .gif, got 'a'"),
        (["play", "a-run", "-o", "a.mov"], "a file that ends in .mp4 or .gif, got 'a.mov'"),
    ],
)
def test_wrong_numbers_and_files_are_refused_before_anything_is_loaded(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=message):
        command(monkeypatch, *arguments)
