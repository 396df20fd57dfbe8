"""``--storage.directory``: runs of several seeds and of sweeps keep their storages apart, and find them again."""

from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.commands.train import train
from pytorchrl.experiments.runs.run_folder import RunFolder
from storages import ReplayBuffer
from tests.support.data_sets import recorded

ARGUMENTS = ["--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset", "--storage", "replay", "--log-dir", "runs"]
ARGUMENTS += ["--actor.hidden-sizes", "8", "--algorithm.start-steps", "20", "--storage.directory", "kept"]


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the test's folder."""
    monkeypatch.chdir(tmp_path)


def stored(directory: str) -> int:
    storage = ReplayBuffer.create_factory(size=100_000, directory=directory)("cpu", None, None, None)
    try:
        return len(storage)
    finally:
        storage.close()


def directory_of(arguments: list[str], seed: int = 1, source: str = "main") -> str:
    scheme = described_run([*ARGUMENTS, *arguments]).scheme(seed)
    scheme.close()
    storage = scheme.storages[source]
    assert isinstance(storage, ReplayBuffer)
    return str(storage.directory)


@pytest.mark.long
def test_runs_of_several_seeds_learn_from_their_own_storages_and_are_continued(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train([*ARGUMENTS, "--steps", "30", "--seeds", "1", "2"])
    assert [path.name for path in sorted(Path("kept").iterdir())] == ["seed-1", "seed-2"]
    assert (stored("kept/seed-1"), stored("kept/seed-2")) == (30, 30)
    train([*ARGUMENTS, "--steps", "50", "--seeds", "1", "2"])
    assert "seed 2, 30 of 50 steps" in capsys.readouterr().out
    assert (stored("kept/seed-1"), stored("kept/seed-2")) == (50, 50)


def test_one_of_several_seeds_is_continued_alone_in_its_directory(capsys: pytest.CaptureFixture[str]) -> None:
    train([*ARGUMENTS, "--steps", "30", "--seeds", "1", "2"])
    train([*ARGUMENTS, "--steps", "40", "--seeds", "2"])
    assert (stored("kept/seed-1"), stored("kept/seed-2")) == (30, 40)
    assert "transitions already" not in capsys.readouterr().out


def test_a_run_is_not_begun_in_the_storage_of_another_one() -> None:
    train([*ARGUMENTS, "--steps", "30", "--seeds", "1"])
    with pytest.raises(FileExistsError, match=r"kept belongs to the run in .*seed-1, .*Give .*seed-2 a directory of"):
        train([*ARGUMENTS, "--steps", "30", "--seeds", "2"])
    assert stored("kept") == 30
    train([*ARGUMENTS, "--steps", "40", "--seeds", "1"])
    assert stored("kept") == 40


@pytest.mark.long
def test_a_seed_that_is_added_to_several_has_its_directory_beside_theirs() -> None:
    train([*ARGUMENTS, "--steps", "30", "--seeds", "1", "2"])
    train([*ARGUMENTS, "--steps", "30", "--seeds", "3"])
    assert [path.name for path in sorted(Path("kept").iterdir())] == ["seed-1", "seed-2", "seed-3"]
    train([*ARGUMENTS, "--steps", "40", "--seeds", "3"])
    assert (stored("kept/seed-1"), stored("kept/seed-3")) == (30, 40)


@pytest.mark.long
def test_a_single_run_keeps_its_storage_and_those_of_added_seeds_are_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train([*ARGUMENTS, "--steps", "30"])
    assert stored("kept") == 30
    train([*ARGUMENTS, "--steps", "40", "--seeds", "1", "2"])
    assert (stored("kept"), stored("kept-seed-2")) == (40, 40)
    assert not list(Path("kept").glob("seed-*"))
    train([*ARGUMENTS, "--steps", "50", "--seeds", "2"])
    train([*ARGUMENTS, "--steps", "60", "--seeds", "1", "2"])
    assert (stored("kept"), stored("kept-seed-2")) == (60, 60)
    assert "transitions already" not in capsys.readouterr().out


@pytest.mark.long
def test_seeds_that_were_added_inside_the_storage_of_another_are_continued_there() -> None:
    train([*ARGUMENTS, "--steps", "30"])
    train([*ARGUMENTS, "--steps", "30", "--seeds", "2", "--storage.directory", "kept/seed-2"])
    train([*ARGUMENTS, "--steps", "40", "--seeds", "1", "2"])
    assert stored("kept/seed-2") == 40


def test_runs_that_shared_a_directory_are_continued_in_it() -> None:
    described = described_run([*ARGUMENTS, "--seeds", "1", "2"])
    learner = prl.Learner(described.parts.scheme(1, "cpu"), 30, "runs/seed-1")
    learner.run()
    learner.close()
    assert RunFolder("runs/seed-1").read_config()["storage"]["hyper_parameters"]["directory"] == "kept"
    train([*ARGUMENTS, "--steps", "40", "--seeds", "1", "2"])
    assert (stored("kept"), stored("kept-seed-2")) == (40, 40)


def test_a_storage_that_was_moved_is_found_by_its_new_directory() -> None:
    train([*ARGUMENTS, "--steps", "30", "--seeds", "1", "2"])
    Path("kept").rename("moved")
    train([*ARGUMENTS, "--steps", "40", "--seeds", "1", "2", "--storage.directory", "moved"])
    assert (stored("moved/seed-1"), stored("moved/seed-2")) == (40, 40)


def test_each_run_of_a_sweep_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {"algorithm.gamma=0.9": 3, "algorithm.gamma=0.99": 3, "trial-0": 1}
    for name, seed in folders.items():
        trial = Trial({"algorithm.gamma": "0.9"}, seed, Path("sweep", name))
        of_sweep = ["--seeds", str(seed), "--log-dir", str(trial.folder), "--parent-process", "1"]
        assert directory_of([*trial.options, *of_sweep], seed) == f"kept/{name}/seed-{seed}"
    monkeypatch.setenv("WANDB_SWEEP_ID", "a-sweep")
    monkeypatch.setenv("WANDB_RUN_ID", "a-run")
    assert directory_of([]) == "kept/a-sweep/a-run/seed-1"


def test_the_runs_of_a_sweep_are_beside_the_storage_of_an_earlier_run(monkeypatch: pytest.MonkeyPatch) -> None:
    train([*ARGUMENTS, "--steps", "30"])
    monkeypatch.setenv("WANDB_SWEEP_ID", "a-sweep")
    monkeypatch.setenv("WANDB_RUN_ID", "a-run")
    assert directory_of(["--log-dir", "others"]) == "kept-a-sweep/a-run/seed-1"


def test_data_mixed_with_the_transitions_of_each_seed_are_kept_beside_its_storage(tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz")
    arguments = ["--data", str(data), "--online", "--seeds", "1", "2"]
    assert directory_of(arguments, 2, "data") == "kept/seed-2-data"
    assert directory_of(arguments, 2) == "kept/seed-2"
