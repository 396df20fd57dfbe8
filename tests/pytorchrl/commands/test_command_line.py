"""``python -m pytorchrl`` continues a run, draws curves, and reports errors without a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.compositions import dqn_scheme


def trained(folder: Path, seed: int = 0) -> Path:
    learner = prl.Learner(dqn_scheme(seed), 200, folder, log_every=50)
    learner.run()
    learner.close()
    return folder


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    main()


def test_resume_continues_to_a_new_target_and_saves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path / "run")
    command(monkeypatch, "resume", folder, "--target-steps", "300", "--checkpoint-every", "50")
    assert json.loads((folder / "config.json").read_text())["checkpoint_every"] == 50
    printed = capsys.readouterr().out
    assert "300 of 300 steps" in printed
    assert f"Learning curve: {folder / 'learning_curve.png'}" in printed
    assert prl.Learner.resume(folder).target_steps == 300


def test_plot_draws_several_runs_into_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [trained(tmp_path / str(seed), seed) for seed in (1, 2)]
    capsys.readouterr()
    command(monkeypatch, "plot", *runs, "-o", tmp_path / "curves.png")
    assert capsys.readouterr().out.strip() == str(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resume", "nowhere"), "error: nowhere does not exist"),
        (("evaluate", "nowhere"), "error: nowhere does not exist"),
        (("plot", "nowhere"), "error: nowhere does not exist: expected a run folder, or a folder with runs below it"),
    ],
)
def test_an_error_is_reported_in_one_line_with_what_was_expected(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        command(monkeypatch, *arguments)
    assert str(stopped.value) == message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resume", "run", "--algorithm.lr", "1e-4"), r"scheme\.algorithm\.update_algorithm_parameter\('lr', \.\.\.\)"),
        (("resume", "run", "--storage.n-step=3"), r"scheme\.storage\.update_storage_parameter\('n_step', \.\.\.\)"),
        (("repeat", "run", "new", "--actor.hidden-sizes", "64"), "train --from RUN with all settings of the new run"),
    ],
)
def test_a_setting_of_a_run_that_goes_on_is_refused_with_the_ways_to_change_it(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=rf"^error: {arguments[0]} has no --\w+\.[\w-]+: .*{words}"):
        command(monkeypatch, *arguments)


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "arguments", "match"),
    [
        ("wandb", ("train", "--algorithm", "dqn", "--env", "CartPole-v1", "--log-to", "wandb"), "pip install wandb"),
        ("onnx", ("export", "run", "-o", "policy.onnx"), "needs the package onnx: pip install onnx"),
        ("pygame", ("record", "run", "-o", "video.mp4"), "pygame is not installed"),
    ],
)
def test_a_package_that_is_not_installed_is_named_in_one_line(
    package: str, arguments: tuple[str, ...], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "run" in arguments:
        trained(tmp_path / "run")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=rf"^error: .*{match}"):
        command(monkeypatch, *arguments)


def test_the_module_is_a_command_with_help() -> None:
    finished = subprocess.run([sys.executable, "-m", "pytorchrl", "--help"], capture_output=True, text=True, check=True)
    assert "resume" in finished.stdout
    assert "Draw the learning curves" in finished.stdout
