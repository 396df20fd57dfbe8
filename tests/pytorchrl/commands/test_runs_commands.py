"""``python -m pytorchrl ls`` and ``evaluations``: where they look for runs, and what they say of unreadable ones."""

import csv
import shutil
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.logging import MetricsFile
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter


def test_only_the_default_folder_of_runs_need_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls"])
    main()
    assert capsys.readouterr().out == "There is no run in runs.\n"
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls", "nothing"])
    with pytest.raises(SystemExit, match=r"^error: nothing does not exist; ls lists the runs in a folder"):
        main()
    Path("a-file").touch()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls", "a-file"])
    with pytest.raises(SystemExit, match=r"^error: a-file is no folder; ls lists the runs in a folder"):
        main()


def test_runs_that_cannot_be_read_leave_the_names_of_the_others_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(Counter)), 20, "runs/whole")
    learner.run()
    learner.close()
    for name, file in (("no-config", "config.json"), ("no-metrics", "metrics.jsonl")):
        shutil.copytree("runs/whole", f"runs/{name}")
        Path(f"runs/{name}/{file}").write_text("?\n")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls"])
    main()
    table, _, reasons = capsys.readouterr().out.partition("no-config")
    assert "whole" in table
    assert "20 of 20" in table
    assert reasons.splitlines() == [
        " cannot be read: runs/no-config/config.json is damaged: Expecting value: line 1 column 1 (char 0)",
        "no-metrics cannot be read: runs/no-metrics/metrics.jsonl, line 1 is no JSON object of numbers: Expecting "
        "value: line 1 column 1 (char 0); remove the line, or restore the file from a copy",
    ]
    shutil.rmtree("runs/whole")
    main()
    assert capsys.readouterr().out.startswith("no-config cannot be read: ")


def test_runs_that_others_replaced_are_counted_and_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        scheme = dqn_scheme(envs=prl.VecEnv.create_factory(Counter))
        with prl.Learner(scheme, 20, "runs/again", overwrite=True) as learner:
            learner.run()
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls"])
    main()
    said, *table = capsys.readouterr().out.splitlines()
    assert said == "Left out: 2 runs that others replaced, in folders such as runs/again.backup-1"
    assert "again" in str(table)
    assert "backup" not in str(table)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls", "runs/again.backup-1"])
    main()
    assert "20 of 20" in capsys.readouterr().out


def test_runs_are_listed_without_provenance_and_other_programs_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(Counter)), 20, "runs/moved") as learner:
        learner.run()
    Path("runs/moved/versions.json").unlink()
    Path("runs/other").mkdir()
    Path("runs/other/config.json").write_text("{}")
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls"])
    main()
    printed = capsys.readouterr().out
    assert "moved" in printed
    assert "other" not in printed


def test_evaluations_without_metrics_are_refused_and_folders_of_the_table_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for run, what in (("nothing", "nothing does not exist"), ("runs", "runs is not a run folder")):
        monkeypatch.setattr(sys, "argv", ["pytorchrl", "evaluations", run])
        with pytest.raises(SystemExit, match=rf"^error: {what}: expected a folder with the metrics\.jsonl"):
            main()
    written = MetricsFile(Path("runs/metrics.jsonl"))
    written.write({"steps": 10, "test/return": 1.5})
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "evaluations", "runs", "-o", "new/folder/table.csv"])
    main()
    assert "10,,,1.5" in Path("new/folder/table.csv").read_text()


def test_all_evaluations_of_a_run_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    learner = prl.Learner(dqn_scheme(), 200, folder)
    learner.run()
    learner.close()
    rows = prl.read_evaluations(folder)
    assert [row["steps"] for row in rows] == [100, 200]
    for row in rows:
        assert row["episodes"] == 2
        assert row["minimum"] <= row["median"] <= row["maximum"]
        # With two episodes, the mean is the median.
        assert row["mean"] == row["median"] == (row["minimum"] + row["maximum"]) / 2
        assert row["deviation"] == pytest.approx((row["maximum"] - row["minimum"]) / 2)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "evaluations", str(folder)])
    capsys.readouterr()
    main()
    head, _, *shown = (line.split() for line in capsys.readouterr().out.splitlines() if line.strip())
    assert " ".join(head) == "steps seconds episodes mean median deviation minimum maximum length"
    assert [cells[0] for cells in shown] == ["100", "200"]
    sys.argv += ["-o", str(tmp_path / "evaluations.csv")]
    main()
    with (tmp_path / "evaluations.csv").open() as file:
        assert [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)] == rows
    sys.argv[-1] = str(tmp_path / "evaluations.txt")
    with pytest.raises(SystemExit, match=r"ends in .csv or .md, got .*\.txt"):
        main()
