"""Environments in processes of their own that end, hang, or fail in unusual ways."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs import worker_processes
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


def test_an_exception_that_cannot_be_sent_keeps_its_notes() -> None:
    error = HoldingError("of a lock")
    error.add_note("In the environment of seed 3.")
    sent = worker_processes.sendable(error)
    assert str(sent) == "HoldingError: of a lock"
    assert sent.__notes__ == ["In the environment of seed 3."]


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


class Simulator(Counter):
    """Runs a process of its own, as simulators do that are written for one environment."""

    def __init__(self) -> None:
        super().__init__(length=10)
        ours, theirs = multiprocessing.Pipe()
        self.pipe = ours
        self.process = multiprocessing.get_context("fork").Process(target=answer, args=(theirs,))
        self.process.start()

    def step(self, action: Any) -> Any:
        self.pipe.send(int(action))
        assert self.pipe.recv() == int(action)
        return super().step(action)

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()


def answer(pipe: Any) -> None:
    while (message := pipe.recv()) is not None:
        pipe.send(message)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_environments_may_start_processes_of_their_own() -> None:
    with prl.VecEnv(Simulator, num_envs=2, mode="async") as envs:
        envs.reset(seed=0)
        assert envs.step(NO_ACTIONS).observation[:, 0].tolist() == [1, 1]
    assert not multiprocessing.active_children()


def test_an_environment_that_does_not_return_is_named_in_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SECONDS_TO_END", 0.2)
    with two_steps_of("hangs") as envs:
        monkeypatch.setattr(worker_processes, "SECONDS_BEFORE_WARNING", 0.1)
        # Warnings are errors in tests: it would wait on.
        with pytest.raises(
            RuntimeWarning, match=r"environment 0 \(process \d+\) has not returned from step\(\) for 0 s"
        ):
            envs.step(NO_ACTIONS)


SCRIPT = """
import sys, numpy as np, pytorchrl as prl
envs = prl.VecEnv("CartPole-v1", num_envs=3, mode="async")
envs.reset(seed=0)
print("begins", flush=True)
while sys.argv[1] == "killed":
    envs.step(np.zeros((3, 1), np.int64))
"""


@pytest.mark.long
@pytest.mark.parametrize("ending", ["killed", "ended without close()"])
def test_processes_of_a_learner_that_has_ended_end_without_a_word(ending: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begins\n"
        if ending == "killed":
            process.kill()
        # Until the last process that has inherited it has ended.
        assert process.stderr.read() == ""
    assert process.returncode == (-signal.SIGKILL if ending == "killed" else 0)
