"""Networks in a script that has changed torch's default dtype."""

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.device import DefaultDtypeError
from tests.support.compositions import dqn_scheme
from tests.support.hogwild import a3c
from tests.support.toys import Counter

CHANGED = (torch.float64, torch.float16)


@pytest.fixture(autouse=True)
def default_afterwards() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


def asynchronous() -> prl.Scheme:
    return dqn_scheme(envs=prl.VecEnv.create_factory("CartPole-v1", 2, mode="async"))


def overlapped() -> prl.Scheme:
    return dqn_scheme(collection=prl.Overlapped(20))


def hogwild() -> prl.Scheme:
    return prl.HogwildScheme(**a3c(), processes=2)


@pytest.mark.parametrize("dtype", CHANGED, ids=str)
@pytest.mark.parametrize("make", [asynchronous, overlapped, hogwild])
def test_a_scheme_is_refused_with_the_way_out_before_a_process_is_started(
    make: Callable[[], prl.Scheme], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", lambda self: started.append(self))
    torch.set_default_dtype(dtype)
    with pytest.raises(DefaultDtypeError, match=rf"float32.*{dtype}; call torch\.set_default_dtype\(torch\.float32\)"):
        make()
    assert not started


def test_a_trained_policy_is_refused_with_the_way_out_and_acts_when_it_is_followed(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 20, tmp_path / "run") as learner:
        learner.run()
    torch.set_default_dtype(torch.float64)
    with pytest.raises(
        DefaultDtypeError, match=r"^OffPolicyActor: .*call torch\.set_default_dtype\(torch\.float32\) before"
    ):
        prl.load_policy(tmp_path / "run")
    torch.set_default_dtype(torch.float32)
    prl.load_policy(tmp_path / "run")


class SimulatorInFloat64(Counter):
    """Its package changes the default dtype when it is imported."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        torch.set_default_dtype(torch.float64)


def test_an_environment_that_changes_it_is_refused_before_any_step() -> None:
    with pytest.raises(
        DefaultDtypeError, match=r"networks compute in float32, but torch's default dtype is torch\.float64"
    ):
        dqn_scheme(envs=prl.VecEnv.create_factory(SimulatorInFloat64))
