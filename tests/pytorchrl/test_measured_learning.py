"""Records of a run say how well values, gradients and policies learn, and measuring them changes nothing."""

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import RET, VAL
from tests.support.comparison import assert_equal
from tests.support.lessons import BODY, CASES, Case, Wandering, collect, make_scheme

each_algorithm = pytest.mark.parametrize("case", {case.name: case for case in CASES}.values(), ids=str)
BOX = spaces.Box(-2, 2, (3,), np.float32)


def wandering(**hyper_parameters: Any) -> prl.Scheme:
    """A scheme of PPO that is about to learn from a rollout in one batch."""
    scheme = prl.Scheme(
        prl.PPO.create_factory(**{"num_epochs": 1, "num_mini_batch": 1, "test_every": 0, **hyper_parameters}),
        prl.OnPolicyActor.create_factory(initial_log_std=-0.5, **BODY),
        prl.GAEBuffer.create_factory(size=32),
        prl.VecEnv.create_factory(Wandering, 2, env_kwargs={"actions": BOX}),
        seed=1,
    )
    collect(scheme)
    return scheme


def measured(scheme: prl.Scheme) -> dict[str, float]:
    metrics, *_ = scheme.update(measured=True)
    return {name: float(value) for name, value in metrics.items()}


def test_explained_variance_is_of_the_rollouts_returns_and_values() -> None:
    with wandering() as scheme:
        scheme.storage.before_gradients()
        data = scheme.storage.get_all_buffer_data()
        returns, values = (data[key].numpy().astype(np.float64).ravel() for key in (RET, VAL))
        found = measured(scheme)
        expected = 1 - np.var(returns - values) / np.var(returns)
        assert found["learning/explained_variance"] == pytest.approx(expected, rel=1e-5)
        assert found["learning/mean_value"] == pytest.approx(values.mean(), rel=1e-5)


@pytest.mark.parametrize("optimizer", [prl.Adam(), prl.RMSprop(), prl.TorchOptimizer("Adagrad")], ids=str)
@pytest.mark.parametrize("max_grad_norm", [None, 1e-3])
def test_the_norm_of_gradients_is_measured_before_they_are_clipped(max_grad_norm: float | None, optimizer: Any) -> None:
    with wandering(max_grad_norm=max_grad_norm, optimizer=optimizer) as scheme:
        scheme.storage.before_gradients()
        (batch,) = scheme.storage.generate_batches(1)
        gradients, _ = scheme.algorithm.compute_gradients(batch)
        expected = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
        assert measured(scheme)["learning/gradient_norm"] == pytest.approx(expected, rel=1e-4)


def test_learning_rate_and_deviation_are_the_present_ones() -> None:
    with wandering(lr=prl.LinearSchedule(1e-3, 0.0)) as scheme:
        scheme.set_progress(50, 100)
        found = measured(scheme)
        assert found["learning/learning_rate"] == pytest.approx(5e-4)
        assert found["learning/policy_deviation"] == pytest.approx(math.exp(-0.5), rel=1e-2)


@pytest.mark.parametrize(("reach", "share"), [(1e9, 0.0), (0.0, 1.0)])
def test_the_share_of_clipped_values_is_of_those_that_moved_further_than_the_reach(reach: float, share: float) -> None:
    with wandering(use_clipped_value_loss=True, value_clip_param=reach, lr=0.1, num_epochs=2) as scheme:
        _, second = scheme.update()
        assert float(second["value_clip_fraction"]) == share


@pytest.mark.quick_share(0.25)
@each_algorithm
def test_measuring_an_update_changes_nothing_that_it_learns(case: Case) -> None:
    with make_scheme(case) as scheme:
        collect(scheme)
        metrics = list(scheme.update(measured=True))
        # Some algorithms spend their first phase on models, others stop before a step.
        norms = [float(value) for name, value in metrics[0].items() if name.startswith("learning/gradient_norm")]
        assert all(math.isfinite(norm) for norm in norms)
    with make_scheme(case) as other:
        collect(other)
        list(other.update())
        assert_equal(other.algorithm.state_dict(), scheme.algorithm.state_dict())


@pytest.mark.parametrize("delay", [2, 3])
def test_the_gradients_of_a_delayed_policy_are_measured_once_between_records(delay: int, tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.TD3.create_factory(policy_delay=delay, update_every=1, mini_batch_size=8, start_steps=10, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(lambda: gym.make("Pendulum-v1")),
        seed=1,
    )
    with prl.Learner(scheme, target_steps=96, log_dir=tmp_path / "run", log_every=12) as learner:
        learner.run()
    records = [each for each in prl.read_metrics(tmp_path / "run" / "metrics.jsonl") if "losses/policy_loss" in each]
    norms = [record["learning/gradient_norm/policy"] for record in records[1:]]
    assert len(norms) >= 6
    assert len(set(norms)) == len(norms)


def test_each_record_of_a_run_has_them(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.A2C.create_factory(test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=5),
        prl.VecEnv.create_factory(lambda: gym.make("CartPole-v1"), 2),
        seed=1,
    )
    with prl.Learner(scheme, target_steps=100, log_dir=tmp_path / "run", log_every=20) as learner:
        learner.run()
    records = [each for each in prl.read_metrics(tmp_path / "run" / "metrics.jsonl") if "losses/entropy" in each]
    assert len(records) == 5
    for record in records:
        assert record["learning/explained_variance"] <= 1
        assert record["learning/gradient_norm"] > 0
        assert record["learning/learning_rate"] == pytest.approx(7e-4)
