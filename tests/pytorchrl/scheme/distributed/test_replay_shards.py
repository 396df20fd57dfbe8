"""Schemes whose replay is divided among shards, and whose collectors compute initial priorities."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.scheme.distributed import RayScheme
from pytorchrl.scheme.distributed.blueprint import CollectorBlueprint
from pytorchrl.scheme.distributed.collection_worker import CollectionWorker, RunState, weights_to_send
from pytorchrl.scheme.distributed.plan import WorkPlan
from storages.transition import ERRORS, REW, SKIPPED

ENVS = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)
ACTOR = prl.OffPolicyActor.create_factory(hidden_sizes=(16,))
MEMORY = prl.OffPolicyActor.create_factory(hidden_sizes=(16,), memory="lstm", memory_size=8)
PRIORITISED = prl.PERBuffer.create_factory(size=2_000, n_step=3, alpha=0.6, beta=0.4, epsilon=0.01)
SEQUENCES = prl.PERBuffer.create_factory(size=2_000, n_step=2, alpha=0.6, sequences=prl.Sequences(8, burn_in=2))


def settings(**given: Any) -> dict[str, Any]:
    return {
        "algo_factory": prl.DQN.create_factory(start_steps=200, update_every=20, mini_batch_size=16),
        "actor_factory": ACTOR,
        "storage_factory": PRIORITISED,
        "train_envs_factory": ENVS,
        "num_collectors": 2,
        "communication": "asynchronous",
        "slice_steps": 20,
        "num_replay_shards": 2,
        "initial_priorities": True,
    } | given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_replay_shards": -1}, "num_replay_shards must be an int from 0, got -1"),
        (
            {"storage_factory": prl.ReplayBuffer.create_factory(size=9)},
            "initial_priorities needs a prioritized storage, which ReplayBuffer is not",
        ),
        (
            {"storage_factory": prl.EREBuffer.create_factory(size=9, alpha=0.5, eta=0.9)},
            "num_replay_shards=2: EREBuffer: the newest transitions of each shard are not the newest of all",
        ),
        (
            {"num_collectors": None, "num_gradient_workers": 2, "slice_steps": None},
            "gradient workers have storages of their own; leave out num_replay_shards",
        ),
        (
            {"resources": {"shard": {}}},
            "keys of resources are 'collector', 'gradient_worker', 'replay_shard', got 'shard'",
        ),
    ],
)
def test_parts_that_are_incompatible_with_shards_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RayScheme(**settings(**given))


PLAN = WorkPlan(
    num_collectors=1,
    num_gradient_workers=0,
    communication="synchronous",
    slice_steps=12,
    slices_at_once=1,
    preemption=1.0,
    explorers=None,
    worker_device="cpu",
    num_replay_shards=0,
    initial_priorities=True,
)


def worker(algorithm: Any, actor: Any, storage: Any, **given: Any) -> CollectionWorker:
    blueprint = CollectorBlueprint(
        algorithm, actor, given.pop("envs", ENVS), PLAN, None, 0, 12, False, (), storage, **given
    )
    return CollectionWorker(blueprint, 0)


@pytest.mark.parametrize(
    ("algorithm", "actor", "storage", "envs"),
    [
        (prl.DQN.create_factory(), ACTOR, PRIORITISED, ENVS),
        (prl.R2D2.create_factory(), MEMORY, SEQUENCES, ENVS),
        (prl.SAC.create_factory(), ACTOR, PRIORITISED, prl.VecEnv.create_factory("Pendulum-v1", num_envs=2)),
    ],
)
def test_collectors_compute_an_error_of_each_transition(algorithm: Any, actor: Any, storage: Any, envs: Any) -> None:
    one = worker(algorithm, actor, storage, envs=envs)
    data = one.collect(RunState(0, 0, 100), weights_to_send(one._algorithm.get_weights())).data
    errors = data[ERRORS]
    assert isinstance(errors, np.ndarray)
    assert errors.shape == (12, 2, 1)
    assert np.isfinite(errors).all()
    assert np.abs(errors).min() > 0
    without = worker(algorithm, actor, None, envs=envs)
    assert ERRORS not in without.collect(RunState(0, 0, 100), weights_to_send(one._algorithm.get_weights())).data


def test_errors_of_collectors_become_priorities_where_environments_skip_steps() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    one = worker(prl.DQN.create_factory(), ACTOR, PRIORITISED, envs=envs)
    weights = weights_to_send(one._algorithm.get_weights())
    storage: Any = PRIORITISED("cpu", None, one._algorithm, SimpleNamespace(num_envs=3))
    expected: list[list[float]] = [[], [], []]
    for steps in range(0, 180, 36):
        data: Any = one.collect(RunState(steps, 0, 180), weights).data
        storage.insert_data_slice(data)
        for env, made in enumerate((~data[SKIPPED][..., 0].astype(bool)).T):
            expected[env] += np.abs(data[ERRORS][made, env, 0]).tolist()
    assert len({len(errors) for errors in expected}) > 1, "the environments have skipped different numbers of steps"
    stored = len(storage) // 3
    found = storage.priorities.errors_of(0, 3 * stored).reshape(stored, 3)
    np.testing.assert_allclose(found, np.transpose([errors[:stored] for errors in expected]), rtol=1e-6)


def test_errors_of_collectors_are_n_step_errors_of_their_own_network() -> None:
    one = worker(prl.DQN.create_factory(gamma=0.9, huber_threshold=None, double=False), ACTOR, PRIORITISED)
    algorithm = one._algorithm
    data: Any = one.collect(RunState(0, 0, 100), weights_to_send(algorithm.get_weights())).data

    def values(observations: Any) -> Any:
        with torch.no_grad():
            seen = torch.from_numpy(observations)
            done, memory = torch.zeros(len(seen), 1), algorithm.actor.initial_memory(len(seen))
            return algorithm.q(algorithm.actor.view(seen, memory, done)).values.numpy()

    for env in range(2):
        for step in range(12):
            total, last = 0.0, step
            for later in range(step, min(step + 3, 12)):
                total, last = total + 0.9 ** (later - step) * data[REW][later, env, 0], later
                if data["NextDone"][later, env, 0] or data["NextTruncated"][later, env, 0]:
                    break
            following = values(data["NextObservation"][last, env : env + 1])[0].max()
            bootstrap = 0.0 if data["NextDone"][last, env, 0] else 0.9 ** (last - step + 1) * following
            own = values(data["Observation"][step, env : env + 1])[0, data["Action"][step, env, 0]]
            np.testing.assert_allclose(abs(data[ERRORS][step, env, 0]), abs(total + bootstrap - own), rtol=1e-4)


@pytest.mark.ray
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_with_shards_trains_and_resumes_with_their_transitions(
    on_disk: bool, cluster: None, tmp_path: Path
) -> None:
    hyper_parameters = PRIORITISED.hyper_parameters | ({"directory": tmp_path / "replay"} if on_disk else {})
    storage = prl.PERBuffer.create_factory(**hyper_parameters)
    scheme = RayScheme(**settings(storage_factory=storage))
    learner = prl.Learner(scheme, target_steps=600, log_dir=tmp_path / "run")
    learner.run()
    metrics = learner.get_metrics()
    assert metrics["storage/shards"] == 2
    assert metrics["storage/mean_priority"] > 0
    held = len(scheme.storage)
    assert held >= 600
    learner.close()
    again = prl.Learner.resume(tmp_path / "run", target_steps=1_000)
    assert len(again.scheme.storage) == held
    again.run()
    assert len(again.scheme.storage) >= 1_000
    again.close()
