"""PPO learns from V-trace rollouts as from other rollouts."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import DONE, LOGP, RET, VAL


@pytest.mark.long
@pytest.mark.parametrize("memory", [None, "gru"])
def test_ppo_learns_cartpole_from_v_trace(memory: Any, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    scheme = prl.Scheme(
        prl.PPO.create_factory(lr=1e-3, num_epochs=6, num_mini_batch=4, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(32,), memory=memory, memory_size=32),
        prl.VTraceBuffer.create_factory(size=64, trace_lambda=0.95, sequence_length=None if memory is None else 16),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=8),
        seed=1,
    )
    learner = prl.Learner(scheme, target_steps=20_000 if memory is None else 12_000, log_dir=tmp_path / "run")
    learner.run()
    assert scheme.evaluate(10).mean_return > (150 if memory is None else 60)
    scheme.close()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("memory", [None, "gru", "lstm"])
@pytest.mark.parametrize("shared_body", [False, True])
def test_before_the_first_update_v_trace_returns_equal_those_of_gae(env: str, memory: Any, shared_body: bool) -> None:
    torch.set_num_threads(1)
    rollouts = []
    for storage in (
        prl.VTraceBuffer.create_factory(size=80, trace_lambda=0.9),
        prl.GAEBuffer.create_factory(size=80, gae_lambda=0.9),
    ):
        scheme = prl.Scheme(
            prl.PPO.create_factory(num_mini_batch=3),
            prl.OnPolicyActor.create_factory(
                hidden_sizes=(16,), memory=memory, memory_size=16, shared_body=shared_body
            ),
            storage,
            prl.VecEnv.create_factory(env, num_envs=3, env_kwargs={"max_episode_steps": 18}),
            seed=3,
        )
        scheme.collect(240)
        scheme.storage.before_gradients()
        rollouts.append(scheme.storage.get_all_buffer_data())
        scheme.close()
    corrected, plain = rollouts
    assert plain[DONE][1:].any(), "episodes end within the rollout"
    assert torch.equal(corrected[LOGP], plain[LOGP])
    assert torch.equal(corrected[VAL], plain[VAL])
    torch.testing.assert_close(corrected[RET], plain[RET], rtol=1e-4, atol=1e-4)
