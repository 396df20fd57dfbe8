"""Environments of Ray's workers that draw from NumPy's, Python's and torch's global generators."""

import os
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.global_numbers import DrawsGlobally, assert_seeded_apart, drawn_by_processes
from tests.support.training import train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


@pytest.mark.parametrize("workers", [{"num_collectors": 2}, {"num_gradient_workers": 2}], ids=str)
def test_each_worker_draws_numbers_of_its_own_that_follow_from_the_seed_of_the_run(
    workers: dict[str, Any], tmp_path: Path
) -> None:
    runs = {}
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        folder = tmp_path / name
        folder.mkdir()
        scheme = prl.RayScheme(
            prl.PPO.create_factory(test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.GAEBuffer.create_factory(size=8),
            prl.VecEnv.create_factory(DrawsGlobally, env_kwargs={"folder": str(folder)}),
            seed=seed,
            **workers,
        )
        train(scheme, 32).close()
        runs[name] = drawn_by_processes(folder, but=os.getpid())
    assert_seeded_apart(runs, processes=2)
