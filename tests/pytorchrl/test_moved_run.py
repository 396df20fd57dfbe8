"""A run folder may be moved, and its storage on disk is found in the new place."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.experiments.inspection.overview import inspect_storage
from pytorchrl.experiments.runs import checkpoint
from storages.persistent import read_state
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scheme(directory: str | Path, seed: int = 0) -> prl.Scheme:
    storage = prl.PERBuffer.create_factory(size=50, alpha=0.6, epsilon=0.01, directory=directory)
    return dqn_scheme(seed, storage=storage)


def trained(folder: str | Path, directory: str | Path, steps: int = 100, seed: int = 0) -> None:
    learner = prl.Learner(scheme(directory, seed), steps, folder)
    learner.run(checkpoint_every=50)
    learner.close()


def result_of(folder: str, directory: str) -> Any:
    state = checkpoint.load(Path(folder) / "checkpoint.pt")["scheme"]
    storage = state.pop("storage")
    return state, read_state(directory, storage.pop("position")), storage


@pytest.mark.parametrize("path_kind", ["relative", "absolute"])
def test_a_moved_run_finds_its_storage_inside_and_continues_as_without_the_move(
    path_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path() if path_kind == "relative" else tmp_path
    trained(base / "runs/x", base / "runs/x/kept/replay")
    trained("stayed", "stayed/kept/replay", 200)
    Path("runs/x").rename("runs/y")
    assert inspect_storage(Path("runs/y")).inserted_steps == 50
    # It is resumed from another working directory, too.
    monkeypatch.chdir("runs")
    for target in ("150", "200"):
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "resume", "y", "--target-steps", target])
        main()
    monkeypatch.chdir(tmp_path)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["y"]
    assert_equal(result_of("runs/y", "runs/y/kept/replay"), result_of("stayed", "stayed/kept/replay"))
    config = json.loads(Path("runs/y/config.json").read_text())
    assert config["storage"]["hyper_parameters"]["directory"] == {"in_run_folder": "kept/replay"}


def test_a_moved_run_is_resumed_with_a_scheme_that_names_the_new_directory() -> None:
    trained("runs/x", "runs/x/replay")
    Path("runs/x").rename("runs/y")
    learner = prl.Learner.resume("runs/y", scheme=scheme("runs/y/replay"), target_steps=120)
    assert learner.run()
    learner.close()


def test_a_missing_storage_outside_is_found_by_a_scheme_with_its_new_directory() -> None:
    trained("runs/x", "replay")
    Path("replay").rename("moved")
    with pytest.raises(
        prl.CheckpointError, match=r"refers to files of its storage in replay, which does not exist.*scheme=scheme"
    ):
        prl.Learner.resume("runs/x", target_steps=120)
    assert not Path("replay").exists()
    learner = prl.Learner.resume("runs/x", scheme=scheme("moved"), target_steps=120)
    learner.close()
    # The new directory has been saved.
    learner = prl.Learner.resume("runs/x", target_steps=140)
    assert learner.run()
    learner.close()


def test_the_directory_of_the_storage_of_another_run_is_refused() -> None:
    trained("runs/x", "replay")
    trained("runs/y", "other", seed=1)
    refused = pytest.raises(prl.CheckpointError, match=r"other has commits 1 to \d+, but commit \d+")
    with scheme("other") as other, refused:
        prl.Learner.resume("runs/x", scheme=other)
