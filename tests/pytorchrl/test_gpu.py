"""On a GPU, runs train, save and resume, and batches are on the device of the algorithm."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from tests.support.compositions import dqn_scheme, iqn_scheme, ppo_scheme, sac_scheme

pytestmark = pytest.mark.gpu

SCHEMES = {"dqn": dqn_scheme, "iqn": iqn_scheme, "sac": sac_scheme, "ppo": ppo_scheme}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_on_the_gpu_trains_saves_and_resumes(name: str, tmp_path: Path) -> None:
    learner = prl.Learner(SCHEMES[name](device="cuda"), 300, tmp_path / "run")
    assert learner.run()
    learner.close()
    parameters = [p.detach().clone() for p in learner.scheme.actor.parameters()]
    assert all(p.device.type == "cuda" for p in parameters)
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=400)
    assert all(torch.equal(*pair) for pair in zip(parameters, resumed.scheme.actor.parameters(), strict=True))
    assert resumed.run()
    resumed.close()


@pytest.mark.parametrize("name", ["dqn", "iqn", "sac"])
def test_an_update_with_priorities_does_not_synchronise_with_the_gpu(name: str) -> None:
    storage = prl.PERBuffer.create_factory(150, alpha=0.6, beta=0.4, epsilon=0.01)
    scheme = SCHEMES[name](device="cuda", storage=storage)
    scheme.collect(60)
    for number, batch in enumerate(scheme.storage.generate_batches(4, 8)):
        torch.cuda.synchronize()
        # The first update may synchronise: kernels are loaded, memory is pinned.
        torch.cuda.set_sync_debug_mode("error" if number else "default")
        try:
            scheme.storage.after_gradients(batch, scheme.algorithm.update(batch).info)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    scheme.close()


@pytest.mark.parametrize("name", ["dqn", "sac"])
@pytest.mark.parametrize(
    "way", [{}, {"prefetch": 2}, {"keep_on_device": True}, {"prefetch": 2, "keep_on_device": True}]
)
def test_batches_are_on_the_gpu(name: str, way: dict[str, Any]) -> None:
    scheme = SCHEMES[name](device="cuda", storage=prl.ReplayBuffer.create_factory(150, **way))
    scheme.collect(60)
    for info in scheme.update():
        assert info
    (batch,) = scheme.storage.generate_batches(1, 8)
    assert {leaf.device.type for leaf in batch.values()} == {"cuda"}
    scheme.close()
