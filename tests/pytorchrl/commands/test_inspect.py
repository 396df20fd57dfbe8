"""``python -m pytorchrl inspect`` describes the contents of a checkpoint's storage."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.experiments.inspection.overview import Inspection, inspect_storage
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from tests.support.compositions import dqn_scheme, ppo_scheme, sac_scheme
from tests.support.toys import Counter

COUNTER = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5})
PER = prl.PERBuffer.create_factory(size=20, alpha=0.5, epsilon=0.25, default_error=2.0)


def saved(folder: Path, scheme: prl.Scheme, steps: int = 200) -> Path:
    learner = prl.Learner(scheme, steps, folder)
    learner.run()
    learner.close()
    return folder


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the test's folder, where pictures are written."""
    monkeypatch.chdir(tmp_path)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "inspect", *map(str, arguments)])
    main()


def test_an_episode_is_whole_if_its_first_step_and_its_end_are_stored(tmp_path: Path) -> None:
    # Of 100 steps in episodes of 5, the newest 18 are kept: 3 steps of one episode and 3 whole episodes, in each copy.
    folder = saved(tmp_path / "run", dqn_scheme(envs=COUNTER, size=18))
    inspection = inspect_storage(folder)
    episodes = inspection.episodes
    assert episodes is not None
    assert (inspection.steps, inspection.num_envs, inspection.inserted_steps) == (18, 2, 100)
    assert inspection.transitions == 36
    assert episodes.lengths.tolist() == [3, 5, 5, 5] * 2
    assert episodes.whole.tolist() == [False, True, True, True] * 2
    # Step k of an episode has the reward k.
    assert episodes.returns[episodes.whole].tolist() == [15.0] * 6
    assert episodes.ended("terminated") == 8
    assert episodes.ended("running") == 0


@pytest.mark.parametrize("end", ["truncated", "terminated"])
def test_ended_and_running_episodes_are_counted(end: str, tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 30, "end": end})
    episodes = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=envs))).episodes
    assert episodes is not None
    assert episodes.ended(end) == 6
    assert episodes.ended("running") == 2
    assert np.count_nonzero(episodes.whole) == 6


def test_types_shapes_and_sizes_of_fields_are_inspected(tmp_path: Path) -> None:
    inspection = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=COUNTER)))
    fields = {field.name: (field.dtype, field.shape, field.bytes_each) for field in inspection.fields}
    assert fields == {
        "Observation": ("float32", (2,), 8),
        "Done": ("bool", (1,), 1),
        "Action": ("int64", (1,), 8),
        "Reward": ("float32", (1,), 4),
        "NextDone": ("bool", (1,), 1),
        "NextTruncated": ("bool", (1,), 1),
        "NextObservation": ("float32", (2,), 0),  # It is the observation of the next step.
    }


def test_inspected_priorities_are_those_used_for_sampling(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(envs=COUNTER, storage=PER), 200, tmp_path / "run")
    learner.run()
    learner.close()
    inspection = inspect_storage(tmp_path / "run")
    priorities, storage = inspection.priorities, learner.scheme.storage
    assert priorities is not None
    assert priorities.ages.tolist() == [age for age in range(19, -1, -1) for _ in range(2)]
    errors = storage.state_dict()["priorities"]["errors"].numpy()
    np.testing.assert_allclose(priorities.values, np.sqrt(np.abs(errors) + 0.25), rtol=1e-6)
    assert len(np.unique(priorities.values)) > 2
    assert inspection.nbytes + priorities.nbytes == storage.nbytes


def test_with_a_fixed_overlap_only_first_steps_of_sequences_have_priorities(tmp_path: Path) -> None:
    sequences = prl.Sequences(length=4, overlap=1)
    storage = prl.PERBuffer.create_factory(size=20, alpha=0.5, epsilon=0.25, default_error=2.0, sequences=sequences)
    priorities = inspect_storage(saved(tmp_path / "run", recurrent_dqn_scheme(storage))).priorities
    assert priorities is not None
    # In steps 80 to 99, sequences begin at the multiples of 3.
    assert priorities.ages.tolist() == [99 - step for step in range(81, 100, 3) for _ in range(2)]
    assert (priorities.values > 0).all()


def recurrent_dqn_scheme(storage: Any, length: int = 5) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.DQN.create_factory(start_steps=40, mini_batch_size=8, update_every=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        storage_factory=storage,
        train_envs_factory=prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": length}),
        seed=0,
    )


