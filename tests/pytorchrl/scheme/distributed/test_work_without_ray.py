"""Collectors and gradient workers in a single process: like the tests with Ray, and quicker."""

from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.scheme.distributed import ray_scheme
from pytorchrl.scheme.distributed.collection_worker import CollectionWorker
from pytorchrl.scheme.distributed.gradient_worker import GradientWorker
from tests.support.comparison import assert_equal
from tests.support.inline_workers import InlineWorkers
from tests.support.training import saved_and_loaded, train


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = pytest.importorskip("pytorchrl.scheme.distributed.workers", exc_type=ImportError)
    monkeypatch.setattr(workers, "connect", lambda *_: False)
    monkeypatch.setattr(workers, "put", lambda value: value)

    def collectors(blueprint: Any, _: Any) -> InlineWorkers:
        return InlineWorkers(CollectionWorker, lambda worker: (blueprint, worker), blueprint.num_collectors)

    def gradient_workers(blueprint: Any, number: int, *_: Any) -> InlineWorkers:
        return InlineWorkers(GradientWorker, lambda worker: (blueprint, worker), number)

    monkeypatch.setattr(ray_scheme, "make_workers", collectors)
    monkeypatch.setattr(ray_scheme, "make_gradient_workers", gradient_workers)


def parts(name: str) -> dict[str, Any]:
    if name == "dqn":
        return {
            "algo_factory": prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
            "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            "storage_factory": prl.PERBuffer.create_factory(size=100, n_step=3, alpha=0.6, beta=0.4),
            "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        }
    if name == "sequences":
        return {
            "algo_factory": prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
            "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=8),
            "storage_factory": prl.ReplayBuffer.create_factory(size=60, sequences=prl.Sequences(6, burn_in=2)),
            "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        }
    memory = {"memory": "lstm", "memory_size": 8} if name == "ppo with memory" else {}
    return {
        "algo_factory": prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **memory),
        "storage_factory": prl.GAEBuffer.create_factory(size=16, sequence_length=8 if memory else None),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    }


NAMES = ["dqn", "sequences", "ppo", "ppo with memory"]


@pytest.mark.parametrize("name", NAMES)
def test_one_collector_trains_exactly_like_one_process(name: str) -> None:
    states = []
    for scheme in (prl.RayScheme(**parts(name), num_collectors=1), prl.Scheme(**parts(name))):
        state = saved_and_loaded(train(scheme, 192).state_dict())
        states.append({key: state[key] for key in ("algorithm", "storage")})
        scheme.close()
    assert_equal(*states)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [{"num_collectors": 2}, {"num_gradient_workers": 2}], ids=str)
def test_a_loaded_state_continues_the_same_run_with_other_workers(name: str, workers: dict[str, int]) -> None:
    first = train(prl.RayScheme(**parts(name), **workers), 128)
    state = saved_and_loaded(first.state_dict())
    second = prl.RayScheme(**parts(name), **workers)
    assert second.load_state_dict(state) == []
    assert second.steps == first.steps
    for scheme in (first, second):
        train(scheme, 256)
    assert_equal(saved_and_loaded(first.state_dict()), saved_and_loaded(second.state_dict()))
    first.close()
    second.close()


def test_a_collector_does_not_change_the_weights_and_statistics_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collect, are_kept = CollectionWorker.collect, []

    def watched(worker: CollectionWorker, order: Any, weights: Any) -> Any:
        made = collect(worker, order, weights)
        kept = worker._algorithm.get_weights()
        are_kept.append(all((kept[name].numpy() == given).all() for name, given in weights.items()))
        return made

    monkeypatch.setattr(CollectionWorker, "collect", watched)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True)
    scheme = train(prl.RayScheme(**parts("dqn") | {"actor_factory": actor}, num_collectors=2), 64)
    counted = scheme.actor.normalization
    assert counted is not None
    assert counted.parts[0].count == scheme.steps
    assert len(are_kept) > 2
    assert all(are_kept)
    scheme.close()
