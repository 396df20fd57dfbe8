"""``python -m pytorchrl inspect`` describes single transitions, draws them, and records videos of their episodes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.compositions import dqn_scheme, ppo_scheme
from tests.support.toys import Counter

PER = prl.PERBuffer.create_factory(size=150, alpha=0.5, beta=0.4, epsilon=0.1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run in CartPole, with priorities."""
    folder = tmp_path_factory.mktemp("run") / "cartpole"
    return trained(folder, dqn_scheme(storage=PER))


def trained(folder: Path, scheme: prl.Scheme, steps: int = 250) -> Path:
    learner = prl.Learner(scheme, steps, folder)
    learner.run()
    learner.close()
    return folder


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command, and return its output with single spaces."""

    def run_command(*arguments: str | Path | int) -> str:
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "inspect", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        capsys.readouterr()
        main()
        return " ".join(capsys.readouterr().out.split())

    return run_command


def test_the_most_surprising_transitions_are_listed(run: Path, inspect: Any) -> None:
    printed = inspect(run, "--most-surprising", 3)
    assert printed.startswith("row env episode step age priority weight reward ")
    for one in prl.most_surprising(run, 3):
        assert f"{one.row} {one.environment} {one.episode} {one.step_in_episode} {one.age_steps}" in printed


def test_a_row_is_described_with_the_steps_around_it(run: Path, inspect: Any) -> None:
    described = prl.describe_transition(run, 150)
    printed = inspect(run, "--row", 150, "--around", 2)
    assert f"Row 150 Environment 0 Episode {described.episode} of the stored ones" in printed
    assert "Draws not counted; make the storage with count_draws=True" in printed
    shown = " ".join(f"{number:.4g}" for number in described.observation)
    assert f"150 {shown} {described.action[0]}" in printed


@pytest.mark.parametrize("option", ["--highest-priority", "--highest-reward", "--lowest-reward"])
def test_transitions_can_be_selected_by_priority_or_reward(option: str, run: Path, inspect: Any) -> None:
    assert inspect(run, option, 2).startswith("row ")


@pytest.mark.long
def test_a_video_and_a_picture_are_written_only_to_the_given_paths(run: Path, inspect: Any, tmp_path: Path) -> None:
    import imageio.v3 as imageio

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    row = prl.most_surprising(run, 1)[0].row
    printed = inspect(
        run, "--most-surprising", 1, "--video", tmp_path / "surprise.gif", "--output", tmp_path / "steps.png"
    )
    assert "The episode was replayed from its seed and its" in printed
    assert f"surprise.gif; row {row} has a red frame" in printed
    described = prl.describe_transition(run, row)
    frames = imageio.imread(tmp_path / "surprise.gif", index=None)
    assert len(frames) > described.episode_length
    red = [frame[2, 300, 0] > 180 and frame[2, 300, 1] < 90 for frame in frames]
    assert red.index(True) == described.step_in_episode
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_rollout_has_no_priorities_but_its_rows_can_be_described(tmp_path: Path, inspect: Any) -> None:
    folder = trained(tmp_path / "run", ppo_scheme(), steps=206)
    with pytest.raises(SystemExit, match="GAEBuffer has no priorities; a PERBuffer with alpha above 0 has some"):
        inspect(folder, "--most-surprising", 1)
    with pytest.raises(SystemExit, match=r"row 3 is not stored; those from (\d+) to \d+ are") as refused:
        inspect(folder, "--row", 3)
    first = str(refused.value).partition("those from ")[2].split()[0]
    assert "Weight 1 " in inspect(folder, "--row", first, "--video", tmp_path / "rollout.gif")


def test_image_observations_are_shown_if_the_environment_does_not_render(
    tmp_path: Path, inspect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"kind": "image", "length": 5})
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    scheme = prl.Scheme(
        algo_factory=prl.DQN.create_factory(start_steps=10, update_every=64, mini_batch_size=4, test_every=0),
        actor_factory=actor,
        storage_factory=prl.ReplayBuffer.create_factory(size=60),
        train_envs_factory=pixels,
        seed=0,
    )
    folder = trained(tmp_path / "run", scheme, steps=60)
    film = prl.film_transition(folder, 13, pixels)
    assert [int(frame[0, 0, 0]) for frame in film.frames] == [0, 1, 2, 3, 4, 5]
    assert film.moment == 1
    assert np.asarray(film.frames).shape == (6, 40, 40, 3)
    inspect(folder, "--row", 13, "--video", tmp_path / "film.gif")
    assert (tmp_path / "film.gif").is_file()
    # Where its module is not imported, the environment cannot be made; a description needs none.
    monkeypatch.delitem(sys.modules, Counter.__module__)
    assert "uint8 (3, 40, 40)" in inspect(folder, "--row", 13)
    with pytest.raises(SystemExit, match=r"made by .*Counter; name the module that defines it by --import"):
        inspect(folder, "--row", 13, "--video", tmp_path / "other.gif")


def test_episodes_on_disk_are_refused_with_the_command_for_data_sets(tmp_path: Path, inspect: Any) -> None:
    storage = prl.PersistentEpisodicBuffer.create_factory(1_000, tmp_path / "run" / "replay")
    folder = trained(tmp_path / "run", dqn_scheme(storage=storage), steps=100)
    with pytest.raises(
        SystemExit, match=r"keeps whole episodes on disk, which are a data set; inspect it by python -m pytorchrl data"
    ):
        inspect(folder, "--row", 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--row", "160", "--highest-reward", "1"], "choose one of --row, --most-surprising"),
        (["--video", "film.gif"], "--video films the episode of a transition: choose one with --row"),
        (["--row", "160", "--video", "film.avi"], r"a video is written to a file that ends in \.mp4 or \.gif"),
        (["--row", "160", "--output", "steps.jpg"], r"its name must end in \.png"),
        (["--most-surprising", "0"], "--most-surprising must be at least 1, got 0"),
        (["--row", "160", "--around", "-1"], "--around must be at least 0, got -1"),
    ],
)
def test_invalid_or_conflicting_options_are_refused(
    options: list[str], message: str, run: Path, inspect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        inspect(run, *options)
    assert list(tmp_path.iterdir()) == []
