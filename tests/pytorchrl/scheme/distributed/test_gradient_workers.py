"""Gradient workers collect and compute gradients, which the process of the learner applies."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.toys import Counter, number_of_copy
from tests.support.training import copied_at, saved_and_loaded

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def ppo(num_gradient_workers: int, env: Any = "CartPole-v1", **changes: Any) -> Any:
    parts: dict[str, Any] = {
        "algo_factory": prl.PPO.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0),
            clip_param=prl.LinearSchedule(0.2, 0.0),
            num_epochs=2,
            num_mini_batch=2,
            test_every=0,
        ),
        "actor_factory": prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.GAEBuffer.create_factory(size=16),
        "train_envs_factory": prl.VecEnv.create_factory(env, num_envs=2),
    }
    if not num_gradient_workers:
        return prl.Scheme(**parts)
    return prl.RayScheme(**parts, num_gradient_workers=num_gradient_workers, **changes)


def a2c(**changes: Any) -> prl.RayScheme:
    return prl.RayScheme(
        algo_factory=prl.A2C.create_factory(test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        storage_factory=prl.VanillaOnPolicyBuffer.create_factory(size=5),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    )


def dqn(**changes: Any) -> prl.RayScheme:
    return prl.RayScheme(
        algo_factory=prl.DQN.create_factory(
            start_steps=16, update_every=8, mini_batch_size=8, target_update_interval=3, polyak=0.0, test_every=0
        ),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=prl.PERBuffer.create_factory(size=500, alpha=0.6, beta=0.4),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    )


def process_of(worker: Any) -> int:
    return os.getpid()


class Waits(Counter):
    """The third copy made with one folder takes long steps after five; the others wait for the first long step."""

    def __init__(self, folder: Path) -> None:
        super().__init__(length=1_000)
        self.has_begun = folder / "long steps"
        self.waits = number_of_copy(folder) == 2

    def step(self, action: Any) -> Any:
        if self.waits and self.count >= 5:
            self.has_begun.touch()
            time.sleep(1)
        deadline = time.monotonic() + 60
        while self.count >= 6 and not self.has_begun.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return super().step(action)


def test_one_synchronous_worker_trains_exactly_like_one_process(tmp_path: Path) -> None:
    trained = []
    for number in (1, 0):
        learner = prl.Learner(ppo(number), target_steps=128, log_dir=tmp_path / str(number))
        learner.run()
        state = saved_and_loaded(learner.scheme.algorithm.state_dict())
        trained.append({name: state[name] for name in ("actor", "training")})
        learner.close()
    assert_equal(*trained)


def test_the_mean_of_the_gradients_of_synchronous_workers_is_applied() -> None:
    scheme = ppo(2)
    scheme.set_progress(0, 1_000)
    _, due = scheme.collect(1_000)
    assert (due, scheme.steps) == (1, 2 * 2 * 16)
    remote = scheme._remote
    applied, batches = [], []
    take, find = scheme.algorithm.apply_gradients, remote.workers.all_of
    scheme.algorithm.apply_gradients = lambda gradients: (applied.append(dict(gradients)), take(gradients))

    def found(*arguments: Any) -> Any:
        batches.append(find(*arguments))
        return batches[-1]

    remote.workers.all_of = found
    updates = list(scheme.update())
    scheme.close()
    assert len(updates) == len(applied) == 4, "two epochs of two batches"
    assert {"policy_loss", "train/workers_replaced"} <= updates[0].keys()
    for gradients, of_workers in zip(applied, batches, strict=False):
        assert len(of_workers) == 2
        for name, gradient in gradients.items():
            mean = sum(one.of[name].astype(np.float64) for one in of_workers) / 2
            np.testing.assert_allclose(gradient.numpy(), mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("compose", [lambda: ppo(2), lambda: dqn(num_gradient_workers=2)], ids=["ppo", "dqn"])
def test_a_resumed_run_equals_the_uninterrupted_run(compose: Any, tmp_path: Path) -> None:
    whole = prl.Learner(compose(), target_steps=256, log_dir=tmp_path / "whole")
    folder = copied_at(whole, 120, tmp_path / "halves")
    state = saved_and_loaded(whole.scheme.state_dict())
    whole.close()
    learner = prl.Learner.resume(folder)
    assert 120 <= learner.scheme.steps < 256
    assert learner.run()
    assert_equal(saved_and_loaded(learner.scheme.state_dict()), state)
    learner.close()


def test_asynchronous_gradients_are_applied_singly_and_a_killed_worker_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheme = a2c(num_gradient_workers=2, communication="asynchronous")
    learner = prl.Learner(scheme, target_steps=600, log_dir=tmp_path, log_every=600)
    while scheme.steps < 100:
        learner.step()
    os.kill(scheme.ask_worker(0, process_of), signal.SIGKILL)
    assert learner.run()
    assert "gradient worker 0 died and was replaced" in capsys.readouterr().out
    metrics = learner.get_metrics()
    assert metrics["train/policy_lag"] >= 0
    assert scheme.algorithm.updates * 5 == scheme.steps
    learner.close()
    learner = prl.Learner.resume(tmp_path, target_steps=700)
    assert learner.run()
    assert learner.scheme.algorithm.updates * 5 == learner.scheme.steps
    counted = learner.scheme.actor.normalization
    assert counted is not None
    assert counted.parts[0].count == learner.scheme.steps
    learner.close()


def test_a_slow_synchronous_worker_is_preempted(tmp_path: Path) -> None:
    scheme = ppo(2, env=lambda: Waits(tmp_path), preemption=0.5)
    scheme.set_progress(0, 1_000)
    for _ in range(2):
        scheme.collect(1_000)
        assert len(list(scheme.update())) == 4
    fast, slow = 2 * 16 * 2, scheme.steps - 2 * 16 * 2
    scheme.close()
    assert 10 <= slow < fast
