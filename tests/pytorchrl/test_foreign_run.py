"""A run folder may come from a stranger: resuming it changes no files outside of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.scheme.scheme import CompositionError
from tests.support.compositions import dqn_scheme
from tests.support.folders import content

NO_COMMIT = {"commit": 0, "checksum": 0}


def scheme(directory: Path, seed: int = 0) -> prl.Scheme:
    return dqn_scheme(seed, storage=prl.ReplayBuffer.create_factory(size=50, directory=directory))


def trained(folder: Path, directory: Path, seed: int = 0) -> None:
    learner = prl.Learner(scheme(directory, seed), 100, folder)
    learner.run()
    learner.close()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The directory of a storage that belongs to the user."""
    trained(tmp_path / "mine", tmp_path / "mine/replay", seed=1)
    return tmp_path / "mine/replay"


def crafted(folder: Path, directory: Any, position: dict[str, int] | None = None) -> None:
    """Change a run folder so that it refers to a storage in another place."""
    config = json.loads((folder / "config.json").read_text())
    config["storage"]["hyper_parameters"]["directory"] = directory
    (folder / "config.json").write_text(json.dumps(config))
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    state["config"]["storage"]["hyper_parameters"]["directory"] = directory
    state["scheme"]["storage"]["position"] = position or state["scheme"]["storage"]["position"]
    torch.save(state, folder / "checkpoint.pt")


def by_a_relative_path(mine: Path, stranger: Path) -> Any:
    return {"in_run_folder": "../mine/replay"}


def by_an_absolute_path(mine: Path, stranger: Path) -> Any:
    return str(mine)


def by_an_absolute_path_as_if_inside(mine: Path, stranger: Path) -> Any:
    return {"in_run_folder": str(mine)}


def by_a_link(mine: Path, stranger: Path) -> Any:
    shutil.rmtree(stranger / "replay")
    (stranger / "replay").symlink_to(mine)
    return {"in_run_folder": "replay"}


def by_a_linked_folder(mine: Path, stranger: Path) -> Any:
    (stranger / "linked").symlink_to(mine.parent)
    return {"in_run_folder": "linked/replay"}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("position", [NO_COMMIT, None], ids=["rewound to no commit", "rewound to its own commit"])
@pytest.mark.parametrize(
    "naming", [by_a_relative_path, by_an_absolute_path, by_an_absolute_path_as_if_inside, by_a_link, by_a_linked_folder]
)
def test_a_run_that_refers_to_a_storage_outside_its_folder_is_refused(
    naming: Callable[[Path, Path], Any], position: dict[str, int] | None, mine: Path, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger"
    trained(stranger, stranger / "replay")
    crafted(stranger, naming(mine, stranger), position)
    before = content(mine)
    with pytest.raises(prl.CheckpointError, match=r"outside the run folder.*Learner\.resume\(log_dir, scheme=scheme\)"):
        prl.Learner.resume(stranger, target_steps=120)
    assert content(mine) == before


def test_no_directory_is_created_outside_the_run_folder(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    trained(stranger, stranger / "replay")
    crafted(stranger, str(tmp_path / "new"), NO_COMMIT)
    with pytest.raises(prl.CheckpointError, match="outside the run folder"):
        prl.Learner.resume(stranger, target_steps=120)
    assert not (tmp_path / "new").exists()


def test_a_storage_outside_is_not_emptied_by_a_checkpoint_before_its_first_commit(mine: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    trained(stranger, stranger / "replay")
    crafted(stranger, {"in_run_folder": "replay"}, NO_COMMIT)
    own = scheme(mine)
    stored = len(own.storage)
    with pytest.raises(prl.CheckpointError, match=r"which resuming would empty.*Move .* away"):
        prl.Learner.resume(stranger, scheme=own, target_steps=120)
    own.close()
    own = scheme(mine)
    assert len(own.storage) == stored > 0
    own.close()


@pytest.mark.parametrize("kind", ["steps", "episodes"])
def test_a_users_own_run_whose_storage_is_elsewhere_is_resumed(kind: str, tmp_path: Path) -> None:
    storage = (
        prl.ReplayBuffer.create_factory(size=50, directory=tmp_path / "elsewhere")
        if kind == "steps"
        else prl.PersistentEpisodicBuffer.create_factory(size=500, directory=tmp_path / "elsewhere")
    )
    learner = prl.Learner(dqn_scheme(storage=storage), 100, tmp_path / "run")
    learner.run()
    learner.close()
    learner = prl.Learner.resume(tmp_path / "run", target_steps=140)
    assert learner.run()
    learner.close()


def test_a_storage_in_the_run_folder_is_rewound_to_before_its_first_commit(tmp_path: Path) -> None:
    learner = prl.Learner(scheme(tmp_path / "run/replay"), 100, tmp_path / "run")
    learner.save_checkpoint()
    learner.step()
    learner.close()
    learner = prl.Learner.resume(tmp_path / "run")
    assert len(learner.scheme.storage) == 0
    learner.close()


def test_a_wrapper_that_writes_to_a_path_given_in_a_file_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    trained(stranger, stranger / "replay")
    config = json.loads((stranger / "config.json").read_text())
    config["train_envs"]["hyper_parameters"]["wrappers"] = [["RecordVideo", {"video_folder": str(tmp_path / "new")}]]
    (stranger / "config.json").write_text(json.dumps(config))
    with pytest.raises(CompositionError, match="RecordVideo would write to a path given in a file"):
        load_agent(stranger)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("[]", "holds no composition"),
        ("{", "damaged"),
        ('{"algorithm": {}}', "its algorithm is not a class name"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_an_invalid_configuration_is_refused_by_name(damage: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(damage)
    with pytest.raises(prl.CheckpointError, match=rf"config\.json.*{message}"):
        prl.Learner.resume(tmp_path)
