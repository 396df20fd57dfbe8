"""Asynchronous collectors: the age of their weights, a slow collector, and checkpoints."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import OBS
from tests.support.comparison import assert_equal
from tests.support.toys import Counter, number_of_copy
from tests.support.training import saved_and_loaded, train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def impala(num_collectors: int, env: Any = "CartPole-v1", **changes: Any) -> prl.RayScheme:
    return prl.RayScheme(
        algo_factory=prl.IMPALA.create_factory(test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=prl.VTraceBuffer.create_factory(size=8),
        train_envs_factory=prl.VecEnv.create_factory(env, num_envs=2),
        num_collectors=num_collectors,
        communication="asynchronous",
        **changes,
    )


def dqn(num_collectors: int, env: Any = "CartPole-v1", **changes: Any) -> prl.RayScheme:
    return prl.RayScheme(
        algo_factory=prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=prl.ReplayBuffer.create_factory(size=4_000),
        train_envs_factory=prl.VecEnv.create_factory(env),
        num_collectors=num_collectors,
        communication="asynchronous",
        slice_steps=10,
        **changes,
    )


class Stuck(Counter):
    """The third copy made with one folder waits in its first step for the file ``go`` there, the others for that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(length=5)
        self.folder = folder
        self.number = number_of_copy(folder)

    def step(self, action: Any) -> Any:
        if self.number == 2:
            (self.folder / "stuck").touch()
        awaited = self.folder / ("go" if self.number == 2 else "stuck")
        while not awaited.exists():
            time.sleep(0.01)
        return super().step(action)


def test_rollouts_of_several_collectors_are_stored_side_by_side() -> None:
    scheme = train(impala(3, slices_at_once=2), 8 * 4 * 6)
    assert scheme.storage.num_envs == 4
    assert scheme.algorithm.updates == 6
    scheme.close()


def test_the_age_of_the_acting_weights_is_logged_as_policy_lag(tmp_path: Path) -> None:
    learner = prl.Learner(impala(1), target_steps=8 * 2 * 12, log_dir=tmp_path, log_every=8 * 2 * 12)
    learner.run()
    lag = learner.get_metrics()["train/policy_lag"]
    learner.close()
    # A collector makes the next slice during the update from the previous one; only the first has current weights.
    assert lag == pytest.approx(11 / 12)


def test_a_slow_collector_does_not_stall_the_others(tmp_path: Path) -> None:
    # The process of the learner makes the first copy, which no step is made in.
    scheme = dqn(2, env=lambda: Stuck(tmp_path))
    train(scheme, 400)
    assert (tmp_path / "stuck").exists()
    assert scheme.algorithm.updates > 40, "one collector has made all steps"
    (tmp_path / "go").touch()
    scheme.close()


def test_a_checkpoint_keeps_slices_that_have_arrived_but_are_not_inserted() -> None:
    scheme = dqn(3)
    train(scheme, 60)
    state = saved_and_loaded(scheme.state_dict())
    coming = state["collector"]["ready"]
    assert len(coming) == 3, "each collector had a slice in progress"
    train(scheme, 90)
    inserted = scheme.storage.get_all_buffer_data()
    scheme.close()

    resumed = dqn(3)
    resumed.load_state_dict(state)
    assert resumed.steps == 60
    train(resumed, 90)
    assert_equal(resumed.storage.get_all_buffer_data(), inserted)
    assert torch.equal(inserted[OBS][60:], torch.cat([one["data"][OBS] for one in coming]))
    resumed.close()


def test_slices_of_different_collectors_are_not_mixed() -> None:
    scheme = dqn(2, env=lambda: Counter(length=100))
    train(scheme, 200)
    counts = scheme.storage.get_all_buffer_data()[OBS][:, 0, 0].numpy()
    scheme.close()
    starts = counts.reshape(-1, 10)[:, 0]
    assert np.array_equal(counts.reshape(-1, 10), starts[:, None] + np.arange(10)), "slices stay whole"
