"""Which checkpoints a run keeps, and from which one it resumes if some are damaged."""

import errno
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.scheme import Evaluation
from storages import files
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme

CLOCKS = ("seconds", "speed/steps_per_second")


def without_clocks(folder: Path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in record.items() if k not in CLOCKS} for record in prl.read_metrics(folder / "metrics.jsonl")
    ]


def run_with_checkpoints(folder: Path, keep: int) -> prl.Learner:
    """Train a run that saves checkpoints at 60, 120, 180 and 200 steps."""
    learner = prl.Learner(dqn_scheme(), 200, folder, keep_checkpoints=keep)
    assert learner.run(checkpoint_every=60)
    learner.close()
    return learner


def change_a_byte(file: Path) -> None:
    """Change a byte in the middle of the largest part of a checkpoint."""
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        largest = max(archive.infolist(), key=lambda part: part.file_size)
    content[largest.header_offset + 200 + largest.file_size // 2] ^= 1
    file.write_bytes(content)


def checkpoints(folder: Path) -> dict[str, int]:
    return {
        file.name: checkpoint.load(file)["scheme"]["collector"]["steps"]
        for file in sorted(folder.glob("checkpoint*.pt"))
    }


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for keep, kept in ((1, [200]), (2, [200, 180]), (3, [200, 180, 120])):
        folder = tmp_path / str(keep)
        run_with_checkpoints(folder, keep)
        names = ["checkpoint.pt", *(f"checkpoint-{age}.pt" for age in range(1, keep))]
        assert checkpoints(folder) == dict(zip(names, kept, strict=True))
        # A resumed run keeps the same number.
        prl.Learner.resume(folder, target_steps=220).run()
        assert list(checkpoints(folder).values())[-1] == 220
        assert len(checkpoints(folder)) == keep


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("damage", [change_a_byte, lambda file: file.write_bytes(b""), lambda file: file.unlink()])
def test_a_run_resumes_from_the_newest_checkpoint_that_is_not_damaged(
    damage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    state = run_with_checkpoints(folder, 3).scheme.state_dict()
    records = without_clocks(folder)
    damage(folder / "checkpoint.pt")
    damage(folder / "checkpoint-1.pt")
    damaged = (folder / "checkpoint.pt").exists()
    learner = prl.Learner.resume(folder)
    assert learner.scheme.steps == 120
    printed = capsys.readouterr().out
    assert (f"{folder / 'checkpoint-1.pt'} is damaged: it" in printed) == damaged
    assert f"Resumed from {folder / 'checkpoint-2.pt'}, saved at 120 steps." in printed
    assert learner.run()
    assert_equal(learner.scheme.state_dict(), state)
    assert without_clocks(folder) == records
    assert checkpoints(folder) == {"checkpoint.pt": 200, "checkpoint-1.pt": 180, "checkpoint-2.pt": 120}
    assert (folder / "checkpoint.damaged").exists() == damaged


def test_if_all_checkpoints_are_damaged_the_newest_is_reported_by_name(tmp_path: Path) -> None:
    run_with_checkpoints(tmp_path / "run", 2)
    for file in (tmp_path / "run").glob("checkpoint*.pt"):
        file.write_bytes(b"")
    with pytest.raises(prl.CheckpointError, match=r"run/checkpoint.pt is damaged .* it is empty"):
        prl.Learner.resume(tmp_path / "run")


def test_the_weights_of_the_best_evaluation_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run")
    returns = iter([5.0, 9.0, 7.0])
    monkeypatch.setattr(learner.scheme, "evaluate", lambda *_: Evaluation((next(returns),), (1,)))
    with pytest.raises(prl.CheckpointError, match=r"best_weights.pt does not exist"):
        learner.use_best_weights()
    weights = []
    for steps in (100, 200, 300):
        while learner.scheme.steps < steps:
            learner.step()
        weights.append(learner.scheme.algorithm.get_weights())
    learner.save_checkpoint()
    resumed = prl.Learner.resume(tmp_path / "run")
    resumed.use_best_weights()
    assert_equal(resumed.scheme.algorithm.get_weights(), weights[1])


def test_a_policy_that_is_saved_with_the_best_weights_has_their_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prl.Learner(dqn_scheme(), 300, tmp_path / "run") as learner:
        returns = iter([5.0, 9.0, 7.0])
        monkeypatch.setattr(learner.scheme, "evaluate", lambda *_: Evaluation((next(returns),), (1,)))
        learner.run(progress=False)
        learner.save_policy(tmp_path / "last.pt")
        learner.use_best_weights()
        learner.save_policy(tmp_path / "best.pt")
    assert [prl.load_policy(tmp_path / f"{name}.pt").origin["steps"] for name in ("last", "best")] == [300, 200]


def test_a_single_changed_byte_of_a_checkpoint_is_detected(tmp_path: Path) -> None:
    change_a_byte(run_with_checkpoints(tmp_path / "run", 1).log_dir / "checkpoint.pt")
    with pytest.raises(
        prl.CheckpointError, match=r"cannot be resumed from: its part archive/.* does not match its checksum"
    ):
        prl.Learner.resume(tmp_path / "run")


def test_a_resumed_run_saves_as_often_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run", keep_checkpoints=3)
    monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= 30)
    learner.run(checkpoint_every=60)
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run")
    resumed.run()
    resumed.close()
    assert sorted(checkpoints(tmp_path / "run").values()) == [120, 180, 200]
    assert sorted(checkpoints(tmp_path / "run")) == ["checkpoint-1.pt", "checkpoint-2.pt", "checkpoint.pt"]
    with pytest.raises(ValueError, match="checkpoint_every must be an int from 1, got 0"):
        resumed.run(checkpoint_every=0)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("storage", [prl.ReplayBuffer, prl.PersistentEpisodicBuffer])
def test_a_run_resumes_from_its_oldest_checkpoint_beside_a_newer_storage(storage: Any, tmp_path: Path) -> None:
    factory = storage.create_factory(40, directory=tmp_path / "run" / "replay", commit_every=1)
    learner = prl.Learner(dqn_scheme(storage=factory), 400, tmp_path / "run", keep_checkpoints=4)
    learner.run(checkpoint_every=40)
    learner.close()
    kept = checkpoints(tmp_path / "run")
    assert list(kept.values()) == [360, 320, 280, 400]
    for name in ("checkpoint.pt", "checkpoint-1.pt", "checkpoint-2.pt"):
        (tmp_path / "run" / name).unlink()
    resumed = prl.Learner.resume(tmp_path / "run")
    assert resumed.scheme.steps == 280
    resumed.run()
    resumed.close()
    assert checkpoints(tmp_path / "run")["checkpoint.pt"] == 400


def test_the_best_weights_contain_the_statistics_that_normalise_observations(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True)
        algorithm = prl.DQN.create_factory(start_steps=40, mini_batch_size=16, test_every=100, num_test_episodes=1)
        return prl.Scheme(
            algorithm, actor, prl.ReplayBuffer.create_factory(size=150), prl.VecEnv.create_factory("CartPole-v1")
        )

    learner = prl.Learner(scheme(), 150, tmp_path / "run")
    while learner.scheme.steps < 100:
        learner.step()
    weights = checkpoint.load(tmp_path / "run" / "best_weights.pt")["weights"]
    best = learner.scheme.algorithm.get_weights()
    assert_equal(weights, best)
    means = [tensor for name, tensor in weights.items() if name.endswith("mean")]
    assert means
    assert all(mean.any() for mean in means)
    while not learner.done():
        learner.step()
    learner.use_best_weights()
    # Another scheme, which has not collected any steps, normalises observations as that actor did.
    other = scheme()
    other.algorithm.set_weights(weights)
    observation = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    values = [one.algorithm.q(one.actor.view(observation)).values for one in (learner.scheme, other)]
    assert torch.equal(*values)
    learner.close()
    other.close()


class FullDisk(io.BytesIO):
    """A file of which ``left`` bytes can be written."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left

    def write(self, data: Any) -> int:
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("left", [0, 300, 3_000])
def test_a_full_disk_is_named_with_the_file_and_leaves_the_checkpoint_before(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, {"weights": torch.zeros(1_000)})
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files, "create", lambda _: FullDisk(left))
        with pytest.raises(OSError, match=r"No space left on device; the checkpoint was not written.*checkpoint\.pt"):
            checkpoint.save(path, {"weights": torch.ones(1_000)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_full_disk_at_the_first_checkpoint_claims_no_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "create", lambda _: FullDisk(300))
    with pytest.raises(OSError, match=r"No space left on device; the checkpoint was not written: '.*checkpoint\.pt'$"):
        checkpoint.save(tmp_path / "checkpoint.pt", {"weights": torch.ones(1_000)})
