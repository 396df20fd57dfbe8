"""Collectors and gradient workers in a single process: like the tests with Ray, and quicker."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization
from pytorchrl.scheme.distributed import ray_scheme
from pytorchrl.scheme.distributed.collection_worker import CollectionWorker
from pytorchrl.scheme.distributed.gradient_worker import GradientWorker
from storages.transition import OBS
from tests.pytorchrl.scheme.distributed.inline_workers import InlineWorkers
from tests.support.comparison import assert_equal
from tests.support.paid_moves import PaidMoves
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded, train


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = pytest.importorskip("pytorchrl.scheme.distributed.workers", exc_type=ImportError)
    monkeypatch.setattr(workers, "connect", lambda *_: False)
    monkeypatch.setattr(workers, "put", copy.deepcopy)

    def collectors(blueprint: Any, _: Any) -> InlineWorkers:
        return InlineWorkers(CollectionWorker, lambda worker: (blueprint, worker), blueprint.plan.num_workers)

    def gradient_workers(blueprint: Any, _: Any) -> InlineWorkers:
        return InlineWorkers(GradientWorker, lambda worker: (blueprint, worker), blueprint.plan.num_workers)

    monkeypatch.setattr(ray_scheme, "make_collectors", collectors)
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
    if name == "components of rewards":
        return {
            "algo_factory": prl.SACDecomposed.create_factory(
                reward_components=("place", "force"), start_steps=24, update_every=8, mini_batch_size=8, test_every=0
            ),
            "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            "storage_factory": prl.PERBuffer.create_factory(size=100, n_step=3, alpha=0.6, beta=0.4),
            "train_envs_factory": prl.VecEnv.create_factory(PaidMoves, num_envs=2),
        }
    memory = {"memory": "lstm", "memory_size": 8} if name == "ppo with memory" else {}
    return {
        "algo_factory": prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **memory),
        "storage_factory": prl.GAEBuffer.create_factory(size=16, sequence_length=8 if memory else None),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    }


NAMES = ["dqn", "sequences", "components of rewards", "ppo", "ppo with memory"]


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", NAMES)
def test_one_collector_trains_exactly_like_one_process(name: str) -> None:
    states = []
    for scheme in (prl.RayScheme(**parts(name), num_collectors=1), prl.Scheme(**parts(name))):
        state = saved_and_loaded(train(scheme, 192).state_dict())
        states.append({key: state[key] for key in ("algorithm", "storage")})
        scheme.close()
    assert_equal(*states)


def crossq(**workers: Any) -> prl.RayScheme | prl.Scheme:
    scheme: Any = prl.RayScheme if workers else prl.Scheme
    made: prl.RayScheme | prl.Scheme = scheme(
        prl.CrossQ.create_factory(start_steps=24, update_every=8, mini_batch_size=8, renorm_warmup=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("Pendulum-v1", num_envs=2),
        **workers,
    )
    return made


def running_statistics(scheme: Any) -> dict[str, torch.Tensor]:
    weights = scheme.algorithm.get_weights()
    return {name: weights[name] for name in weights if "running" in name or "num_batches" in name}


def test_batch_normalisation_learns_from_a_gradient_worker_as_from_one_process() -> None:
    schemes = [train(crossq(**workers), 96) for workers in ({"num_gradient_workers": 1}, {})]
    of_worker, of_process = map(running_statistics, schemes)
    assert max(int(each) for name, each in of_worker.items() if "num_batches" in name) > 1
    # The worker sends differences.
    torch.testing.assert_close(of_worker, of_process)
    for scheme in schemes:
        scheme.close()


def test_batch_normalisation_learns_from_several_workers_and_resumes() -> None:
    scheme = crossq(num_gradient_workers=2)
    before = running_statistics(scheme)
    train(scheme, 96)
    state = saved_and_loaded(scheme.state_dict())
    after = running_statistics(scheme)
    assert not [name for name in after if torch.equal(after[name], before[name])]
    resumed = crossq(num_gradient_workers=2)
    resumed.load_state_dict(state)
    for each in (scheme, resumed):
        train(each, 160)
    assert_equal(running_statistics(resumed), running_statistics(scheme))
    for each in (scheme, resumed):
        each.close()


class FailsOnce(Counter):
    """Observes its number; that of the second collector, made after the learner's and the first, fails once."""

    made = 0
    has_failed = False

    def __init__(self) -> None:
        super().__init__(length=1_000)
        self.number, FailsOnce.made = FailsOnce.made, FailsOnce.made + 1

    def _observation(self) -> Any:
        return np.array([self.number, self.count], np.float32)

    def step(self, action: Any) -> Any:
        if self.number == 2 and self.count == 5 and not FailsOnce.has_failed:
            FailsOnce.has_failed = True
            raise ConnectionError("the simulator does not answer")
        return super().step(action)


