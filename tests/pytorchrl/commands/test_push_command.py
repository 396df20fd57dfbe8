"""``push`` publishes a policy with a page on the hub; ``play`` and ``evaluate`` take policies by name."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

import pytorchrl as prl
from pytorchrl.__main__ import main
from tests.support.compositions import dqn_scheme


class FakeApi:
    """Records what would be uploaded."""

    uploaded: dict[str, bytes] = {}  # noqa: RUF012 - one for all objects that a command makes
    made: list[dict[str, Any]] = []  # noqa: RUF012

    def create_repo(self, repo_id: str, **settings: Any) -> None:
        self.made.append({"repo_id": repo_id, **settings})

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> str:
        self.uploaded.clear()
        self.uploaded.update({file.name: file.read_bytes() for file in folder_path.iterdir()})
        return f"https://hub/{repo_id}: {commit_message}"


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    main()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory("CartPole-v1")), 60, tmp_path / "run")
    learner.run()
    learner.close()
    return tmp_path / "run"


def test_push_uploads_a_policy_and_a_page_that_names_its_return(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=FakeApi))  # type: ignore[arg-type]
    command(monkeypatch, "push", run, "somebody/dqn-cartpole", "--private", "--episodes", "2")
    printed = capsys.readouterr().out
    assert "https://hub/somebody/dqn-cartpole: Add a policy of DQN, after 60 steps" in printed
    assert "python -m pytorchrl play hf://somebody/dqn-cartpole" in " ".join(printed.split())
    assert FakeApi.made[-1] == {"repo_id": "somebody/dqn-cartpole", "private": True, "exist_ok": True}
    assert set(FakeApi.uploaded) == {"policy.pt", "README.md"}
    page = FakeApi.uploaded["README.md"].decode()
    assert "# DQN in CartPole-v1" in page
    metadata = yaml.safe_load(page.split("---")[1])
    assert metadata["model-index"][0]["results"][0]["dataset"]["name"] == "CartPole-v1"
    assert "Over 2 episodes" in page
    assert 'prl.load_policy("hf://somebody/dqn-cartpole")' in page
    (tmp_path / "policy.pt").write_bytes(FakeApi.uploaded["policy.pt"])
    observations = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    expected = prl.load_policy(run)(observations)
    np.testing.assert_array_equal(prl.load_policy(tmp_path / "policy.pt")(observations), expected)


def test_push_without_the_package_of_the_hub_names_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SystemExit, match=r'the extra "hub" brings it'):
        command(monkeypatch, "push", run, "somebody/dqn-cartpole")


@pytest.mark.parametrize("given", ["zoo:ppo-cartpole", "file"])
def test_evaluate_takes_a_policy_of_the_zoo_or_a_file(
    given: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if given == "file":
        given = str(next(run.glob("*weights*.pt"), run / "checkpoint.pt"))
    command(monkeypatch, "evaluate", given, "--episodes", "1")
    printed = capsys.readouterr().out
    assert printed.startswith("1 episode: mean return ")
    if given.startswith("zoo:"):
        assert "mean return 500.00" in printed
