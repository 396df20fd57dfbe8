"""A forked process that reports numbers and is killed at a random instant."""

import mmap
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np


class SharedNumbers:
    """Numbers that a process shares with its forked child; all are 0 at first.

    Args:
        names: names of the numbers.
    """

    def __init__(self, *names: str) -> None:
        self._places = {name: 8 * number for number, name in enumerate(names)}
        self._memory = mmap.mmap(-1, 8 * len(names))

    def __getitem__(self, name: str) -> int:
        place = self._places[name]
        return int.from_bytes(self._memory[place : place + 8], "little")

    def __setitem__(self, name: str, number: int) -> None:
        place = self._places[name]
        self._memory[place : place + 8] = number.to_bytes(8, "little")


def live_until_killed(
    live: Callable[[], None], is_due: Callable[[], Any], longest_seconds: float, random: np.random.Generator
) -> None:
    """Run ``live``, which must not return, in a forked process, and kill it some time after ``is_due`` is true."""
    child = os.fork()
    if child == 0:
        try:
            live()
        finally:
            os._exit(1)
    while not is_due() and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.0005)
    time.sleep(longest_seconds * random.random() ** 2)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the process ended by itself"
