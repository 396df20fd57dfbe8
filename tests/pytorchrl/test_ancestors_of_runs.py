"""Runs whose storage continues another one: moved with it, copied, and from a stranger."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.folders import content


def scheme(directory: Path, ancestor: Path | None = None, seed: int = 0) -> prl.Scheme:
    storage = prl.PersistentEpisodicBuffer.create_factory(
        size=5_000, directory=directory, **({} if ancestor is None else {"ancestor": ancestor})
    )
    return dqn_scheme(seed, storage=storage)


def trained(folder: Path, made: prl.Scheme, steps: int = 100) -> Path:
    learner = prl.Learner(made, steps, folder)
    learner.run()
    learner.close()
    return folder


def resumed(folder: Path, steps: int) -> tuple[int, list[Any]]:
    """Resume a run; return the number of transitions before, and all episodes after."""
    learner = prl.Learner.resume(folder, target_steps=steps)
    storage = learner.scheme.storage
    before = len(storage)
    learner.run()
    episodes = [(episode.observations.tolist(), episode.fields["Reward"].tolist()) for episode in storage.episodes()]
    learner.close()
    return before, episodes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in whose folder both its storage and the ancestor of that lie."""
    before = trained(tmp_path / "before", scheme(tmp_path / "before/episodes", seed=1), 200)
    folder = tmp_path / "run"
    shutil.copytree(before / "episodes", folder / "older")
    return trained(folder, scheme(folder / "episodes", folder / "older"))


@pytest.mark.parametrize("way", ["moved", "copied", "moved, its former place taken by another"])
def test_a_run_that_was_moved_with_its_ancestor_is_resumed_as_without_the_move(
    way: str, run: Path, tmp_path: Path
) -> None:
    stayed = Path(shutil.copytree(run, tmp_path / "stayed"))
    there = tmp_path / "deep" / "there"
    if way == "copied":
        shutil.copytree(run, there)
        shutil.rmtree(run / "older")
    else:
        there.parent.mkdir()
        shutil.move(run, there)
        if way != "moved":
            trained(run / "older", scheme(run / "older/episodes", seed=3))
    first, second = resumed(there, 140), resumed(stayed, 140)
    assert first == second
    assert first[0] > 150
    assert resumed(there, 180) == resumed(stayed, 180)
    config = json.loads((there / "config.json").read_text())
    assert config["storage"]["hyper_parameters"]["ancestor"] == {"in_run_folder": "older"}


def test_a_run_whose_ancestor_lies_elsewhere_is_resumed_and_moved_alone(tmp_path: Path) -> None:
    trained(tmp_path / "older", scheme(tmp_path / "older/episodes", seed=1), 200)
    trained(tmp_path / "run", scheme(tmp_path / "run/episodes", tmp_path / "older/episodes"))
    stored, _ = resumed(tmp_path / "run", 140)
    assert stored > 150
    (tmp_path / "run").rename(tmp_path / "moved")
    assert resumed(tmp_path / "moved", 180)[0] > stored


def test_a_repeated_run_reads_an_ancestor_in_the_folder_of_the_first(run: Path, tmp_path: Path) -> None:
    learner = prl.Learner.repeat(run, tmp_path / "repeated", seed=4)
    assert len(learner.scheme.storage) > 150
    learner.run()
    learner.close()
    assert resumed(tmp_path / "repeated", 140)[0] > 150


@pytest.mark.parametrize("named", ["absolute", "relative", "by a link"])
@pytest.mark.parametrize("call", ["resume", "repeat"])
def test_a_strangers_run_does_not_read_a_buffer_outside_its_folder(
    call: str, named: str, run: Path, tmp_path: Path
) -> None:
    mine = trained(tmp_path / "mine", scheme(tmp_path / "mine/episodes", seed=5)) / "episodes"
    config = json.loads((run / "config.json").read_text())
    if named == "by a link":
        (run / "linked").symlink_to(mine)
    ancestor: Any = {
        "absolute": str(mine),
        "relative": {"in_run_folder": "../mine/episodes"},
        "by a link": {"in_run_folder": "linked"},
    }[named]
    # The checkpoint is from before the first commit, and the storage would be made anew.
    config["storage"]["hyper_parameters"] |= {"ancestor": ancestor, "directory": {"in_run_folder": "new"}}
    (run / "config.json").write_text(json.dumps(config))
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    state["config"]["storage"]["hyper_parameters"] |= config["storage"]["hyper_parameters"]
    for position in ("position", "archive"):
        state["scheme"]["storage"][position] = {"commit": 0, "checksum": 0}
    torch.save(state, run / "checkpoint.pt")
    before = content(mine)
    with pytest.raises(prl.CheckpointError, match=r"outside the run folder, as the ancestor of the storage"):
        prl.Learner.resume(run, target_steps=140) if call == "resume" else prl.Learner.repeat(run, tmp_path / "new")
    assert not (run / "new").exists()
    assert not (tmp_path / "new").exists()
    assert content(mine) == before


@pytest.mark.parametrize("ancestor", [3, ["a"], {"in_run_folder": 3}, {"elsewhere": "a"}])
def test_an_ancestor_that_is_no_path_is_named_as_damage(ancestor: Any, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["storage"]["hyper_parameters"]["ancestor"] = ancestor
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        prl.CheckpointError, match=r"config\.json is damaged: the directory of a storage must be a path"
    ):
        prl.Learner.resume(run, target_steps=140)