def test_rows_stay_those_of_their_collectors_after_one_of_them_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOnce, "made", 0)
    monkeypatch.setattr(FailsOnce, "has_failed", False)
    composed = parts("dqn") | {"train_envs_factory": prl.VecEnv.create_factory(FailsOnce)}
    scheme = prl.RayScheme(**composed, num_collectors=2)
    with pytest.raises(ConnectionError):
        train(scheme, 96)
    state = saved_and_loaded(scheme.state_dict())
    monkeypatch.setattr(FailsOnce, "made", 0)
    resumed = prl.RayScheme(**composed, num_collectors=2)
    resumed.load_state_dict(state)
    train(resumed, 96)
    seen = resumed.storage.get_all_buffer_data()[OBS]
    assert (seen[:, 0, 0] == 1).all()
    assert (seen[:, 1, 0] == 2).all()
    for each in (scheme, resumed):
        each.close()


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [{"num_collectors": 2}, {"num_gradient_workers": 2}], ids=str)
def test_a_loaded_state_continues_the_same_run_with_other_workers(name: str, workers: dict[str, int]) -> None:
    composed = normalised(name) if name in ("ppo", "dqn") else parts(name)
    first = train(prl.RayScheme(**composed, **workers), 128)
    state = saved_and_loaded(first.state_dict())
    second = prl.RayScheme(**composed, **workers)
    assert second.load_state_dict(state) == []
    assert second.steps == first.steps
    for scheme in (first, second):
        train(scheme, 256)
    assert_equal(saved_and_loaded(first.state_dict()), saved_and_loaded(second.state_dict()))
    first.close()
    second.close()


def test_one_gradient_worker_that_normalises_observations_trains_like_one_process() -> None:
    states = []
    for scheme in (prl.RayScheme(**normalised("ppo"), num_gradient_workers=1), prl.Scheme(**normalised("ppo"))):
        state = train(scheme, 192).algorithm.state_dict()
        states.append(state["actor"])
        scheme.close()
    assert states[0].keys() == states[1].keys()
    for name, weight in states[0].items():
        # Sums of squares are added in another order.
        torch.testing.assert_close(weight, states[1][name], rtol=1e-4, atol=1e-6, msg=name)


def normalised(name: str) -> dict[str, Any]:
    made = parts(name)
    actor = made["actor_factory"]
    values = {"hidden_sizes": (8,), "normalize_observations": True}
    return made | {"actor_factory": actor.cls.create_factory(**values)}


def scaling_of(weights: Any) -> tuple[Any, Any]:
    """The shift and the scale of observations, among an actor's weights."""
    [shift] = [name for name in weights if name.startswith("normalization") and name.endswith("shift")]
    return weights[shift], weights[shift.replace("shift", "scale")]


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_gradient_workers_normalise_by_the_observations_of_all_of_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    add, compute = ObservationNormalization.add, prl.Algorithm.compute_gradients
    used: list[tuple[Any, Any]] = []

    def adding(normalization: ObservationNormalization, rows: Any) -> None:
        seen.append(rows.numpy().copy())
        add(normalization, rows)

    def computing(algorithm: prl.Algorithm, batch: Any) -> Any:
        used.append(scaling_of(algorithm.get_weights()))
        return compute(algorithm, batch)

    monkeypatch.setattr(ObservationNormalization, "add", adding)
    monkeypatch.setattr(prl.Algorithm, "compute_gradients", computing)
    scheme = prl.RayScheme(**normalised(name), num_gradient_workers=2)
    scheme.set_progress(0, 1_000)
    earlier = None
    for _ in range(4):
        scheme.collect(1_000)
        rows = np.concatenate(seen)
        used.clear()
        assert list(scheme.update())
        assert scheme.actor.normalization is not None
        [(count, mean, squares)] = scheme.actor.normalization.moments
        assert count == len(rows) == scheme.steps
        np.testing.assert_allclose(mean, rows.mean(0, np.float64), rtol=1e-9)
        np.testing.assert_allclose(squares / count, rows.var(0, np.float64), rtol=1e-9)
        # A rollout is learnt from with the statistics that it was collected with, and replay with the newest.
        known = rows if name == "dqn" else earlier
        expected = (np.zeros(4), np.ones(4)) if known is None else (known.mean(0), 1 / known.std(0))
        assert used
        for shift, scale in used:
            np.testing.assert_allclose(shift, expected[0], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(scale, expected[1], rtol=1e-4)
        earlier = rows
    scheme.close()


# Hyper-parameters that were changed in the learner

CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "dqn": {
        "algorithm": {"gamma": 0.5, "lr": 1e-2, "epsilon": prl.LinearSchedule(0.9, 0.1), "double": True},
        "storage": {"n_step": 2, "alpha": 0.9},
    },
    "ppo": {
        "algorithm": {"gamma": 0.5, "lr": prl.LinearSchedule(1e-2, 0.0), "clip_param": 0.02, "entropy_coef": 0.1},
        "storage": {"gae_lambda": 0.3},
    },
}


