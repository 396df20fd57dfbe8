"""Policies of the Hugging Face hub: loaded from its cache, without running code or following links out of it."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.policies.published_policies import POLICY_FILE, policy_state, repository_named
from pytorchrl.experiments.runs import checkpoint
from tests.support.compositions import dqn_scheme

REPOSITORY, COMMIT = "somebody/dqn-cartpole", "0" * 40
OBSERVATIONS = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run in CartPole whose storage is on disk."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory("CartPole-v1")), 60, folder)
    learner.run()
    learner.close()
    return folder


def cache_with(policy: Path, cache: Path, *, by_link: bool = True) -> Path:
    """Make a cache in the hub's layout, which holds one repository with one file."""
    folder = cache / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    for one in (folder / "refs", folder / "blobs", snapshot):
        one.mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    blob = folder / "blobs" / "abc"
    blob.write_bytes(policy.read_bytes())
    (snapshot / POLICY_FILE).symlink_to(Path("../../blobs/abc") if by_link else policy)
    return snapshot / POLICY_FILE


class OfflineHub:
    """The package's function that downloads a file, with a cache that is complete."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.asked: list[tuple[str, str]] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "OfflineHub":
        monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=self.download))  # type: ignore[arg-type]
        return self

    def download(self, repository: str, file: str) -> str:
        self.asked.append((repository, file))
        return str(self.file)


@pytest.fixture
def policy_file(run: Path, tmp_path: Path) -> Path:
    file = tmp_path / "saved" / POLICY_FILE
    file.parent.mkdir()
    checkpoint.save(file, policy_state(run))
    return file


def test_a_policy_is_loaded_from_the_cache_of_the_hub(
    run: Path, policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = OfflineHub(cache_with(policy_file, tmp_path / "cache")).install(monkeypatch)
    for name in (f"hf://{REPOSITORY}", Path(f"hf://{REPOSITORY}")):
        loaded = prl.load_policy(name)
        np.testing.assert_array_equal(loaded(OBSERVATIONS), prl.load_policy(run)(OBSERVATIONS))
    assert hub.asked == [(REPOSITORY, POLICY_FILE)] * 2


def test_a_folder_in_which_a_policy_was_published_is_loaded_by_its_name(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "published" / "cart"
    folder.mkdir(parents=True)
    checkpoint.save(folder / POLICY_FILE, policy_state(run))
    expected = prl.load_policy(run)(OBSERVATIONS)
    assert np.array_equal(prl.load_policy(folder)(OBSERVATIONS), expected)
    (folder / POLICY_FILE).rename(tmp_path / "elsewhere.pt")
    (folder / POLICY_FILE).symlink_to(tmp_path / "elsewhere.pt")
    with pytest.raises(prl.CheckpointError, match=r"policy\.pt is a link to .*elsewhere\.pt, outside of its"):
        prl.load_policy(folder)


def test_the_package_of_the_hub_finds_a_policy_in_its_cache_without_a_connection(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pytest.importorskip("huggingface_hub")
    cache_with(policy_file, tmp_path / "cache")
    offline = partial(package.hf_hub_download, cache_dir=tmp_path / "cache", local_files_only=True)
    monkeypatch.setattr(package, "hf_hub_download", offline)
    assert type(prl.load_policy(f"hf://{REPOSITORY}").algorithm) is prl.DQN


def test_a_link_out_of_the_folder_of_a_repository_is_refused(
    policy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OfflineHub(cache_with(policy_file, tmp_path / "cache", by_link=False)).install(monkeypatch)
    with pytest.raises(prl.CheckpointError, match="outside of its repository's folder"):
        prl.load_policy(f"hf://{REPOSITORY}")


class Runs:
    """An object whose unpickling would run code."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code of a file was run",)


def test_a_file_of_the_hub_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "harmful.pt"
    torch.save({"format": checkpoint.FORMAT, "config": Runs()}, file)
    OfflineHub(cache_with(file, tmp_path / "cache")).install(monkeypatch)
    with pytest.raises(prl.CheckpointError, match="objects other than tensors and plain data"):
        prl.load_policy(f"hf://{REPOSITORY}")
    assert capsys.readouterr().out == ""


def test_without_its_package_the_hub_is_refused_with_the_name_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r'the extra "hub" brings it: pip install "pytorchrl-toolkit\[hub\]"'):
        prl.load_policy(f"hf://{REPOSITORY}")


@pytest.mark.parametrize("name", ["hf://", "hf://user", "hf://user/name/file", "hf://../name", "hf:user/name", "a b/c"])
def test_names_that_are_no_repository_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is named as hf://user/name"):
        repository_named(name)


def test_a_policy_without_its_run_has_no_paths_and_no_state_of_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = prl.ReplayBuffer.create_factory(size=100, directory=tmp_path / "replay")
    envs = prl.VecEnv.create_factory("CartPole-v1")
    learner = prl.Learner(dqn_scheme(storage=storage, envs=envs), 60, tmp_path / "run")
    learner.run()
    learner.close()
    state = policy_state(tmp_path / "run")
    assert set(state) == {"config", "steps", "weights"}
    assert str(tmp_path) not in repr(state["config"])
    assert state["steps"] == 60
    checkpoint.save(tmp_path / POLICY_FILE, state)
    before = prl.load_policy(tmp_path / "run")(OBSERVATIONS)
    np.testing.assert_array_equal(prl.load_policy(tmp_path / POLICY_FILE)(OBSERVATIONS), before)
    assert policy_state(tmp_path / POLICY_FILE)["config"] == state["config"]
