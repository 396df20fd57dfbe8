"""Environments in processes of their own that end, hang, or fail in unusual ways."""

import json
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs.copies import processes
from tests.support.toys import Counter

NO_ACTIONS = np.zeros((2, 1), np.int64)


class HoldingError(Exception):
    """Cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class Fails(Counter):
    """Fails in its third step."""

    def __init__(self, how: str) -> None:
        super().__init__(length=10)
        self.how = how

    def step(self, action: Any) -> Any:
        if self.count == 2:
            match self.how:
                case "ends":
                    os._exit(3)
                case "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "hangs":
                    time.sleep(1000)
                case "lock":
                    raise HoldingError("of a lock")
                case "arguments":
                    json.loads("{x")
        return super().step(action)


def two_steps_of(how: str) -> prl.VecEnv:
    envs = prl.VecEnv(Fails, num_envs=2, mode="async", env_kwargs={"how": how})
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(NO_ACTIONS)
    return envs


@pytest.mark.parametrize(
    ("how", "message"),
    [("ends", "ended with exit code 3"), ("killed", "was killed by SIGKILL, perhaps because it ran out of memory")],
)
def test_a_process_that_ends_is_named_in_the_error_and_the_others_are_closed(how: str, message: str) -> None:
    with two_steps_of(how) as envs, pytest.raises(RuntimeError, match=rf"process of environment [01] .* {message}"):
        envs.step(NO_ACTIONS)


@pytest.mark.filterwarnings("ignore:.*(Received the following|Traceback|Raising the last):UserWarning")
@pytest.mark.parametrize(
    ("how", "message"), [("lock", "HoldingError: of a lock"), ("arguments", "JSONDecodeError: Expecting property name")]
)
def test_an_exception_that_cannot_be_sent_between_processes_is_raised_by_its_name(how: str, message: str) -> None:
    with two_steps_of(how) as envs, pytest.raises(RuntimeError, match=message):
        envs.step(NO_ACTIONS)


def test_environments_are_closed_after_an_interruption_of_a_step_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "SECONDS_TO_END", 0.2)

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with two_steps_of("hangs") as envs:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                envs.step(NO_ACTIONS)
            signal.setitimer(signal.ITIMER_REAL, 20)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)
