"""A path that is no run, or a checkpoint that cannot be used, is reported as what it is, by each command."""

import sys
from pathlib import Path

import pytest
import torch

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.device import DeviceError
from pytorchrl.experiments import load_policy
from pytorchrl.experiments.runs.checkpoint import DamagedCheckpointError, load_newest
from pytorchrl.experiments.runs.starting_point import start_from
from storages.datasets import write_dataset
from tests.support.compositions import dqn_scheme
from tests.support.episodes import some


def error_of(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> str:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return str(stopped.value)


@pytest.mark.parametrize("command", ["inspect", "export", "evaluate"])
@pytest.mark.parametrize("name", ["data.npz", "minari"])
def test_a_data_set_in_place_of_a_run_is_refused_with_the_command_for_it(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / name, some())
    message = error_of(monkeypatch, command, tmp_path / name)
    assert message.startswith(f"error: {tmp_path / name} is no")
    assert message.endswith(f"; a data set is described by: python -m pytorchrl data show {tmp_path / name}")
    assert "damaged" not in message


@pytest.mark.parametrize("command", ["inspect", "export"])
def test_a_composition_in_place_of_a_run_is_not_called_damaged(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c1.yaml").write_text("algorithm: {name: DQN}\n")
    message = error_of(monkeypatch, command, tmp_path / "c1.yaml")
    assert message.endswith(f"; a composition is trained by: python -m pytorchrl train --config {tmp_path / 'c1.yaml'}")
    assert "damaged" not in message


@pytest.mark.parametrize(
    "arguments", [("inspect", "nothing"), ("export", "nothing"), ("train", "--from", "nothing")], ids=" ".join
)
def test_a_run_that_does_not_exist_is_not_said_to_be_started_again(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert error_of(monkeypatch, *arguments) == (
        "error: nothing does not exist; name a run folder, or a file that a run has saved, such as checkpoint.pt or "
        "best_weights.pt"
    )


def test_a_policy_or_a_beginning_that_does_not_exist_is_reported_alike() -> None:
    scheme = dqn_scheme()
    for read in (load_policy, lambda path: start_from(scheme, path)):
        with pytest.raises(prl.CheckpointError, match=r"^nothing does not exist; name a run folder, or a file"):
            read("nothing")
    scheme.close()


def test_a_damaged_file_of_weights_cannot_be_read_rather_than_resumed_from(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"text")
    with pytest.raises(prl.CheckpointError, match=r"weights.pt is damaged and cannot be read: .* name another checkpo"):
        load_policy(tmp_path / "weights.pt")


def test_missing_and_damaged_best_weights_are_told_apart(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 60, tmp_path)
    with pytest.raises(prl.CheckpointError, match=r"best_weights.pt does not exist; a run saves it at its first eval"):
        learner.use_best_weights()
    (tmp_path / "best_weights.pt").write_bytes(b"text")
    with pytest.raises(prl.CheckpointError, match=r"best_weights.pt is damaged and cannot be loaded: "):
        learner.use_best_weights()
    learner.close()


@pytest.mark.parametrize("value", [True, False])
def test_from_a_damaged_format_an_earlier_checkpoint_is_loaded(value: bool, tmp_path: Path) -> None:
    torch.save({"format": value}, tmp_path / "checkpoint.pt")
    torch.save({"format": 4}, tmp_path / "checkpoint-1.pt")
    path, _, damaged = load_newest([tmp_path / "checkpoint.pt", tmp_path / "checkpoint-1.pt"])
    assert path.name == "checkpoint-1.pt"
    assert [type(one) for one in damaged] == [DamagedCheckpointError]
    assert f"its format is {value}, which is no number" in str(damaged[0])


@pytest.mark.parametrize(
    ("suffix", "opened"),
    [(".ts", "torch.jit.load('policy.ts')"), (".pt2", "torch.export.load('policy.pt2').module()")],
)
def test_an_exported_policy_in_place_of_a_run_is_not_called_damaged(
    suffix: str, opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = load_policy("zoo:ppo-cartpole").export(tmp_path / f"policy{suffix}")
    with pytest.raises(prl.CheckpointError, match="it is an exported policy, opened") as refused:
        load_policy(file)
    assert opened in str(refused.value)
    assert "damaged" not in str(refused.value)
    assert "it is an exported policy" in error_of(monkeypatch, "evaluate", file)


def test_an_onnx_file_in_place_of_a_run_is_told_to_be_an_exported_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.onnx").write_bytes(b"ONNX")
    with pytest.raises(prl.CheckpointError, match=r"exported policy.*InferenceSession\('policy.onnx'\)"):
        load_policy(tmp_path / "policy.onnx")


def test_a_folder_of_several_seeds_names_one_of_them(tmp_path: Path) -> None:
    for seed in (2, 1):
        (tmp_path / "runs" / f"seed-{seed}").mkdir(parents=True)
        (tmp_path / "runs" / f"seed-{seed}" / "config.json").write_text("{}")
    with pytest.raises(prl.CheckpointError, match=r"it holds 2 runs: name one, such as .*seed-1$"):
        load_policy(tmp_path / "runs")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is available")
def test_a_device_that_is_not_there_is_named_and_not_the_file() -> None:
    with pytest.raises(DeviceError, match='device "cuda" is not available') as refused:
        load_policy("zoo:ppo-cartpole", device="cuda")
    assert "does not fit its own composition" not in str(refused.value)
