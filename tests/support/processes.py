"""Processes that a test starts, waits for and stops."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any


def wait_for(happened: Callable[[], bool], process: "subprocess.Popen[Any]") -> None:
    """Wait until something has happened, unless the process ends before."""
    deadline = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, f"the process ended with {process.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def suspend(process: "subprocess.Popen[Any]") -> None:
    """Suspend a process until it receives SIGCONT."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
