"""``python -m pytorchrl inspect`` tells what is in a checkpoint's storage."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compositions import dqn_scheme, ppo_scheme, sac_scheme
from toys import Counter

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.inspection import Inspection, inspect_storage

COUNTER = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5})
PER = prl.PERBuffer.create_factory(size=20, alpha=0.5, epsilon=0.25, default_error=2.0)


def saved(folder: Path, scheme: prl.Scheme, steps: int = 200) -> Path:
    learner = prl.Learner(scheme, steps, folder)
    learner.run()
    learner.close()
    return folder


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "inspect", *map(str, arguments)])
    main()


def test_episodes_are_whole_where_their_first_step_is_stored_and_an_end(tmp_path: Path) -> None:
    # 100 steps of episodes of 5 were inserted, the newest 18 are kept: 3 steps of one episode and 3 whole ones each.
    folder = saved(tmp_path / "run", dqn_scheme(envs=COUNTER, size=18))
    inspection = inspect_storage(folder)
    episodes = inspection.episodes
    assert episodes is not None
    assert (inspection.steps, inspection.num_envs, inspection.inserted_steps) == (18, 2, 100)
    assert inspection.transitions == 36
    assert episodes.lengths.tolist() == [3, 5, 5, 5] * 2
    assert episodes.whole.tolist() == [False, True, True, True] * 2
    # Step k of an episode pays k.
    assert episodes.returns[episodes.whole].tolist() == [15.0] * 6
    assert episodes.ended("terminated") == 8
    assert episodes.ended("running") == 0


@pytest.mark.parametrize("end", ["truncated", "terminated"])
def test_how_episodes_ended_and_which_are_running_is_told(end: str, tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 30, "end": end})
    episodes = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=envs))).episodes
    assert episodes is not None
    assert episodes.ended(end) == 6
    assert episodes.ended("running") == 2
    assert np.count_nonzero(episodes.whole) == 6


def test_fields_sizes_and_priorities_are_told(tmp_path: Path) -> None:
    inspection = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=COUNTER, storage=PER)))
    fields = {field.name: field for field in inspection.fields}
    assert fields["Observation"].bytes_each == 8
    assert fields["NextObservation"].bytes_each == 0
    assert (fields["Action"].dtype, fields["Action"].shape) == ("int64", (1,))
    assert inspection.errors is not None
    assert inspection.priorities is not None
    np.testing.assert_allclose(inspection.priorities, (np.abs(inspection.errors) + 0.25) ** 0.5)
    assert inspection.nbytes > 40 * 22


@pytest.mark.parametrize(
    "make",
    [
        lambda: dqn_scheme(),
        lambda: sac_scheme(storage=prl.NStepReplayBuffer.create_factory(size=90, n_step=3)),
        lambda: dqn_scheme(storage=PER),
        lambda: sac_scheme(storage=prl.EREBuffer.create_factory(size=90, alpha=0.6, epsilon=0.1, eta=0.99, cmin=20)),
        lambda: ppo_scheme(),
    ],
    ids=["replay", "n steps", "priorities", "recency", "on policy"],
)
def test_every_storage_can_be_inspected_and_nothing_but_the_picture_is_written(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not a whole number of rollouts: else there is nothing in an on-policy storage.
    folder = saved(tmp_path / "run", make(), steps=206)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    capsys.readouterr()
    command(monkeypatch, folder)
    printed = capsys.readouterr().out
    assert "Observation" in printed
    assert str(folder / "storage.png") in printed.replace("\n", "")
    assert (folder / "storage.png").read_bytes().startswith(b"\x89PNG")
    assert {path: path.read_bytes() for path in before} == before
    assert {path for path in folder.iterdir() if path.is_file()} - before.keys() == {folder / "storage.png"}


def test_stacked_frames_are_told_with_the_bytes_of_one(tmp_path: Path) -> None:
    stack = ("FrameStackObservation", {"stack_size": 4})
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5}, wrappers=[stack])
    inspection = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=envs)))
    (field,) = (field for field in inspection.fields if field.name == "Observation")
    assert (field.shape, field.bytes_each) == ((4, 2), 8)


def test_a_checkpoint_can_be_named_itself_and_the_picture_put_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "run", dqn_scheme())
    command(monkeypatch, folder / "checkpoint.pt", "-o", tmp_path / "elsewhere.png")
    assert (tmp_path / "elsewhere.png").is_file()
    with pytest.raises(SystemExit, match=r"its name must end in \.png, got"):
        command(monkeypatch, folder, "-o", tmp_path / "elsewhere.pdf")


def test_what_holds_no_storage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="nowhere does not exist"):
        command(monkeypatch, tmp_path / "nowhere")
    folder = saved(tmp_path / "run", dqn_scheme())
    file = folder / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(SystemExit, match="is damaged"):
        command(monkeypatch, folder)
    with pytest.raises(CheckpointError):
        inspect_storage(folder / "config.json")


def test_an_empty_storage_is_said_to_be_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    learner.save_checkpoint()
    learner.close()
    capsys.readouterr()
    command(monkeypatch, tmp_path / "run")
    assert "It is empty." in capsys.readouterr().out
    inspection = inspect_storage(tmp_path / "run")
    assert isinstance(inspection, Inspection)
    assert inspection.episodes is None