def change(scheme: prl.Scheme, name: str) -> None:
    for parameter, value in CHANGES[name]["algorithm"].items():
        scheme.algorithm.update_algorithm_parameter(parameter, value)
    for parameter, value in CHANGES[name]["storage"].items():
        scheme.storage.update_storage_parameter(parameter, value)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("workers", [{"num_collectors": 1}, {"num_gradient_workers": 1}], ids=str)
def test_one_worker_trains_like_one_process_when_hyper_parameters_change(name: str, workers: dict[str, int]) -> None:
    weights = []
    for make in (lambda **given: prl.RayScheme(**given, **workers), prl.Scheme):
        with make(**parts(name), normalize_rewards="returns") as scheme:
            train(scheme, 96)
            change(scheme, name)
            train(scheme, 256)
            weights.append(scheme.algorithm.get_weights())
    assert_equal(*weights)
    with prl.Scheme(**parts(name), normalize_rewards="returns") as unchanged:
        others = train(unchanged, 256).algorithm.get_weights()
    assert any(not torch.equal(others[key], weights[0][key]) for key in others)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("workers", [{"num_collectors": 2}, {"num_gradient_workers": 2}], ids=str)
def test_a_loaded_state_continues_the_run_with_changed_hyper_parameters(name: str, workers: dict[str, int]) -> None:
    first = train(prl.RayScheme(**parts(name), **workers, normalize_rewards="returns"), 128)
    change(first, name)
    train(first, 192)
    state = saved_and_loaded(first.state_dict())
    second = prl.RayScheme(**parts(name), **workers, normalize_rewards="returns")
    second.load_state_dict(state)
    for scheme in (first, second):
        train(scheme, 320)
    assert_equal(saved_and_loaded(first.state_dict()), saved_and_loaded(second.state_dict()))
    first.close()
    second.close()


@pytest.mark.parametrize("workers", [{"num_collectors": 2}, {"num_gradient_workers": 2}], ids=str)
def test_workers_return_to_their_own_values_when_a_change_is_undone(workers: dict[str, int]) -> None:
    explorers = [prl.EpsilonGreedy(0.1), prl.EpsilonGreedy(0.2)]
    with prl.RayScheme(**parts("dqn"), **workers, explorers=explorers) as scheme:

        def of_workers() -> list[Any]:
            found = [cast("Any", scheme).ask_worker(worker, lambda one: one) for worker in range(2)]
            algorithms = [getattr(one, "_algorithm", None) or one._scheme.algorithm for one in found]
            return [(one.explorer, one.gamma) for one in algorithms]

        scheme.algorithm.update_algorithm_parameter("explorer", prl.Boltzmann(1.0))
        scheme.algorithm.update_algorithm_parameter("gamma", 0.5)
        train(scheme, 32)
        assert of_workers() == [(prl.Boltzmann(1.0), 0.5)] * 2
        scheme.algorithm.take_changes({})
        train(scheme, scheme.steps + 32)
        assert of_workers() == [(explorer, 0.99) for explorer in explorers]


def test_initial_priorities_follow_a_changed_discount_factor_and_number_of_steps() -> None:
    def errors(gamma: float, n_step: int, changes: dict[str, Any]) -> Any:
        composed = parts("dqn") | {
            "algo_factory": prl.DQN.create_factory(gamma=gamma, start_steps=1_000, test_every=0),
            "storage_factory": prl.PERBuffer.create_factory(size=100, n_step=n_step, alpha=1.0),
        }
        with prl.RayScheme(**composed, num_collectors=1, slice_steps=8, initial_priorities=True) as scheme:
            for of, name in changes:
                value = changes[of, name]
                if of == "algorithm":
                    scheme.algorithm.update_algorithm_parameter(name, value)
                else:
                    scheme.storage.update_storage_parameter(name, value)
            scheme.collect(16)
            assert scheme.storage.priorities is not None
            return scheme.storage.priorities.state_dict()["errors"].clone()

    expected = errors(0.5, 2, {})
    assert torch.equal(errors(0.9, 3, {("algorithm", "gamma"): 0.5, ("storage", "n_step"): 2}), expected)
    assert not torch.equal(errors(0.5, 3, {}), expected)
    assert not torch.equal(errors(0.9, 2, {}), expected)
