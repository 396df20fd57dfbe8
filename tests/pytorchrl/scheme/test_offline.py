"""Schemes without environments learn from data; all counts of steps are then counts of updates."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.experiments.inspection.overview import inspect_storage
from pytorchrl.logging.curves import read_run
from pytorchrl.logging.groups import grouped
from storages import DatasetError
from storages.datasets import SelectedDataset, episodes_of, fill, open_dataset, return_of
from storages.transition import ACT, INDICES, OBS, REW, RTG
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme
from tests.support.data_sets import balance, cloning, recorded
from tests.support.folders import content
from tests.support.training import stopped

ONE = prl.VecEnv.create_factory("CartPole-v1")
CARTPOLE = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return recorded(tmp_path / "data.npz")


@pytest.mark.usefixtures("drawn_curves")
def test_steps_are_updates_for_records_evaluations_schedules_and_checkpoints(data: Path, tmp_path: Path) -> None:
    algorithm = {"test_every": 10, "lr": prl.LinearSchedule(1e-2, 0.0)}
    scheme = cloning(data, test_envs_factory=CARTPOLE, algorithm=algorithm)
    learner = prl.Learner(scheme, 20, tmp_path / "run", log_every=5)
    assert learner.run(checkpoint_every=4)
    learner.close()
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["steps"] for r in records if "losses/loss" in r] == [5, 10, 15, 20]
    assert [r["steps"] for r in records if "test/return" in r] == [10, 20]
    assert scheme.algorithm.updates == 20
    assert scheme.algorithm.training.groups["policy"].stepper.learning_rate == 0.0
    assert learner.curve_file.is_file()


def test_a_run_folder_alone_opens_no_data_set(data: Path, tmp_path: Path) -> None:
    prl.Learner(cloning(data), 5, tmp_path / "run").run()
    with pytest.raises(
        prl.CompositionError, match=r"from the data set .*data\.npz, and 0 were given; .* by --data .*npz"
    ):
        prl.Learner.resume(tmp_path / "run")


def test_data_sets_that_the_run_does_not_learn_from_are_refused(data: Path, tmp_path: Path) -> None:
    prl.Learner(cloning(data), 5, tmp_path / "run").run()
    with pytest.raises(prl.CompositionError, match="and 2 were given; name it"):
        prl.Learner.resume(tmp_path / "run", data=[data, data])
    with pytest.raises(ValueError, match=r"the scheme has its own data sets, got data=\['other.npz'\]"):
        prl.Learner.resume(tmp_path / "run", scheme=cloning(data), data=["other.npz"])
    other = recorded(tmp_path / "other.npz", seed=1)
    with pytest.raises(prl.CheckpointError, match="is not what the run learnt from"):
        prl.Learner.resume(tmp_path / "run", data=[other])
    with pytest.raises(DatasetError, match=r"^gone\.npz does not exist"):
        prl.Learner.resume(tmp_path / "run", data=["gone.npz"])
    prl.Learner(dqn_scheme(), 5, tmp_path / "collecting").run()
    with pytest.raises(prl.CompositionError, match=r"learns from no data set, got .*other\.npz; leave it out"):
        prl.Learner.resume(tmp_path / "collecting", data=[other])


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_continues_from_its_folder_and_its_data_set_which_may_have_moved(
    on_disk: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheme(run: str, path: Path) -> prl.Scheme:
        kind, place = (
            (prl.PersistentEpisodicBuffer, {"directory": str(tmp_path / run / "replay")})
            if on_disk
            else (prl.PERBuffer, {})
        )
        storage = kind.create_factory(size=100, **place)
        select = prl.SelectEpisodes(best_share=0.7)
        filled = prl.from_dataset(storage, path, select=select, returns_to_go=0.9)
        return cloning(path, filled, test_envs_factory=CARTPOLE)

    whole = prl.Learner(scheme("whole", data), 20, tmp_path / "whole")
    assert whole.run()
    first = Path(shutil.copy(data, tmp_path / "first.npz"))
    learner = prl.Learner(scheme("parts", first), 20, tmp_path / "parts")
    folder = stopped(learner, 7, monkeypatch)
    moved = first.rename(tmp_path / "moved.npz")
    learner = prl.Learner.resume(folder, data=[moved])
    assert learner.scheme.steps == 7
    assert learner.resume_command.endswith(f" {folder} --data {moved}")
    assert learner.run()
    assert_equal(learner.scheme.algorithm.state_dict(), whole.scheme.algorithm.state_dict())
    for one in (whole, learner):
        one.close()


STORAGES: dict[str, Callable[[], Any]] = {
    "uniform": lambda: prl.ReplayBuffer.create_factory(size=100),
    "priorities": lambda: prl.PERBuffer.create_factory(size=100, alpha=0.7, beta=0.4),
    "recency": lambda: prl.EREBuffer.create_factory(size=100, cmin=20, eta=0.9),
    "prefetched batches": lambda: prl.NStepReplayBuffer.create_factory(size=100, n_step=3, prefetch=2),
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", STORAGES)
def test_a_resumed_run_equals_the_uninterrupted_run(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheme() -> prl.Scheme:
        algorithm = {"num_mini_batch": 2, "test_every": 8}
        return cloning(data, STORAGES[name](), test_envs_factory=CARTPOLE, algorithm=algorithm)

    whole = prl.Learner(scheme(), 20, tmp_path / "whole")
    assert whole.run()
    learner = prl.Learner(scheme(), 20, tmp_path / "parts")
    for stop in (3, 11):
        learner = prl.Learner.resume(stopped(learner, stop, monkeypatch), scheme=scheme())
        assert learner.scheme.steps == stop
    assert learner.run()
    assert_equal(learner.scheme.state_dict(), whole.scheme.state_dict())


def test_observations_are_normalised_with_the_statistics_of_the_data(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheme() -> prl.Scheme:
        return cloning(data, actor={"normalize_observations": True})

    whole = prl.Learner(scheme(), 6, tmp_path / "whole")
    assert whole.run()
    seen = np.concatenate([np.asarray(episode.observations)[:-1] for episode in open_dataset(data)])
    normalization = whole.scheme.actor.normalization
    assert normalization is not None
    normalised = normalization(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(normalised, (seen - seen.mean(0)) / seen.std(0), rtol=1e-3, atol=1e-4)
    learner = prl.Learner(scheme(), 6, tmp_path / "parts")
    learner = prl.Learner.resume(stopped(learner, 2, monkeypatch), scheme=scheme())
    assert learner.run()
    assert_equal(learner.scheme.state_dict(), whole.scheme.state_dict())


def test_runs_of_the_same_data_at_different_paths_are_grouped_as_one_composition(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy.npz"
    other.write_bytes(data.read_bytes())
    for number, (file, size) in enumerate([(data, 100), (other, 100), (data, 90)]):
        storage, algorithm = prl.ReplayBuffer.create_factory(size=size), {"test_every": 2}
        scheme = cloning(file, storage, seed=number, test_envs_factory=CARTPOLE, algorithm=algorithm)
        prl.Learner(scheme, 2, tmp_path / f"run-{number}").run()
    runs = [read_run(tmp_path / f"run-{number}") for number in range(3)]
    assert [len(group.runs) for group in grouped(runs)] == [2, 1]


def test_the_policy_of_a_run_without_environments_acts_only_in_given_ones(data: Path, tmp_path: Path) -> None:
    prl.Learner(cloning(data), 2, tmp_path / "run").run()
    with pytest.raises(prl.CompositionError, match="had no environments; name one to act in"):
        collect_demonstrations(tmp_path / "run", path=tmp_path / "played.npz", episodes=1)
    written = collect_demonstrations(tmp_path / "run", CARTPOLE, path=tmp_path / "played.npz", episodes=2)
    assert written.episodes == 2


def test_a_checkpoint_holds_no_copy_of_the_data(data: Path) -> None:
    scheme = cloning(data)
    scheme.algorithm.update(next(iter(scheme.storage.generate_batches(1, 8))))
    state = scheme.state_dict()["storage"]
    assert "ring" not in state
    assert not any(isinstance(value, torch.Tensor) and value.numel() > 10 for value in state.values())


def test_inspecting_a_storage_filled_from_a_data_set_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    prl.Learner(cloning(data), 5, tmp_path / "run").run()
    with pytest.raises(prl.CheckpointError, match=r"filled from the data set .*data\.npz"):
        inspect_storage(tmp_path / "run")


def test_a_data_set_is_stored_unchanged_for_any_number_of_test_environments(data: Path) -> None:
    storage = cloning(data, test_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=7)).storage
    assert storage.num_envs == 1
    held = storage.get_all_buffer_data()
    episodes = list(open_dataset(data))
    assert len(storage) == sum(map(len, episodes)) == 60
    observations = np.concatenate([np.asarray(episode.observations)[:-1] for episode in episodes])
    np.testing.assert_array_equal(held[OBS][:, 0], observations)
    np.testing.assert_array_equal(held[ACT][:, 0], np.concatenate([episode.fields[ACT] for episode in episodes]))


@pytest.mark.parametrize("kind", ["npz", "minari-hdf5", "directory", "episodes"])
def test_data_sets_of_every_kind_are_learnt_from_and_left_unchanged(kind: str, data: Path, tmp_path: Path) -> None:
    if kind == "minari-hdf5":
        pytest.importorskip("h5py")
        data = tmp_path / "minari" / "cartpole-v0"
        envs = prl.VecEnv.create_factory("CartPole-v1", env_kwargs={"max_episode_steps": 20})
        collect_demonstrations(balance, envs, path=data, steps=60)
    elif kind in ("directory", "episodes"):
        cls = prl.ReplayBuffer if kind == "directory" else prl.PersistentEpisodicBuffer
        storage = cls.create_factory(size=60, directory=tmp_path / "kept")("cpu", None, None, None)
        fill(storage, open_dataset(data))
        storage.close()
        data = tmp_path / "kept"
    before = content(data) if data.is_dir() else None
    scheme = cloning(data, test_envs_factory=CARTPOLE)
    assert len(scheme.storage) == 60
    assert all(np.isfinite(float(metrics["loss"])) for metrics in scheme.update())
    assert before is None or content(data) == before


def test_a_reopened_storage_directory_is_a_source_of_data(data: Path, tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.BehaviourCloning.create_factory(mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.ReplayBuffer.create_factory(size=50, directory=tmp_path / "kept"),
            test_envs_factory=CARTPOLE,
        )

    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=3)()
    collected = prl.ReplayBuffer.create_factory(size=50, directory=tmp_path / "kept")("cpu", None, None, envs)
    fill(collected, open_dataset(data))
    collected.close()
    envs.close()
    whole = prl.Learner(scheme(), 6, tmp_path / "run")
    # The directory records the number of environments.
    assert whole.scheme.storage.num_envs == 3
    assert whole.run()
    whole.close()
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=9)
    assert len(resumed.scheme.storage) == 60
    assert resumed.run()
    resumed.close()


def test_a_manually_filled_storage_is_saved_completely_in_checkpoints(data: Path, tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.BehaviourCloning.create_factory(mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.ReplayBuffer.create_factory(size=60),
            test_envs_factory=CARTPOLE,
        )

    learner = prl.Learner(scheme(), 5, tmp_path / "run")
    with pytest.raises(prl.EmptyStorageError):
        learner.step()
    learner.close()
    learner = prl.Learner(scheme(), 5, tmp_path / "filled")
    fill(learner.scheme.storage, open_dataset(data))
    assert learner.run()
    resumed = prl.Learner.resume(tmp_path / "filled", target_steps=8)
    assert len(resumed.scheme.storage) == 60
    assert resumed.run()


def test_a_directory_is_filled_from_a_data_set_only_once(data: Path, tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=100, directory=tmp_path / "kept")
    cloning(data, storage).close()
    scheme = cloning(data, storage)
    assert len(scheme.storage) == 60
    assert "ring" not in scheme.state_dict()["storage"]
    scheme.close()


def test_collected_steps_are_added_to_the_data_of_a_filled_storage(data: Path, tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=4, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), data),
        CARTPOLE,
    )
    assert len(scheme.storage) == 60
    learner = prl.Learner(scheme, 10, tmp_path / "run")
    assert learner.run()
    assert len(scheme.storage) == 70
    # Collected steps are in no file, so the checkpoint contains the storage.
    assert "ring" in scheme.state_dict()["storage"]


def test_without_environments_the_spaces_are_those_of_the_data(data: Path) -> None:
    scheme = cloning(data)
    assert scheme.actor.observation_space.shape == (4,)
    assert scheme.actor.action_space == spaces.Discrete(2)
    assert not scheme.can_evaluate
    with pytest.raises(prl.CompositionError, match=r"no environments to evaluate in; give it test_envs_factory"):
        scheme.evaluate(1)


def returns_in(storage: Any) -> list[float]:
    return [float(one.fields[REW].sum()) for one in episodes_of(storage)]


def test_a_storage_is_filled_with_the_selected_episodes(tmp_path: Path) -> None:
    data = tmp_path / "lengths.npz"
    collect_demonstrations(lambda seen: np.zeros((1, 1), np.int64), ONE, path=data, episodes=20)
    returns = [return_of(one) for one in open_dataset(data)]
    median = float(np.median(returns))

    def held(**arguments: Any) -> list[float]:
        factory = prl.from_dataset(
            prl.ReplayBuffer.create_factory(size=400), data, select=prl.SelectEpisodes(**arguments)
        )
        return returns_in(cloning(data, factory).storage)

    assert held(min_return=median) == [value for value in returns if value >= median]
    train, validation = held(part="train"), held(part="validation")
    assert len(validation) == 2
    assert sorted(train + validation) == sorted(returns)


def test_returns_to_go_are_a_field_of_batches(tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz")
    factory = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), data, returns_to_go=1.0)
    storage = cloning(data, factory).storage
    batch = next(iter(storage.generate_batches(1, 60)))
    assert batch[RTG].shape == (60, 1)
    earned = {
        row: float(episode.fields[REW][step:].sum())
        for row, (episode, step) in enumerate(
            (episode, step) for episode in open_dataset(data) for step in range(len(episode))
        )
    }
    for row, value in zip(batch[INDICES][:, 0].tolist(), batch[RTG][:, 0].tolist(), strict=True):
        assert value == earned[row]
    with pytest.raises(ValueError, match=r"returns_to_go must lie in \[0, 1\], got 2"):
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), data, returns_to_go=2)


def test_a_run_cannot_be_resumed_with_other_episodes_of_the_data(data: Path, tmp_path: Path) -> None:
    def scheme(**arguments: Any) -> prl.Scheme:
        select = prl.SelectEpisodes(part="train", **arguments)
        return cloning(data, prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), data, select=select))

    prl.Learner(scheme(), 5, tmp_path / "run").run()
    with pytest.raises(prl.CheckpointError, match=r"storage\.select\.seed: 1 here, 0 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=scheme(seed=1))
    assert prl.Learner.resume(tmp_path / "run", scheme=scheme(), target_steps=8).run()


def test_held_out_episodes_do_not_count_for_the_normalisation(tmp_path: Path) -> None:
    data = tmp_path / "lengths.npz"
    collect_demonstrations(lambda seen: np.zeros((1, 1), np.int64), ONE, path=data, episodes=20)
    select = prl.SelectEpisodes(part="train", validation_share=0.5)
    factory = prl.from_dataset(prl.ReplayBuffer.create_factory(size=400), data, select=select)
    scheme = cloning(data, factory, actor={"normalize_observations": True})
    list(scheme.update())
    assert scheme.actor.normalization is not None
    mean = scheme.actor.normalization.parts[0].mean
    seen = [np.asarray(one.observations)[:-1] for one in SelectedDataset(open_dataset(data), select)]
    np.testing.assert_allclose(np.asarray(mean), np.concatenate(seen).mean(0), rtol=1e-5)


@pytest.mark.long
def test_data_larger_than_memory_is_learnt_from_on_disk_and_copied_only_once(tmp_path: Path) -> None:
    data = tmp_path / "many.npz"
    collect_demonstrations(lambda seen: np.zeros((1, 1), np.int64), ONE, path=data, episodes=300)
    stored = prl.PersistentEpisodicBuffer.create_factory(size=None, directory=tmp_path / "on-disk", memory_bytes=20_000)
    scheme = cloning(data, stored)
    steps = open_dataset(data).steps
    assert len(scheme.storage) == steps
    assert scheme.storage.ring.live_steps < steps / 2
    list(scheme.update())
    scheme.close()
    again = cloning(data, stored)
    assert len(again.storage) == steps
    again.close()
