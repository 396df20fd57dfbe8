"""Episodes of an agent are recorded as demonstrations, and the agent does not change."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.envs.spaces import space_as_data
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments import CheckpointError, collect_demonstrations, with_memory
from storages import DatasetError
from storages.datasets import About, fill, open_dataset
from storages.transition import ACT, REW, RHS, RHS2
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme, sac_scheme
from tests.support.toys import Counter, continuous


def counters(num_envs: int = 2, **given: Any) -> Any:
    return prl.VecEnv.create_factory(Counter, num_envs=num_envs, env_kwargs=given)


def alternating(observation: Any) -> Any:
    count = observation["count"] if isinstance(observation, dict) else observation
    return count[:, :1].astype(np.int64) % 2


@pytest.mark.parametrize("kind", ["vector", "dict", "discrete"])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_episodes_are_recorded_with_their_true_last_observations(kind: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    written = collect_demonstrations(alternating, counters(kind=kind, end=end), path=path, episodes=5)
    assert (written.episodes, written.steps) == (5, 15)
    for one in open_dataset(path):
        observations = one.observations["count"] if isinstance(one.observations, dict) else one.observations
        assert observations[:, 0].tolist() == [0, 1, 2, 3]
        assert one.fields[REW].tolist() == [[1], [2], [3]]
        assert one.fields[ACT].tolist() == [[0], [1], [0]]
        assert (one.terminated, one.truncated) == (end == "terminated", end == "truncated")


def test_recording_a_number_of_steps_includes_unfinished_episodes(tmp_path: Path) -> None:
    collect_demonstrations(alternating, counters(length=3), path=tmp_path / "data.npz", steps=9)
    lengths = [(len(one), one.terminated) for one in open_dataset(tmp_path / "data.npz")]
    assert lengths == [(3, True), (3, True), (2, False), (2, False)]


def test_recorded_episodes_are_divided_among_the_environments(tmp_path: Path) -> None:
    collect_demonstrations(alternating, counters(3), path=tmp_path / "data.npz", episodes=4)
    assert sorted(one.facts["environment"] for one in open_dataset(tmp_path / "data.npz")) == [0, 1, 2, 2]


@pytest.mark.parametrize("deterministic", [True, False])
def test_equal_seeds_record_equal_data_and_leave_the_agent_unchanged(deterministic: bool, tmp_path: Path) -> None:
    scheme = ppo_scheme()
    before = {name: value for name, value in scheme.algorithm.state_dict().items() if name != "optimizer"}
    recorded = []
    for number, seed in enumerate((3, 3, 4)):
        path = tmp_path / f"{number}.npz"
        collect_demonstrations(
            scheme.algorithm, scheme.envs, path=path, steps=60, seed=seed, deterministic=deterministic
        )
        recorded.append(path.read_bytes())
    after = {name: value for name, value in scheme.algorithm.state_dict().items() if name != "optimizer"}
    scheme.close()
    assert recorded[0] == recorded[1] != recorded[2]
    assert_equal(before, after)


def test_an_agent_that_is_not_deterministic_explores(tmp_path: Path) -> None:
    scheme = sac_scheme()
    for deterministic in (True, False):
        path = tmp_path / f"{deterministic}.npz"
        collect_demonstrations(scheme.algorithm, scheme.envs, path=path, steps=5, deterministic=deterministic)
    scheme.close()
    actions = [next(iter(open_dataset(tmp_path / f"{way}.npz"))).fields[ACT] for way in (True, False)]
    assert (actions[0] != actions[1]).all()


@pytest.mark.parametrize("make", [dqn_scheme, ppo_scheme])
def test_the_agent_of_a_run_folder_acts_as_it_does_in_the_run(make: Any, tmp_path: Path) -> None:
    learner = prl.Learner(make(), 200, tmp_path / "run")
    learner.run()
    collect_demonstrations(tmp_path / "run", path=tmp_path / "of folder.npz", episodes=2)
    envs = prl.VecEnv.create_factory("CartPole-v1")
    collect_demonstrations(learner.scheme.algorithm, envs, path=tmp_path / "of run.npz", episodes=2)
    learner.close()
    assert (tmp_path / "of folder.npz").read_bytes() == (tmp_path / "of run.npz").read_bytes()
    about = open_dataset(tmp_path / "of folder.npz").about
    assert about.algorithm_name == type(learner.scheme.algorithm).__name__
    assert about.env_spec is not None
    assert '"id": "CartPole-v1"' in about.env_spec


def test_a_recurrent_agent_resets_its_memory_in_each_episode(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        algo_factory=prl.PPO.create_factory(num_mini_batch=2),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        storage_factory=prl.GAEBuffer.create_factory(size=16),
        train_envs_factory=counters(length=5),
    )
    collect_demonstrations(scheme.algorithm, scheme.envs, path=tmp_path / "data.npz", episodes=6)
    scheme.close()
    actions = {one.fields[ACT].tobytes() for one in open_dataset(tmp_path / "data.npz")}
    assert len(actions) == 1


def test_an_actor_may_return_tensors(tmp_path: Path) -> None:
    envs = counters(actions=continuous(size=2))
    written = collect_demonstrations(
        lambda observations: torch.ones(2, 2), envs, path=tmp_path / "data.npz", episodes=1
    )
    assert written.steps == 3
    about = open_dataset(tmp_path / "data.npz").about
    assert about.action_space == space_as_data(continuous(size=2))
    assert about.env_spec is None


def test_minari_recovers_the_environment_of_recorded_data(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run()
    learner.close()
    about = About("cartpole/beginner-v0", author=("A. Body",))
    collect_demonstrations(tmp_path / "run", path=tmp_path / "data", episodes=3, about=about)
    dataset = minari.MinariDataset(tmp_path / "data" / "data")
    env = dataset.recover_environment()
    assert env.spec.id == "CartPole-v1"
    assert (env.observation_space, env.action_space) == (dataset.observation_space, dataset.action_space)
    env.close()
    assert dataset.total_episodes == 3
    for one in dataset:
        assert all(dataset.action_space.contains(action) for action in one.actions)
        assert one.terminations[-1] or one.truncations[-1]


def test_a_storage_is_filled_with_recorded_data_and_training_continues_from_it(tmp_path: Path) -> None:
    collect_demonstrations(
        lambda observations: np.full((2, 1), 0.5),
        prl.VecEnv.create_factory("Pendulum-v1", 2),
        path=tmp_path / "a.npz",
        steps=80,
    )
    scheme = sac_scheme()
    filled = fill(scheme.storage, open_dataset(tmp_path / "a.npz"), envs=scheme.envs)
    assert (filled.transitions, len(scheme.storage)) == (80, 80)
    learner = prl.Learner(scheme, 60, tmp_path / "run")
    learner.run()
    learner.close()
    assert len(scheme.storage) == 140


def recurrent_scheme() -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.SAC.create_factory(start_steps=0, mini_batch_size=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        storage_factory=prl.ReplayBuffer.create_factory(size=200, sequences=prl.Sequences(5, burn_in=2)),
        train_envs_factory=prl.VecEnv.create_factory("Pendulum-v1", num_envs=2),
    )


def test_hidden_states_of_a_recurrent_actor_are_added_to_recorded_episodes(tmp_path: Path) -> None:
    scheme = recurrent_scheme()
    algorithm = scheme.algorithm
    collect_demonstrations(algorithm, scheme.envs, path=tmp_path / "a.npz", steps=60)
    dataset = open_dataset(tmp_path / "a.npz")
    with pytest.raises(DatasetError, match="the actor is recurrent, and the episodes have no hidden states"):
        fill(scheme.storage, dataset, envs=scheme.envs)
    for one, plain in zip(with_memory(dataset, algorithm), dataset, strict=True):
        assert (one.fields[RHS][1:] == one.fields[RHS2][:-1]).all()
        assert not one.fields[RHS][0].any()
        # With these hidden states, the actor repeats the recorded actions.
        assert isinstance(plain.observations, np.ndarray)
        observations, memory = torch.from_numpy(plain.observations[:-1]), torch.from_numpy(one.fields[RHS])
        exploration = Exploration(algorithm.codec, len(one), "cpu", seed=0, deterministic=True)
        acted = algorithm.acting_step(observations, memory, torch.zeros(len(one), 1), exploration)
        np.testing.assert_allclose(acted.env_action.numpy(), plain.fields[ACT], atol=1e-5)
    fill(scheme.storage, with_memory(dataset, algorithm), envs=scheme.envs)
    learner = prl.Learner(scheme, 20, tmp_path / "run")
    learner.run()
    learner.close()
    assert len(scheme.storage) == 80
    plain_scheme = sac_scheme()
    with pytest.raises(ValueError, match="OffPolicyActor has no memory; fill the storage without it"):
        with_memory(dataset, plain_scheme.algorithm)
    plain_scheme.close()


def test_one_interrupt_keeps_the_recorded_episodes(tmp_path: Path) -> None:
    calls = iter(range(100))

    def interrupted(observation: Any) -> Any:
        if next(calls) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return alternating(observation)

    written = collect_demonstrations(interrupted, counters(), path=tmp_path / "data.npz", episodes=50)
    assert (written.episodes, written.steps) == (4, 12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give steps or episodes, got steps=None, episodes=None"),
        ({"steps": 1, "episodes": 1}, "give steps or episodes"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"episodes": 1, "envs": None}, "give envs to act in; only a run folder"),
        ({"episodes": 1, "actor": lambda observations: np.zeros(2)}, r"actions must have shape \(2, 1\), got \(2,\)"),
    ],
)
def test_invalid_arguments_are_refused_and_no_files_are_written(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments = {"actor": alternating, "envs": counters()} | given
    with pytest.raises(ValueError, match=message):
        collect_demonstrations(**arguments, path=tmp_path / "data.npz")
    assert list(tmp_path.iterdir()) == []


def test_recording_to_an_existing_file_or_from_a_missing_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_text("precious")

    def never(observation: Any) -> Iterator[Any]:
        raise AssertionError

    with pytest.raises(DatasetError, match="exists already"):
        collect_demonstrations(never, counters(), path=tmp_path / "data.npz", episodes=1)
    with pytest.raises(CheckpointError, match="does not exist"):
        collect_demonstrations(tmp_path / "nowhere", path=tmp_path / "other.npz", episodes=1)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("data.npz", "precious")]
