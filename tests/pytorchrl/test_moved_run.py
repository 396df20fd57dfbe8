"""A run folder may be moved, and what its storage keeps on disk is found where it is now."""

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
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scheme(directory: str | Path, seed: int = 0) -> prl.Scheme:
    storage = prl.PERBuffer.create_factory(size=50, alpha=0.6, epsilon=0.01, directory=directory)
    return dqn_scheme(seed, storage=storage)


def trained(folder: str | Path, directory: str | Path, steps: int = 100, seed: int = 0) -> None:
    learner = prl.Learner(scheme(directory, seed), steps, folder)
    learner.run(checkpoint_every=50)
    learner.close()


def came_to(folder: str, directory: str) -> Any:
    state = checkpoint.load(Path(folder) / "checkpoint.pt")["scheme"]
    storage = state.pop("storage")
    return state, read_state(directory, storage.pop("position")), storage


@pytest.mark.parametrize("spelled", ["as it was typed", "whole"])
def test_a_moved_run_finds_its_storage_inside_and_goes_on_as_if_it_had_stayed(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginning = Path() if spelled == "as it was typed" else tmp_path
    trained(beginning / "runs/x", beginning / "runs/x/kept/replay")
    trained("stayed", "stayed/kept/replay", 200)
    Path("runs/x").rename("runs/y")
    assert inspect_storage(Path("runs/y")).inserted_steps == 50
    # Not from where it began, either.
    monkeypatch.chdir("runs")
    for target in ("150", "200"):
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "resume", "y", "--target-steps", target])
        main()
    monkeypatch.chdir(tmp_path)
    assert sorted(path.name for path in Path("runs").iterdir()) == ["y"]
    assert_equal(came_to("runs/y", "runs/y/kept/replay"), came_to("stayed", "stayed/kept/replay"))
    config = json.loads(Path("runs/y/config.json").read_text())
    assert config["storage"]["hyper_parameters"]["directory"] == {"in_run_folder": "kept/replay"}


def test_a_scheme_of_the_moved_run_is_made_with_the_directory_as_it_is_now() -> None:
    trained("runs/x", "runs/x/replay")
    Path("runs/x").rename("runs/y")
    learner = prl.Learner.resume("runs/y", scheme=scheme("runs/y/replay"), target_steps=120)
    assert learner.run()
    learner.close()


def test_a_storage_outside_that_is_gone_is_missed_and_found_by_a_scheme_with_the_directory_as_it_is_now() -> None:
    trained("runs/x", "replay")
    Path("replay").rename("moved")
    with pytest.raises(
        prl.CheckpointError, match=r"refers to files of its storage in replay, which does not exist.*scheme=scheme"
    ):
        prl.Learner.resume("runs/x", target_steps=120)
    assert not Path("replay").exists()
    learner = prl.Learner.resume("runs/x", scheme=scheme("moved"), target_steps=120)
    learner.close()
    # Kept from then on.
    learner = prl.Learner.resume("runs/x", target_steps=140)
    assert learner.run()
    learner.close()


def test_another_directory_than_that_of_the_run_is_refused_by_what_it_holds() -> None:
    trained("runs/x", "replay")
    trained("runs/y", "other", seed=1)
    with pytest.raises(prl.CheckpointError, match=r"other has commits 1 to \d+, but commit \d+"):
        prl.Learner.resume("runs/x", scheme=scheme("other"))
