"""Environments that hang in other processes: what waits for them says so."""

import time
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.envs import worker_processes
from pytorchrl.agent.envs.copies import processes as copies
from pytorchrl.scheme.hogwild import processes as hogwild
from pytorchrl.scheme.overlap import forked_process, process
from tests.support.compositions import dqn_scheme
from tests.support.hogwild import a3c
from tests.support.toys import Counter
from tests.support.training import train


class Hangs(Counter):
    """Does not return from its third step."""

    def step(self, action: Any) -> Any:
        if self.count == 2:
            time.sleep(1_000)
        return super().step(action)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "SECONDS_BEFORE_WARNING", 0.2)
    monkeypatch.setattr(copies, "SECONDS_TO_END", 0.1)
    monkeypatch.setattr(forked_process, "_SECONDS_TO_END", 0.1)
    for module in (forked_process, process, hogwild):
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.05)


def hanging(num_envs: int) -> Any:
    return prl.VecEnv.create_factory(Hangs, num_envs, env_kwargs={"length": 9})


# An error ends the waiting. On a busy machine, what does not hang is waited for as long, too.


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "error:.*has not made step 2:RuntimeWarning")
def test_a_collector_process_that_makes_no_step_is_named_with_its_environments() -> None:
    scheme = dqn_scheme(
        envs=hanging(4), collection=prl.Overlapped(20, processes=2), algorithm={"test_every": 0, "start_steps": 8}
    )
    message = r"collector process 0 \(process \d+\), which steps the environments 0 to 1, has not made step 2 for"
    with scheme, pytest.raises(RuntimeWarning, match=message):
        train(scheme, 40)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "error:.*has made no report:RuntimeWarning")
def test_hogwild_processes_that_make_no_report_are_named() -> None:
    scheme = prl.HogwildScheme(**a3c(train_envs_factory=hanging(1)), processes=2)
    with scheme, pytest.raises(RuntimeWarning, match=r"Hogwild process 0 \(process \d+\).* has made no report"):
        train(scheme, 40)
