"""``python -m pytorchrl show`` prints a run's composition, commit, changes and returns, and changes no files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.compositions import dqn_scheme
from tests.support.repositories import git


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was started in a repository with uncommitted changes."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    (tmp_path / "script.py").write_text("lr = 1e-3\n")
    git("add", "script.py")
    git("commit", "--quiet", "-m", "first")
    (tmp_path / "script.py").write_text("lr = 3e-4\n")
    monkeypatch.setattr(sys, "argv", ["script.py", "--seed", "3"])
    learner = prl.Learner(dqn_scheme(seed=3), 300, tmp_path / "runs" / "mine")
    learner.run()
    learner.close()
    return Path("runs/mine")


def output_of_show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "show", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    capsys.readouterr()
    main()
    return capsys.readouterr().out


def test_show_prints_the_commit_and_changes_from_which_the_code_of_a_run_is_restored(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = {file: file.read_bytes() for file in run.iterdir() if file.is_file()}
    printed = output_of_show(monkeypatch, capsys, run)
    commit = git("rev-parse", "HEAD")
    assert f"{commit}, with uncommitted changes (" in printed
    assert "lines: show --diff)" in printed
    diff = output_of_show(monkeypatch, capsys, run, "--diff")
    assert "+lr = 3e-4" in diff
    git("checkout", "--quiet", commit, "--", "script.py")
    assert (tmp_path / "script.py").read_text() == "lr = 1e-3\n"
    subprocess.run(["git", "apply"], input=diff, check=True, text=True)
    assert (tmp_path / "script.py").read_text() == "lr = 3e-4\n"
    assert {file: file.read_bytes() for file in run.iterdir() if file.is_file()} == before


def test_composition_command_experiment_and_returns_are_shown(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = output_of_show(monkeypatch, capsys, run)
    # Hyper-parameters with their default values are omitted.
    assert "DQN(test_every=100, num_test_episodes=2, start_steps=40, mini_batch_size=16)" in " ".join(printed.split())
    assert "ReplayBuffer(size=150)" in printed
    assert "script.py --seed 3" in printed
    assert json.loads((run / "versions.json").read_text())["experiment"] in printed
    means = [row["mean"] for row in prl.read_evaluations(run)]
    values = {line[:22].strip(): line[22:].strip() for line in printed.splitlines()}
    assert values["final return"] == f"{means[-1]:.2f}"
    assert values["mean of the last 3"] == f"{sum(means) / 3:.2f}"
    assert values["best return"].startswith(f"{max(means):.2f} after ")
    assert values["steps"] == "300 of 300"
    assert "threads of torch 1" in " ".join(printed.split())


def test_a_schedule_is_shown_as_in_a_script_without_the_fields_that_are_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme = dqn_scheme(algorithm={"lr": prl.LinearSchedule(1e-3, 1e-4), "epsilon": prl.LinearSchedule(1.0, 0.1, 0.5)})
    prl.Learner(scheme, 10, tmp_path / "run").close()
    printed = " ".join(output_of_show(monkeypatch, capsys, tmp_path / "run").split())
    assert "lr=LinearSchedule(initial=0.001, final=0.0001)" in printed
    assert "epsilon=LinearSchedule(initial=1.0, final=0.1, fraction=0.5)" in printed


def test_escape_codes_are_not_printed_and_damaged_files_are_refused_by_name(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((run / "versions.json").read_text())
    (run / "versions.json").write_text(json.dumps(facts | {"command": ["\x1b[2J[red]"]}))
    printed = output_of_show(monkeypatch, capsys, run)
    assert "\x1b" not in printed
    assert "[red]" in printed
    (run / "versions.json").write_text("[]")
    with pytest.raises(SystemExit, match=r"versions\.json is damaged: it is not a mapping of names to values"):
        output_of_show(monkeypatch, capsys, run)
    (run / "versions.json").unlink()
    with pytest.raises(SystemExit, match=r"versions\.json cannot be read"):
        output_of_show(monkeypatch, capsys, run)
    assert "best return" in capsys.readouterr().out
    (run / "git_diff.patch").unlink()
    with pytest.raises(
        SystemExit, match=r"has no git_diff\.patch: there were no uncommitted changes, or too many to save"
    ):
        output_of_show(monkeypatch, capsys, run, "--diff")


def test_settings_of_evaluations_and_a_seed_of_0_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme = prl.compose("PPO", "CartPole-v1", seed=0, test_seed=0, max_test_episode_steps=70)
    prl.Learner(scheme, 300, tmp_path).close()
    lines = [line.split() for line in output_of_show(monkeypatch, capsys, tmp_path).splitlines()]
    for setting in (["seed", "0"], ["test_seed", "0"], ["max_test_episode_steps", "70"]):
        assert setting in lines


def test_a_policy_shows_its_composition_and_the_run_that_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with prl.Learner(dqn_scheme(seed=3), 300, tmp_path / "run") as learner:
        learner.run(progress=False)
        learner.save_policy(tmp_path / "policy.pt", accuracy=0.5)
    lines = [line.split() for line in output_of_show(monkeypatch, capsys, tmp_path / "policy.pt").splitlines()]
    for fact in (["seed", "3"], ["steps", "300"], ["accuracy", "0.5"]):
        assert fact in lines
    assert any(line[:1] == ["algorithm"] and line[1].startswith("DQN(") for line in lines)
    with pytest.raises(SystemExit, match=r"--diff prints the changes of a run's code, and .*policy\.pt is a policy"):
        output_of_show(monkeypatch, capsys, tmp_path / "policy.pt", "--diff")


def test_all_settings_are_printed_or_written_for_an_appendix(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = " ".join(output_of_show(monkeypatch, capsys, run, "--all").split())
    assert "algorithm.mini_batch_size 16" in printed
    assert "algorithm.optimizers None" in printed, "a default"
    for suffix, expected in (
        (".csv", "algorithm.mini_batch_size,16"),
        (".md", "| algorithm.mini_batch_size | 16 |"),
        (".tex", r"algorithm.mini\_batch\_size & 16 \\"),
    ):
        output_of_show(monkeypatch, capsys, run, "--all", "-o", str(tmp_path / f"settings{suffix}"))
        assert expected in (tmp_path / f"settings{suffix}").read_text()
    for arguments, message in ((["-o", "a.csv"], "add --all"), (["--all", "-o", "a.txt"], r"must end in \.csv, \.md")):
        with pytest.raises(SystemExit, match=message):
            output_of_show(monkeypatch, capsys, run, *arguments)


def test_the_command_and_the_preset_of_a_run_are_shown_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--algorithm", "ppo", "--env", "CartPole-v1", "--steps", "1024", "--algorithm.test-every", "0"]
    program = [str(Path(prl.__file__).with_name("__main__.py")), "train", *options]
    monkeypatch.setattr(sys, "argv", program)
    main()
    run = Path("runs/PPO-CartPole-v1/seed-1")
    for command in (program, [*program, "--parent-process", "371"]):
        facts = json.loads((run / "versions.json").read_text())
        (run / "versions.json").write_text(json.dumps(facts | {"command": command}))
        printed = " ".join(output_of_show(monkeypatch, capsys, run).split())
        assert f"command python -m pytorchrl train {' '.join(options)} " in printed
        assert "preset PPO, CartPole-v1, with other " in printed
        assert "371" not in printed
