"""Hyper-parameters that a callback changes in the learner are those of collectors, gradient workers and shards."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.component.schedule import FunctionSchedule
from tests.support.comparison import assert_equal
from tests.support.training import copied_at, saved_and_loaded

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class ChangesOnce(prl.Callback):
    """Changes hyper-parameters after 64 steps; a resumed run does not repeat it."""

    def __init__(self) -> None:
        self.has_changed = False

    def on_step(self, learner: Any) -> None:
        if learner.scheme.steps >= 64 and not self.has_changed:
            self.has_changed = True
            algorithm, storage = learner.scheme.algorithm, learner.scheme.storage
            algorithm.update_algorithm_parameter("gamma", 0.5)
            algorithm.update_algorithm_parameter("explorer", prl.Boltzmann(0.5))
            algorithm.update_algorithm_parameter("lr", prl.LinearSchedule(1e-2, 0.0))
            storage.update_storage_parameter("n_step", 2)

    def state_dict(self) -> dict[str, Any]:
        return {"has_changed": self.has_changed}

    def load_state_dict(self, state: Any) -> None:
        self.has_changed = state["has_changed"]


def dqn(seed: int = 0, **workers: Any) -> prl.Scheme:
    make: Any = prl.RayScheme if workers else prl.Scheme
    scheme: prl.Scheme = make(
        prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.PERBuffer.create_factory(size=200, n_step=3, alpha=0.6, beta=0.4, epsilon=0.01),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        seed=seed,
        **({} if "num_replay_shards" in workers else {"normalize_rewards": "returns"}),
        **workers,
    )
    return scheme


@pytest.mark.parametrize("workers", [{"num_collectors": 1}, {"num_gradient_workers": 1}], ids=str)
def test_one_worker_trains_like_one_process_and_resumes(workers: dict[str, Any], tmp_path: Path) -> None:
    alone = prl.Learner(dqn(), 192, tmp_path / "alone", callbacks=[ChangesOnce()])
    assert alone.run()
    whole = prl.Learner(dqn(**workers), 192, tmp_path / "whole", callbacks=[ChangesOnce()])
    folder = copied_at(whole, 96, tmp_path / "halves")
    assert_equal(whole.scheme.algorithm.get_weights(), alone.scheme.algorithm.get_weights())
    state = saved_and_loaded(whole.scheme.state_dict())
    for learner in (alone, whole):
        learner.close()
    with prl.Learner.resume(folder, scheme=dqn(**workers), callbacks=[ChangesOnce()]) as resumed:
        assert resumed.run()
        assert_equal(saved_and_loaded(resumed.scheme.state_dict()), state)


def test_shards_and_asynchronous_collectors_get_the_changes_and_functions_too() -> None:
    scheme: Any = dqn(num_collectors=2, communication="asynchronous", num_replay_shards=2, slice_steps=8)
    explorer = prl.EpsilonGreedy(FunctionSchedule(lambda progress: 0.25, 0.0, 1.0))
    with scheme:

        def step() -> None:
            _, due = scheme.collect(100_000)
            for _ in range(due):
                list(scheme.update())

        while scheme.steps < 128:
            step()
        scheme.algorithm.update_algorithm_parameter("gamma", 0.5)
        scheme.algorithm.update_algorithm_parameter("explorer", explorer)
        scheme.storage.update_storage_parameter("n_step", 1)
        found: list[Any] = []
        for _ in range(25):
            for _ in range(20):
                step()
            found = [scheme.ask_worker(worker, lambda one: one._algorithm.changed_parameters) for worker in range(2)]
            # A worker hears of changes when its slice is taken, which the other one's may precede several times.
            if all(found):
                break
        for shard in range(2):
            assert scheme.storage.group.call(shard, "__getattribute__", "algorithm").result().gamma == 0.5
        assert [one["gamma"] for one in found] == [0.5, 0.5]
        assert [one["explorer"].epsilon.at(1, 2) for one in found] == [0.25, 0.25]
        batch = next(iter(scheme.storage.generate_batches(1, 64)))
        assert set(batch["Discount"].flatten().tolist()) <= {0.0, 0.5}
        assert torch.isfinite(batch["Weights"]).all()