@pytest.mark.long
def test_if_whole_episodes_are_sampled_only_their_first_steps_have_priorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = prl.PERBuffer.create_factory(size=18, alpha=0.5, epsilon=0.25, sequences=prl.Episodes())
    scheme = recurrent_dqn_scheme(storage)
    inspection = inspect_storage(saved(tmp_path / "run", scheme))
    priorities = inspection.priorities
    assert priorities is not None
    # In steps 82 to 99, whole episodes of 5 begin at 85, 90 and 95.
    assert priorities.ages.tolist() == [14, 14, 9, 9, 4, 4]
    loaded = recurrent_dqn_scheme(storage).storage
    loaded.load_state_dict(scheme.storage.state_dict())
    assert inspection.nbytes + inspection.index_nbytes + priorities.nbytes == loaded.nbytes
    capsys.readouterr()
    command(monkeypatch, tmp_path / "run")
    assert "of 6 episodes" in capsys.readouterr().out


def test_there_are_no_priorities_before_the_first_whole_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = prl.PERBuffer.create_factory(size=90, alpha=0.5, epsilon=0.25, sequences=prl.Episodes())
    folder = saved(tmp_path / "run", recurrent_dqn_scheme(storage, length=1000), steps=100)
    capsys.readouterr()
    command(monkeypatch, folder)
    assert "Priorities: none, because no episode is whole yet" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "storage.png").is_file()


def test_priorities_use_the_scheduled_alpha_at_the_step_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alpha = prl.LinearSchedule(0.25, 1.0, fraction=0.5)
    storage = prl.PERBuffer.create_factory(size=20, alpha=alpha, epsilon=0.25)
    learner = prl.Learner(dqn_scheme(envs=COUNTER, storage=storage), 400, tmp_path / "run")
    while learner.scheme.steps < 100:
        learner.step()
    learner.save_checkpoint()
    learner.close()
    assert learner.scheme.steps == 100
    priorities = inspect_storage(tmp_path / "run").priorities
    assert priorities is not None
    errors = learner.scheme.storage.state_dict()["priorities"]["errors"].numpy()
    np.testing.assert_allclose(priorities.values, (np.abs(errors) + 0.25) ** (0.25 + 0.75 * 100 / 200), rtol=1e-6)
    capsys.readouterr()
    alone = tmp_path / "checkpoint.pt"
    alone.write_bytes((tmp_path / "run" / "checkpoint.pt").read_bytes())
    command(monkeypatch, alone)
    assert "Priorities: unknown" in capsys.readouterr().out


def test_inserted_steps_are_counted_across_rollouts(tmp_path: Path) -> None:
    inspection = inspect_storage(saved(tmp_path / "run", ppo_scheme(), steps=206))
    # Rollouts of 16 steps of 2 environments: 6 were learnt from, 7 steps of the next are stored.
    assert (inspection.inserted_steps, inspection.steps) == (103, 7)


def test_non_finite_returns_are_counted_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = saved(tmp_path / "run", dqn_scheme(envs=COUNTER))
    state = checkpoint.load(folder / "checkpoint.pt")
    (rewards,) = (leaf for leaf in state["scheme"]["storage"]["ring"]["leaves"] if leaf["path"] == ["Reward"])
    rewards["rows"][2, 0] = np.nan
    checkpoint.save(folder / "checkpoint.pt", state)
    capsys.readouterr()
    command(monkeypatch, folder)
    printed = " ".join(capsys.readouterr().out.split())
    assert "40 of them whole" in printed
    assert "1 of the whole ones have a return that is not finite" in printed
    assert (tmp_path / "storage.png").is_file()


STORAGES: dict[str, Any] = {
    "replay": lambda: dqn_scheme(),
    "n steps": lambda: sac_scheme(storage=prl.NStepReplayBuffer.create_factory(size=90, n_step=3)),
    "priorities": lambda: dqn_scheme(storage=PER),
    "recency": lambda: sac_scheme(
        storage=prl.EREBuffer.create_factory(size=90, alpha=0.6, epsilon=0.1, eta=0.99, cmin=20)
    ),
    "hindsight": lambda: dqn_scheme(
        envs=prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0", num_envs=2),
        storage=prl.HERBuffer.create_factory(size=90, alpha=0.6, epsilon=0.1),
    ),
    "episodes": lambda: recurrent_dqn_scheme(prl.ReplayBuffer.create_factory(size=90, sequences=prl.Episodes())),
    "gae": lambda: ppo_scheme(),
    "vanilla": lambda: ppo_scheme(storage=prl.VanillaOnPolicyBuffer.create_factory(size=16)),
    "v-trace": lambda: ppo_scheme(storage=prl.VTraceBuffer.create_factory(size=16)),
}


