"""A user sees the most surprising transition of a run as a video, by the commands of the documentation."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.pages import commands_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "inspecting.md"


@pytest.mark.long
def test_the_most_surprising_transition_of_a_run_is_recorded_as_a_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import imageio.v3 as imageio

    monkeypatch.chdir(tmp_path)
    block = re.search(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    train, _, listed, filmed = (shlex.split(line)[3:] for line in commands_of(block[1]))
    for number, arguments in enumerate((train, listed, filmed)):
        if number == 1:
            before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
        main()
    assert {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()} == before
    printed = " ".join(capsys.readouterr().out.split())
    transition = prl.most_surprising(Path("runs/DQN-CartPole-v1/seed-1"), 1)[0]
    assert transition.draws
    assert f"Row {transition.row} Environment 0" in printed
    steps = f"{transition.episode_length:,}"
    assert f"The episode was replayed from its seed and its {steps} actions, and was reproduced exactly." in printed
    frames = imageio.imread("surprise.gif", index=None)
    # The frames of the transition are repeated for a second each; a GIF stores equal consecutive frames once.
    assert len(frames) == transition.episode_length + 1
    # As many frames come before the two red ones as steps before the transition.
    red = [number for number, frame in enumerate(frames) if frame[2, 300, 0] > 180 and frame[2, 300, 1] < 90]
    assert red == [transition.step_in_episode, transition.step_in_episode + 1]
    assert Path("surprise.png").read_bytes().startswith(b"\x89PNG")
