"""A run says that it will learn nothing for long, or at all."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments import notices


def learner(folder: Path, target_steps: int, storage: Any = None, **settings: Any) -> prl.Learner:
    scheme = prl.Scheme(
        prl.DQN.create_factory(mini_batch_size=4, test_every=0, **settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        storage or prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )
    return prl.Learner(scheme, target_steps, folder, log_every=10)


def test_a_long_wait_for_the_first_update_is_told_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with learner(tmp_path / "run", 80, start_steps=60) as run:
        run.print_info()
        assert "0 of 80 steps | first update after 60" in capsys.readouterr().out
        run.run(progress=False)
        told = (
            "DQN: the first update is made after start_steps=60 of 80 steps; until then, only the storage is filled.\n"
        )
        assert capsys.readouterr().out == told
        run.print_info()
    assert "first update" not in capsys.readouterr().out


def test_a_run_without_any_update_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with learner(tmp_path / "run", 30, start_steps=30) as run:
        run.run()
    assert "DQN: no update will be made in this run of 30 steps, as start_steps=30 come" in capsys.readouterr().out


@pytest.mark.parametrize("limited", [False, True])
def test_an_ordinary_wait_and_one_that_a_rate_limit_replaces_are_not_told(
    limited: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1.0)) if limited else None
    with learner(tmp_path / "run", 80, storage, start_steps=70 if limited else 50) as run:
        run.run(progress=False)
    assert capsys.readouterr().out == ""


def test_a_resumed_run_tells_it_until_the_first_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with learner(tmp_path / "run", 40, start_steps=60) as run:
        run.run()
    capsys.readouterr()
    for target, told in ((100, True), (120, False)):
        with prl.Learner.resume(tmp_path / "run", target_steps=target) as run:
            run.run()
        assert ("the first update is made after start_steps=60" in capsys.readouterr().out) is told


def test_several_threads_for_small_networks_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notices._tell_once.cache_clear()
    threads = torch.get_num_threads()
    try:
        for name, number in (("one", 1), ("two", 2), ("again", 2)):
            torch.set_num_threads(number)
            with learner(tmp_path / name, 20, start_steps=10) as run:
                run.run()
            is_told = "torch computes with 2 threads; networks as small as these" in capsys.readouterr().out
            assert is_told == (name == "two")
    finally:
        torch.set_num_threads(threads)
        notices._tell_once.cache_clear()
