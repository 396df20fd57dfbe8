"""Two simulated machines: network namespaces joined by two virtual interfaces, which can be disconnected."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def why_not() -> str | None:
    """The reason why network namespaces cannot be created here; None if they can."""
    if shutil.which("ip") is None:
        return "there is no command ip, of iproute2"
    name = f"try{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


class Machines:
    """Two machines, numbered 0 and 1, which are connected until they are cut."""

    def __init__(self) -> None:
        self._names = [f"prl{os.getpid()}{letter}" for letter in "ab"]
        self._interfaces = [f"prl{os.getpid() % 10_000}{letter}" for letter in "ab"]
        self.addresses = ["10.231.0.1", "10.231.0.2"]
        self._processes: list[subprocess.Popen[str]] = []

    def make(self) -> None:
        """Create both machines and the connection between them."""
        for name in self._names:
            _ip("netns", "add", name)
        one, other = self._interfaces
        _ip("link", "add", one, "netns", self._names[0], "type", "veth", "peer", other, "netns", self._names[1])
        for name, interface, address in zip(self._names, self._interfaces, self.addresses, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            for each in ("lo", interface):
                _ip("-n", name, "link", "set", each, "up")

    def cut(self) -> None:
        """Cut the connection."""
        _ip("-n", self._names[1], "link", "set", self._interfaces[1], "down")

    def join(self) -> None:
        """Restore the connection."""
        _ip("-n", self._names[1], "link", "set", self._interfaces[1], "up")

    def start(self, machine: int, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a command on one machine; the command ends with the machines."""
        process: subprocess.Popen[str] = subprocess.Popen(
            ["ip", "netns", "exec", self._names[machine], *command],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End all processes of the machines, and delete the machines."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        for name in self._names:
            for process_id in _ip("netns", "pids", name).split():
                subprocess.run(["kill", "-9", process_id], check=False, capture_output=True)
            _ip("netns", "del", name)


@contextmanager
def two_machines() -> Iterator[Machines]:
    """Two machines, until the block ends."""
    machines = Machines()
    try:
        machines.make()
        yield machines
    finally:
        machines.close()


def _ip(*arguments: str) -> str:
    done: Any = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True)
    return str(done.stdout)