@pytest.mark.quick_share(0.15)
@pytest.mark.long
@pytest.mark.parametrize("make", STORAGES.values(), ids=STORAGES)
def test_every_storage_is_inspected_with_its_bytes_and_without_modifying_the_run(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Not a multiple of the length of a rollout, after which an on-policy storage is empty.
    folder = saved(tmp_path / "run", make(), steps=206)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    capsys.readouterr()
    command(monkeypatch, folder)
    printed = capsys.readouterr().out
    assert "Observation" in printed
    assert "storage.png" in printed
    assert (tmp_path / "storage.png").read_bytes().startswith(b"\x89PNG")
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    resumed = prl.Learner.resume(folder, scheme=make())
    resumed.close()
    inspection = inspect_storage(folder)
    of_priorities = inspection.priorities.nbytes if inspection.priorities is not None else 0
    assert inspection.nbytes + inspection.index_nbytes + of_priorities == resumed.scheme.storage.nbytes


def test_a_storage_on_disk_is_inspected_like_one_in_memory(tmp_path: Path) -> None:
    def inspected(name: str, **on_disk: Any) -> Inspection:
        storage = prl.PERBuffer.create_factory(size=20, alpha=0.5, epsilon=0.25, **on_disk)
        return inspect_storage(saved(tmp_path / name, dqn_scheme(envs=COUNTER, storage=storage)))

    memory, disk = inspected("memory"), inspected("disk", directory=tmp_path / "experience")
    assert disk.fields == memory.fields
    assert disk.episodes is not None
    assert memory.episodes is not None
    assert disk.episodes.returns.tolist() == memory.episodes.returns.tolist()
    assert disk.priorities is not None
    assert memory.priorities is not None
    assert disk.priorities.values.tolist() == memory.priorities.values.tolist()
    (tmp_path / "experience" / "storage.json").unlink()
    with pytest.raises(CheckpointError, match=r"refers to files of its storage, which cannot be read: .*experience"):
        inspect_storage(tmp_path / "disk")


def test_stacked_frames_are_listed_with_the_bytes_of_one_frame(tmp_path: Path) -> None:
    stack = ("FrameStackObservation", {"stack_size": 4})
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5}, wrappers=[stack])
    inspection = inspect_storage(saved(tmp_path / "run", dqn_scheme(envs=envs)))
    (field,) = (field for field in inspection.fields if field.name == "Observation")
    assert (field.shape, field.bytes_each) == ((4, 2), 8)


@pytest.mark.long
def test_inspect_accepts_a_checkpoint_file_and_an_output_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path / "run", dqn_scheme())
    command(monkeypatch, folder / "checkpoint.pt", "-o", tmp_path / "elsewhere.png")
    assert (tmp_path / "elsewhere.png").is_file()
    with pytest.raises(SystemExit, match=r"its name must end in \.png, got"):
        command(monkeypatch, folder, "-o", tmp_path / "elsewhere.pdf")


@pytest.mark.parametrize("chosen", [(), ("--row", "0")])
def test_a_picture_of_another_format_is_refused_before_anything_is_described(
    chosen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"its name must end in \.png, got 'a\.jpg'"):
        command(monkeypatch, "a-run", *chosen, "-o", "a.jpg")
    assert capsys.readouterr().out == ""


def test_paths_without_a_readable_storage_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="nowhere does not exist"):
        command(monkeypatch, tmp_path / "nowhere")
    folder = saved(tmp_path / "run", dqn_scheme())
    file = folder / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(SystemExit, match="is damaged"):
        command(monkeypatch, folder)
    with pytest.raises(CheckpointError):
        inspect_storage(folder / "config.json")
    checkpoint.save(tmp_path / "other.pt", {"scheme": {}})
    with pytest.raises(CheckpointError, match=r"other\.pt holds no storage that can be read .* name a run folder"):
        inspect_storage(tmp_path / "other.pt")


def test_a_storage_of_a_class_that_is_not_imported_can_be_inspected(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", dqn_scheme(envs=COUNTER))
    state = checkpoint.load(folder / "checkpoint.pt")
    state["config"]["storage"]["name"] = "OfSomeScript"
    checkpoint.save(folder / "checkpoint.pt", state)
    inspection = inspect_storage(folder)
    assert (inspection.name, inspection.transitions) == ("OfSomeScript", 200)


def test_an_empty_storage_is_reported_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    learner.save_checkpoint()
    learner.close()
    capsys.readouterr()
    command(monkeypatch, tmp_path / "run")
    assert "The storage is empty." in capsys.readouterr().out
    inspection = inspect_storage(tmp_path / "run")
    assert isinstance(inspection, Inspection)
    assert inspection.episodes is None


def test_an_episodic_storage_on_disk_is_described_as_a_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = prl.PersistentEpisodicBuffer.create_factory(1_000, tmp_path / "run" / "replay")
    scheme = dqn_scheme(envs=COUNTER, storage=storage)
    learner = prl.Learner(scheme, target_steps=200, log_dir=tmp_path / "run")
    learner.run()
    learner.close()
    for arguments in (("inspect", tmp_path / "run"), ("data", "show", tmp_path / "run")):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
        main()
        assert "episodes of" in capsys.readouterr().out
