"""PPO learns from V-trace rollouts as from any other."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl


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
