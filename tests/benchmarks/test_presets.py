"""The table of presets: finished runs are shown and kept, stopped ones are continued, and missing ones say so."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

import pytorchrl as prl
from benchmarks.learning import presets, presets_zoo
from benchmarks.learning.presets_tasks import PRESETS, PresetTask, Published
from pytorchrl.commands.composition.presets import preset_of

TASK = PresetTask("dqn-cartpole", "DQN", "CartPole-v1", Published(500.0, 50_000, "somewhere"), seeds=(1, 2))
OTHER = PresetTask("sac-pendulum", "SAC", "Pendulum-v1", seeds=(1,))
STEPS = 1_400


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> presets.Arguments:
    monkeypatch.setattr(presets, "PRESETS", (TASK, OTHER))
    monkeypatch.setattr(presets, "EPISODES", 2)
    monkeypatch.setattr(presets, "COPIES", 2)
    page = tmp_path / "presets.md"
    page.write_text(f"before\n{presets._BEGIN}\nan earlier table\n{presets._END}\nafter\n")
    return presets.Arguments(
        tasks=(TASK.name,),
        processes=0,
        runs=tmp_path / "runs",
        page=page,
        returns=tmp_path / "returns.yaml",
        published=tmp_path / "published.yaml",
        kept=tmp_path / "kept",
    )


def row_of(name: str, page: Path) -> list[str]:
    line = next(line for line in page.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_row_is_of_a_preset_and_has_a_name_of_its_own() -> None:
    assert len({task.name for task in PRESETS}) == len(PRESETS)
    for task in PRESETS:
        preset, _ = preset_of(getattr(prl, task.algorithm), task.env)
        assert task.package is not None or preset["steps"] > 0, task.name


def test_the_packages_file_of_published_returns_is_that_of_the_table() -> None:
    file = presets.Arguments().published
    assert file.read_text(encoding="utf-8") == presets.published_text(PRESETS)
    assert yaml.safe_load(file.read_text())["PPO"]["Hopper-v5"] == {
        "return": 2410.4,
        "steps": 1_000_000,
        "source": "rl-baselines3-zoo, in Hopper-v3",
    }


def test_the_table_shows_finished_runs_and_says_which_presets_are_not_measured(arguments: presets.Arguments) -> None:
    for run, final_return, best_return in zip(
        presets.runs_of(TASK, arguments), (480.0, 500.0), (490.0, 500.0), strict=True
    ):
        run.folder.mkdir(parents=True)
        result = presets.Result(60_000, final_return, best_return, minutes=3.0)
        (run.folder / "preset_run.json").write_text(json.dumps(asdict(result)))
    presets.main(arguments)
    expected = [
        "CartPole-v1",
        "60,000",
        "480.0, 500.0",
        "490.0",
        "495.0",
        "3.0",
        "500.0 after 50,000 steps (somewhere)",
    ]
    assert row_of("dqn-cartpole", arguments.page)[1:] == expected
    assert row_of("sac-pendulum", arguments.page)[3:] == ["not measured yet", "", "", "", "-"]
    text = arguments.page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "an earlier table" not in text
    assert "2 of 3 have finished" in " ".join(text.split())
    returns = yaml.safe_load(arguments.returns.read_text())
    assert returns == {"DQN": {"CartPole-v1": {"steps": 60_000, "returns": [480.0, 500.0], "minutes": 3.0}}}
    before = text
    for run in presets.runs_of(TASK, arguments):
        (run.folder / "preset_run.json").unlink()
    presets.main(arguments)
    assert arguments.page.read_text() == before, "the results were kept apart from the run folders"


def test_an_unknown_preset_is_refused_with_the_names_of_all(arguments: presets.Arguments) -> None:
    arguments.tasks = ("dqn-cartpol",)
    with pytest.raises(SystemExit, match="there is no preset dqn-cartpol; choose from dqn-cartpole, sac-pendulum"):
        presets.main(arguments)


@pytest.mark.long
def test_a_stopped_run_is_continued_evaluated_and_written_to_the_zoo(
    arguments: presets.Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets_zoo, "EPISODES", 2)
    arguments.steps = STEPS
    run = presets.runs_of(TASK, arguments)[0]
    learner = prl.Learner(run.parts.scheme(run.seed, "cpu"), STEPS, run.folder)
    learner.step()
    learner.save_checkpoint()
    begun_at = learner.scheme.steps
    learner.close()
    assert 0 < begun_at < STEPS
    assert run.result is None
    run.make()
    assert run.result is not None
    assert run.result.steps == STEPS
    assert run.result.final_return > 5
    assert run.result.minutes > 0
    presets.write_zoo([TASK], tmp_path / "zoo", arguments)
    policy = prl.load_policy(tmp_path / "zoo" / "dqn-cartpole.pt")
    assert type(policy.algorithm) is prl.DQN
    assert "| `dqn-cartpole` | DQN | CartPole-v1 |" in (tmp_path / "zoo" / "README.md").read_text()
