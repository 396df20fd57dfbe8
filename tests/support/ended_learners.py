"""Learners in separate processes, which end in several ways and must leave no process behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SIGNALS = {"killed": signal.SIGKILL, "ctrl_c": signal.SIGINT, "terminated": signal.SIGTERM}


def output_of_ended(script: str, arguments: Sequence[str], ending: str) -> str:
    """Let a script train until it is ended, and check that the two processes it started end, too.

    Args:
        script: prints the ids of its two processes in a line when it trains.
        arguments: of the script.
        ending: a key of :data:`SIGNALS`; with another one, the script ends by itself.

    Returns:
        What it prints afterwards.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as process:
        assert process.stdout is not None
        # Lines of progress may come before.
        numbers = (line for line in process.stdout if line.replace(" ", "").strip().isdecimal())
        pids = [int(pid) for pid in next(numbers).split()]
        if ending == "killed":
            process.kill()
        elif ending in SIGNALS:
            # Like a terminal, which sends the signal to the other processes, too.
            os.killpg(process.pid, SIGNALS[ending])
        printed = process.stdout.read()
        assert process.wait(60) == (-signal.SIGKILL if ending == "killed" else 0)
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return printed


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended, and only its exit code has not been read yet.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
