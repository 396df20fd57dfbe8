"""Algorithms learn from rollouts with lambda returns and average-reward advantages, and resume exactly."""

from typing import Any

import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.training import saved_and_loaded, train

FEW_BATCHES = {"num_mini_batch": 2}
COMPOSITIONS: dict[str, Any] = {
    "q-lambda": (
        prl.PQN,
        {"explorer": prl.EpsilonGreedy(0.1), "num_mini_batch": 2},
        prl.LambdaReturnBuffer,
        {"trace_lambda": 0.6},
    ),
    "ppo with lambda returns": (prl.PPO, FEW_BATCHES, prl.LambdaReturnBuffer, {}),
    "ppo without a discount": (prl.PPO, FEW_BATCHES, prl.AverageRewardBuffer, {"average_step_size": 0.2}),
    "options with lambda returns": (prl.OptionCritic, FEW_BATCHES, prl.LambdaReturnBuffer, {}),
    "a2c without a discount": (prl.A2C, {}, prl.AverageRewardBuffer, {}),
}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_resumed_run_equals_the_uninterrupted_run(name: str, memory: Any) -> None:
    algorithm, settings, storage, own = COMPOSITIONS[name]

    def made() -> prl.Scheme:
        return prl.Scheme(
            algorithm.create_factory(test_every=0, **settings),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
            storage.create_factory(size=8, **own),
            prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        )

    whole, first, second = made(), made(), made()
    train(whole, 96)
    train(first, 56)
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    train(second, 96)
    assert_equal(second.state_dict(), whole.state_dict())
    assert whole.algorithm.updates > 0
    for scheme in (whole, first, second):
        scheme.close()


def test_retrace_needs_an_actor_with_action_values() -> None:
    with pytest.raises(
        prl.CompositionError, match="RetraceBuffer computes targets from action values, which the actor of"
    ):
        prl.Scheme(
            prl.PPO.create_factory(),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.RetraceBuffer.create_factory(size=8),
            prl.VecEnv.create_factory("CartPole-v1"),
        )
