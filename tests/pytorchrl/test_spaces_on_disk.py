"""What a run has stored has the spaces of the run: training from it needs no environment."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.envs.spaces import space_from_data
from pytorchrl.experiments.inspection.overview import CheckpointDataset
from storages.datasets import fill, open_dataset, write_dataset
from storages.datasets.dataset import ACTION_NAMES, action_names_of
from tests.support.compositions import dqn_scheme

STORAGES: dict[str, Any] = {
    "steps": lambda directory: prl.ReplayBuffer.create_factory(size=300, directory=directory),
    "episodes": lambda directory: prl.PersistentEpisodicBuffer.create_factory(size=300, directory=directory),
}


def trained(folder: Path, storage: Any, steps: int = 60) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Train a run, and return the spaces of its environments."""
    scheme = dqn_scheme(storage=storage)
    with prl.Learner(scheme, steps, folder) as learner:
        learner.run()
        assert scheme.envs is not None
        return scheme.envs.observation_space, scheme.envs.action_space


def spaces_in(dataset: Any) -> tuple[gym.Space[Any], gym.Space[Any]]:
    return space_from_data(dataset.about.observation_space), space_from_data(dataset.about.action_space)


@pytest.mark.parametrize("kind", list(STORAGES))
@pytest.mark.parametrize("place", ["outside", "run/replay"])
def test_a_storage_on_disk_is_learnt_from_without_an_environment(kind: str, place: str, tmp_path: Path) -> None:
    spaces = trained(tmp_path / "run", STORAGES[kind](tmp_path / place))
    moved = Path(shutil.move(tmp_path / place, tmp_path / "moved"))
    assert spaces_in(open_dataset(moved)) == spaces
    scheme = prl.Scheme(
        prl.DiscreteBCQ.create_factory(mini_batch_size=8),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=400), moved),
    )
    with prl.Learner(scheme, 2, tmp_path / "offline") as learner:
        assert learner.run()


def test_what_a_checkpoint_holds_has_the_spaces_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = trained(tmp_path / "run", prl.ReplayBuffer.create_factory(size=300))
    assert spaces_in(CheckpointDataset(tmp_path / "run")) == spaces
    written = tmp_path / "data.npz"
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "data", "convert", str(tmp_path / "run"), str(written)])
    main()
    assert spaces_in(open_dataset(written)) == spaces
    arguments = ["train", "--algorithm", "discrete-bcq", "--data", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *arguments])
    with pytest.raises(SystemExit, match=r"run is a run; .* data convert .*run data.npz"):
        main()


def test_spaces_of_a_run_are_taken_without_its_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = trained(tmp_path / "run", STORAGES["steps"](tmp_path / "replay"))
    (tmp_path / "replay/spaces.json").unlink()
    config = tmp_path / "run/config.json"
    config.write_text(config.read_text().replace('"OffPolicyActor"', '"ActorOfAnotherScript"'))
    converted = ["data", "convert", str(tmp_path / "replay"), str(tmp_path / "data.npz")]
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *converted, "--spaces-of", str(tmp_path / "run")])
    main()
    assert spaces_in(open_dataset(tmp_path / "data.npz")) == spaces


@pytest.mark.parametrize("kind", list(STORAGES))
def test_a_storage_alone_that_is_filled_from_data_keeps_their_spaces_and_names(kind: str, tmp_path: Path) -> None:
    spaces = trained(tmp_path / "run", prl.ReplayBuffer.create_factory(size=300))
    recorded = CheckpointDataset(tmp_path / "run")
    about = replace(recorded.about, further={ACTION_NAMES: ["left", "right"]})
    write_dataset(tmp_path / "data.npz", recorded, about=about)
    storage = STORAGES[kind](tmp_path / "store")("cpu", None, None, None)
    fill(storage, open_dataset(tmp_path / "data.npz"))
    fill(storage, open_dataset(tmp_path / "data.npz"))
    storage.close()
    stored = open_dataset(tmp_path / "store")
    assert spaces_in(stored) == spaces
    assert action_names_of(stored.about) == ["left", "right"]


@pytest.mark.parametrize("kind", list(STORAGES))
def test_damaged_spaces_are_named_and_without_them_the_data_are_read(kind: str, tmp_path: Path) -> None:
    trained(tmp_path / "run", STORAGES[kind](tmp_path / "replay"))
    file = tmp_path / "replay/spaces.json"
    file.write_text(file.read_text().replace("Discrete", "Continuous"))
    with pytest.raises(prl.DamageError, match=r"spaces.json is damaged; without it, the data are read"):
        open_dataset(tmp_path / "replay")
    file.unlink()
    dataset = open_dataset(tmp_path / "replay")
    assert dataset.about.action_space is None
    assert sum(len(episode) for episode in dataset) > 0
    file.symlink_to(tmp_path / "run/config.json")
    with pytest.raises(prl.PersistenceError, match="link"):
        open_dataset(tmp_path / "replay")
