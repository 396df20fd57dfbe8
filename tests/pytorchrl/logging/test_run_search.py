"""The search for runs below folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.logging.run_search import find_runs, read_runs
from tests.support.run_folders import evaluated_run, recorded_run


def runs(folder: Path, *names: str) -> list[Path]:
    return [evaluated_run(folder / name, [(0, 1.0), (100, 2.0)]) for name in names]


def test_runs_are_found_at_any_depth_in_the_order_of_their_seeds(tmp_path: Path) -> None:
    two, ten, one = runs(tmp_path, "a/seed-2", "a/seed-10", "b/deep/seed-1")
    assert find_runs([tmp_path]) == [two, ten, one]
    assert find_runs([tmp_path / "b", tmp_path]) == [one, two, ten]
    assert find_runs([two, two]) == [two]


def test_a_run_given_by_a_relative_and_an_absolute_path_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = runs(tmp_path, "all/seed-1", "all/seed-2")
    monkeypatch.chdir(tmp_path)
    assert find_runs(["all", one, tmp_path / "all"]) == [Path("all/seed-1"), Path("all/seed-2")]
    recorded_run(Path("all/young"), [{"steps": 1}], {})
    with pytest.raises(ValueError, match="young has not measured a return yet"):
        read_runs(["all", tmp_path / "all" / "young"])


def test_a_backup_of_an_overwritten_run_is_found_only_by_its_own_path(tmp_path: Path) -> None:
    kept, backup = runs(tmp_path, "seed-1", "seed-1.backup-1")
    assert find_runs([tmp_path]) == [kept]
    assert find_runs([backup]) == [backup]


def test_the_search_does_not_enter_runs_or_follow_links(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "folder/run")
    runs(run, "inside")
    runs(tmp_path, "elsewhere")
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert find_runs([tmp_path / "folder"]) == [run]


def test_unusable_runs_below_a_folder_are_left_out_with_the_reason(tmp_path: Path) -> None:
    (good,) = runs(tmp_path, "good")
    damaged, young = recorded_run(tmp_path / "damaged", [{"steps": 1}], {}), tmp_path / "young"
    (damaged / "metrics.jsonl").write_text("{\n{}\n")
    young.mkdir()
    (young / "config.json").write_text("{}")
    without = recorded_run(tmp_path / "without", [{"steps": 1, "losses/q": 1.0}], {})
    read, left_out = read_runs([tmp_path])
    assert [run.folder for run in read] == [good]
    assert [line.partition(" is left out: ")[0] for line in left_out] == [str(damaged), str(without), str(young)]
    assert left_out[1].startswith(f"{without} is left out: it has not measured a return yet")
    assert left_out[2].startswith(f"{young} is left out: it has not measured anything yet")


def test_an_unusable_run_given_by_its_own_path_is_refused(tmp_path: Path) -> None:
    (good,) = runs(tmp_path, "good")
    without = recorded_run(tmp_path / "without", [{"steps": 1, "train/return": float("nan")}], {})
    with pytest.raises(ValueError, match="without has not measured a return yet"):
        read_runs([good, without])


def test_an_unknown_metric_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "run", [{"steps": 1, "losses/loss": 1.0, "train/return": 2.0}], {})
    assert read_runs([run], "losses/loss")[1] == []
    with pytest.raises(ValueError, match=r"has not logged 'losses/los'; did you mean losses/loss\?"):
        read_runs([run], "losses/los")
    with pytest.raises(ValueError, match="has not logged 'entropy'; it has losses/loss, train/return"):
        read_runs([run], "entropy")


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize(
    "function",
    [
        find_runs,
        read_runs,
        prl.compare_runs,
        lambda path: prl.compare_runs({"mine": path}),
        lambda path: prl.plot_runs(path, "picture.png"),
    ],
)
def test_a_single_path_in_the_place_of_a_list_is_refused(
    tmp_path: Path, function: Callable[[Any], object], kind: type[str | Path]
) -> None:
    (run,) = runs(tmp_path, "run")
    with pytest.raises(ValueError, match=f"must be a list of paths, got the single path '{run}'; write \\['{run}'\\]"):
        function(kind(run))


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"there is no run with measurements in {tmp_path}"):
        read_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="there is no run with measurements in no folder"):
        read_runs([])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist: expected a run folder, or a folder with runs"):
        read_runs([tmp_path / "nowhere"])
