"""Further sources on disk are found and refused like the storage of a run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.scheme import from_dataset
from tests.support.comparison import assert_equal
from tests.support.compositions import ppo_scheme
from tests.support.folders import content


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "episodes.npz"
    scheme = ppo_scheme()
    collect_demonstrations(scheme.algorithm, scheme.envs, path=path, steps=60)
    scheme.close()
    return path


def imitating(expert: prl.Factory[prl.Storage], seed: int = 0) -> prl.Scheme:
    return prl.Scheme(
        prl.GAIL.create_factory(discriminator_batch_size=16, discriminator_epochs=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        sources={"expert": expert},
        seed=seed,
    )


def on_disk(directory: Path) -> prl.Factory[prl.Storage]:
    return prl.ReplayBuffer.create_factory(size=100, directory=directory)


def filled(data: Path, directory: Path) -> prl.Factory[prl.Storage]:
    """Fill a directory with the data of an expert, so that the data set is not needed any more."""
    scheme = imitating(from_dataset(on_disk(directory), data))
    scheme.close()
    return on_disk(directory)


def trained(data: Path, folder: Path, directory: Path) -> dict[str, Any]:
    learner = prl.Learner(imitating(filled(data, directory)), 64, folder)
    learner.run()
    state = learner.scheme.state_dict()
    learner.close()
    return state


def test_a_moved_run_finds_its_source_inside(data: Path, tmp_path: Path) -> None:
    state = trained(data, tmp_path / "run", tmp_path / "run" / "expert")
    (tmp_path / "run").rename(tmp_path / "moved")
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    assert config["sources"]["expert"]["hyper_parameters"]["directory"] == {"in_run_folder": "expert"}
    learner = prl.Learner.resume(tmp_path / "moved", target_steps=96)
    assert_equal(learner.scheme.state_dict(), state)
    assert learner.run()
    learner.close()
    assert not (tmp_path / "run").exists()


def test_a_missing_source_outside_is_found_by_a_scheme_with_its_new_directory(data: Path, tmp_path: Path) -> None:
    trained(data, tmp_path / "run", tmp_path / "expert")
    (tmp_path / "expert").rename(tmp_path / "moved")
    with pytest.raises(
        prl.CheckpointError, match=r"refers to files of its source 'expert' in .*, which does not exist"
    ):
        prl.Learner.resume(tmp_path / "run", target_steps=96)
    assert not (tmp_path / "expert").exists()
    moved = imitating(on_disk(tmp_path / "moved"))
    learner = prl.Learner.resume(tmp_path / "run", scheme=moved, target_steps=96)
    assert learner.run()
    learner.close()


def by_a_relative_path(mine: Path, stranger: Path) -> Any:
    return {"in_run_folder": "../mine"}


def by_an_absolute_path(mine: Path, stranger: Path) -> Any:
    return str(mine)


def by_a_link(mine: Path, stranger: Path) -> Any:
    shutil.rmtree(stranger / "expert")
    (stranger / "expert").symlink_to(mine)
    return {"in_run_folder": "expert"}


@pytest.mark.parametrize("naming", [by_a_relative_path, by_an_absolute_path, by_a_link])
def test_a_run_that_refers_to_a_source_outside_its_folder_is_refused(
    naming: Callable[[Path, Path], Any], data: Path, tmp_path: Path
) -> None:
    stranger, mine = tmp_path / "stranger", tmp_path / "mine"
    trained(data, stranger, stranger / "expert")
    filled(data, mine)
    directory = naming(mine, stranger)
    config = json.loads((stranger / "config.json").read_text())
    config["sources"]["expert"]["hyper_parameters"]["directory"] = directory
    (stranger / "config.json").write_text(json.dumps(config))
    state = torch.load(stranger / "checkpoint.pt", weights_only=True)
    state["config"]["sources"]["expert"]["hyper_parameters"]["directory"] = directory
    state["scheme"]["sources"]["expert"]["position"] = {"commit": 0, "checksum": 0}
    torch.save(state, stranger / "checkpoint.pt")
    before = content(mine)
    with pytest.raises(prl.CheckpointError, match=r"places the source 'expert' in .*outside the run folder"):
        prl.Learner.resume(stranger, target_steps=96)
    assert content(mine) == before


@pytest.mark.parametrize("sources", [[], {"expert": 3}, {"expert": {"name": "ReplayBuffer"}}, {"expert": None}])
def test_invalid_sources_in_a_configuration_are_refused(sources: Any, data: Path, tmp_path: Path) -> None:
    trained(data, tmp_path / "run", tmp_path / "run" / "expert")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps(config | {"sources": sources}))
    with pytest.raises(prl.CheckpointError, match=r"config\.json is damaged: its source"):
        prl.Learner.resume(tmp_path / "run")


def test_a_checkpoint_without_the_state_of_a_source_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    trained(data, tmp_path / "run", tmp_path / "run" / "expert")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    state["scheme"]["sources"] = {}
    torch.save(state, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(
        prl.CheckpointError, match=r"checkpoint\.pt does not fit its own composition: it lacks 'expert'"
    ):
        prl.Learner.resume(tmp_path / "run")
