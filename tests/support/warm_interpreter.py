"""Runs commands of Python in processes in which the toolkit is already imported.

An interpreter takes four seconds of processor time to import torch, numba and the toolkit, which is most of the time of
a short example. One process imports them once, with warnings as errors, and is forked for every command: changes by a
command stay in its own process, and it imports the modules that it uses by name, as in a new interpreter.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

seconds_of_commands = 0.0
"""Processor time of all commands so far: the operating system counts it for the process that forks."""
_server: "subprocess.Popen[str] | None" = None


def run(
    arguments: Sequence[str | Path], folder: Path, *, strict: bool = False, timeout: int = 300
) -> "subprocess.CompletedProcess[str]":
    """Run ``python *arguments`` in a folder, as ``subprocess.run`` does; ``strict`` is ``-W error``."""
    global seconds_of_commands
    server = _started()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "stdout"), Path(kept, "stderr")
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder),
            "environment": dict(os.environ),
            "strict": strict,
            "timeout": timeout,
            "stdout": str(out),
            "stderr": str(err),
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        seconds_of_commands += answer["seconds"]
        return subprocess.CompletedProcess(
            ["python", *request["arguments"]], answer["returncode"], out.read_text("utf-8"), err.read_text("utf-8")
        )


def _started() -> "subprocess.Popen[str]":
    global _server
    if _server is None:
        command = [sys.executable, "-W", "error", str(Path(__file__).with_name("warm_server.py"))]
        _server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(_stop, _server)
    return _server


def _stop(server: "subprocess.Popen[str]") -> None:
    server.communicate()
