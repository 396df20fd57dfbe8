"""A report shows the contents of run folders, is one self-contained page, and does not modify the runs."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytorchrl.__main__ import main
from pytorchrl.logging.bands import band_of
from pytorchrl.logging.curves import SMOOTHED_SHARE, Run, XAxis, read_run
from pytorchrl.report import Limits, page, write_report
from pytorchrl.report.charts import MOST_POINTS
from tests.support.compositions import dqn_scheme
from tests.support.folders import content
from tests.support.reported_runs import GIF, runs_of_all_kinds, trained

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs_of_all_kinds(tmp_path_factory.mktemp("report") / "runs")


@pytest.fixture(scope="module")
def text(runs: Path) -> str:
    return without_plotly(write_report([runs], runs.parent / "report.html"))


def without_plotly(report: Path) -> str:
    """The page without the script of plotly."""
    between = "</script>\n<script>"
    before, _, after = report.read_text().partition(between)
    return before + between + after.rpartition(between)[2]


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize(("metric", "share"), [("test/return", 0.0), ("train/return", SMOOTHED_SHARE)])
@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_bands_are_those_of_figures(axis: XAxis, metric: str, share: float, tmp_path: Path) -> None:
    scheme = dqn_scheme()
    scheme.close()
    config = {**scheme.config, "target_steps": 30, "log_to": [], "log_every": 1}
    values = np.array([[381.2, 90.0], [132.5, 20.0], [87.1, 10.0]])
    for number, (first, second) in enumerate(values):
        folder = tmp_path / f"seed-{number}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config | {"seed": number}))
        (folder / "versions.json").write_text("{}")
        records = [
            {"steps": steps, "seconds": steps / 10, metric: first + second * steps, "train/episodes": 2}
            for steps in range(1, 1 + 30)
        ]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    runs = [read_run(tmp_path / f"seed-{number}") for number in range(3)]
    draw = Run.training if metric == "train/return" else Run.evaluations
    expected = band_of([draw(run, axis) for run in runs])
    assert expected is not None
    shown = data_of(without_plotly(write_report([tmp_path], tmp_path / "report.html")))
    (group,) = shown["curves"]["groups"]
    band = group["bands"][metric][axis][f"{share:g}"]
    for name, numbers in (("x", expected.x), ("y", expected.values), ("low", expected.low), ("high", expected.high)):
        np.testing.assert_allclose(band[name], numbers, rtol=1e-5)
    assert "episodes" in group["bands"][metric]


def test_the_page_computes_no_interval_itself() -> None:
    scripts = "".join(file.read_text() for file in (Path(page.__file__).parent / "templates").glob("*.js"))
    for word in ("quantile", "resample", "random", "Mean"):
        assert word.lower() not in scripts.lower(), f"{word} is computed once, in Python"


def part_of(text: str, name: str) -> str:
    found = re.search(rf'<section id="part-{name}">(.*?)</section>', text, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.long
def test_writing_a_report_changes_no_byte_of_the_runs(runs: Path, tmp_path: Path) -> None:
    before = content(runs)
    write_report([runs], tmp_path / "report.html")
    assert content(runs) == before


def test_the_page_has_no_external_references(text: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!data:)[^"]*"', text)
    assert "default-src 'none'" in html.unescape(text)


def test_runs_that_differ_only_in_their_seed_are_one_composition(text: str) -> None:
    found = data_of(text)["curves"]["groups"]
    assert {tuple(run["name"] for run in group["runs"]) for group in found} >= {
        ("prioritised/seed-1", "prioritised/seed-2")
    }
    series = found[0]["runs"][0]["series"]
    assert series["test/return"]["steps"] == [100, 200, 300, 400]
    assert np.diff(series["train/return"]["seconds"]).min() > 0


def test_each_difference_between_compositions_is_a_table_row(text: str) -> None:
    rows = re.findall(r'<tr><th scope="row">([\w.]+)\n?<td>([^<]*)<td>([^<]*)', part_of(text, "compositions"))
    differing = {name: {first.strip(), second.strip()} for name, first, second in rows}
    assert differing["storage"] == {"ReplayBuffer", "PERBuffer"}
    assert differing["storage.alpha"] == {"", "0.6"}
    assert "seed" not in differing
    assert "storage.size" not in differing


def test_compositions_are_compared_over_their_seeds(text: str) -> None:
    statistics = part_of(text, "statistics")
    assert "Probability of improvement over DQN + " in statistics
    assert re.search(r'<tr><th scope="row">DQN \+ PERBuffer<td class="n">2<td', statistics)


def test_the_first_part_answers_which_composition_is_better_and_how_sure_that_is(text: str) -> None:
    first = re.findall(r'<section id="part-(\w+)">', text)[0]
    answers = html.unescape(part_of(text, first).partition("<div id")[0])
    assert re.search(r"(is ahead of|has a higher mean than|has the same mean as) DQN \+ ", answers)
    assert "A run of DQN + " in answers


@pytest.mark.long
def test_parts_without_content_are_left_out(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    (run / "checkpoint.pt").unlink()
    found = re.findall(r'<section id="part-(\w+)">', write_report([run], tmp_path / "report.html").read_text())
    assert found == ["curves", "overview", "statistics", "compositions", "evaluations", "provenance"]


def test_errors_and_runs_that_cannot_be_read_are_shown(text: str) -> None:
    errors = part_of(text, "errors")
    assert "ValueError: the simulator is gone" in errors
    assert re.search(r"<h3>damaged</h3>\n<pre[^>]*>[^<]*config.json is damaged", errors)
    assert part_of(text, "overview").count('class="state">failed') == 2


def test_a_diff_shared_by_several_runs_is_shown_once_and_collapsed(text: str) -> None:
    provenance = part_of(text, "provenance")
    assert provenance.count("+gamma = 0.99") == 1
    assert re.search(r"<details>\n<summary>Uncommitted changes</summary>\n<pre[^>]*>-gamma = 0.9", provenance)


def test_videos_above_the_size_limit_are_named_and_left_out(runs: Path, tmp_path: Path) -> None:
    report = write_report([runs / "uniform"], tmp_path / "report.html", limits=Limits(videos=len(GIF) * 1e-6))
    assert part_of(report.read_text(), "videos").count("data:image/gif;base64,") == 1
    report = write_report([runs / "uniform"], report, limits=Limits(videos=0))
    videos = part_of(report.read_text(), "videos")
    assert "data:" not in videos
    assert f"seed-1/videos/steps-000000200.gif, {len(GIF)} bytes" in videos


def test_a_link_in_a_run_folder_is_not_followed(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    secret = tmp_path / "secret.gif"
    secret.write_bytes(GIF)
    (run / "videos").mkdir()
    (run / "videos" / "film.gif").symlink_to(secret)
    text = write_report([run], tmp_path / "report.html").read_text()
    assert "film.gif" not in text
    (run / "git_diff.patch").unlink(missing_ok=True)
    (run / "git_diff.patch").symlink_to(secret)
    assert "git_diff.patch is a symbolic link" in write_report([run], tmp_path / "report.html").read_text()


def test_the_ten_most_surprising_transitions_have_rows(text: str) -> None:
    surprising = part_of(text, "surprising")
    assert surprising.count('<div class="panel"') == 2
    assert surprising.count('<tr><td class="n">') == 20


def test_storages_are_described_and_a_checkpoint_above_the_size_limit_is_not_read(
    runs: Path, text: str, tmp_path: Path
) -> None:
    assert "PERBuffer(size=150" in part_of(text, "storages")
    titles = [one["title"] for one in data_of(text)["histograms"][0]]
    assert titles[-1] == "Age of stored transitions"
    report = write_report([runs / "uniform"], tmp_path / "report.html", limits=Limits(checkpoint=1e-6))
    assert "more than the limit of 0 MB; --largest-checkpoint changes it" in report.read_text()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("metric", ["test/return", "train/return"])
def test_the_returns_of_a_run_that_ended_with_values_that_are_not_finite_are_marked(
    tmp_path: Path, metric: str
) -> None:
    for name, values in (("finite", [1.0, None, 3.0]), ("diverged", [1.0, 2.0, None])):
        run = trained(tmp_path / "runs" / name)
        records = [{"steps": 100 * step, "seconds": 1.0, metric: value} for step, value in enumerate(values)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    overview = part_of(without_plotly(write_report([tmp_path / "runs"], tmp_path / "report.html")), "overview")
    of_training = "*" if metric == "train/return" else ""
    assert f">3.0{of_training}<" in overview
    assert f">2.0{of_training}†<" in overview
    assert "† The run ends with values that are not finite; its returns are those until the last finite one" in (
        " ".join(overview.split())
    )
    (tmp_path / "runs" / "diverged").rename(tmp_path / "elsewhere")
    of_finite = without_plotly(write_report([tmp_path / "runs"], tmp_path / "report.html"))
    assert "†" not in part_of(of_finite, "overview")


def test_a_long_curve_shows_means_of_neighbours_and_omits_non_finite_values(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    many = 2 * MOST_POINTS
    records = [{"steps": step, "seconds": float(step), "losses/loss": step % 2} for step in range(1, many + 1)]
    lines = [json.dumps(record) for record in [*records, {"steps": many + 1, "seconds": 1.0, "losses/loss": None}]]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    found = data_of(without_plotly(write_report([run], tmp_path / "report.html")))["curves"]["groups"][0]["runs"][0]
    loss = found["series"]["losses/loss"]
    assert loss["y"] == [0.5] * MOST_POINTS
    assert loss["steps"][:2] == [1.5, 3.5]
    assert loss["episodes"] == []


def test_groups_have_the_names_and_the_order_given(
    runs: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [group["label"] for group in data_of(text)["curves"]["groups"]]
    output = tmp_path / "report.html"
    arguments = [
        "report",
        str(runs),
        "-o",
        str(output),
        "--names",
        own[-1],
        "ours",
        own[0],
        "deep Q",
        "--order",
        "ours",
    ]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    main()
    shown = [group["label"] for group in data_of(without_plotly(output))["curves"]["groups"]]
    assert shown == ["ours", "deep Q", *own[1:-1]]
    with pytest.raises(ValueError, match="names: there is no group 'SAC'; choose from: "):
        write_report([runs], output, names={"SAC": "theirs"})


def test_the_command_prints_the_path_and_the_size_of_the_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.html"
    arguments = ["report", str(runs / "uniform"), "-o", str(output), "--title", "Two seeds"]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    main()
    assert re.fullmatch(rf"{re.escape(str(output))}: [45]\.\d+ MiB\n", capsys.readouterr().out)
    assert "<title>Two seeds</title>" in output.read_text()


@pytest.mark.parametrize(
    ("paths", "output", "message"),
    [
        (["nowhere"], "report.html", "nowhere does not exist: expected a run folder"),
        (["empty"], "report.html", "there is no run in .*empty$"),
        (["empty"], "report.pdf", r"its name must end in .html, got '.*report.pdf'"),
    ],
)
def test_folders_without_runs_and_other_output_files_are_refused(
    paths: list[str], output: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises((OSError, ValueError), match=message):
        write_report([tmp_path / path for path in paths], tmp_path / output)
    assert not (tmp_path / output).exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r'needs the package plotly: pip install "pytorchrl-toolkit\[report\]"'):
        write_report([tmp_path], tmp_path / "report.html")
