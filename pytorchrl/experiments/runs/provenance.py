"""Provenance of a run: code, command, machine, packages."""

import functools
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pytorchrl.version import VERSION

_PACKAGES = ("torch", "gymnasium", "numpy", "numba", "zarr")
_PACKAGES_OF_ENVIRONMENTS = ("mujoco", "gymnasium-robotics", "ale-py", "minatar", "envpool")
"""Recorded where they are installed."""
_ENVIRONMENT = ("CUDA", "CUBLAS", "MKL", "MUJOCO", "NUMBA", "OMP", "OPENBLAS", "PYTHONHASHSEED", "PYTORCH", "TORCH")
"""Prefixes of environment variables that a run may depend on."""
_SECRETS = ("KEY", "SECRET", "TOKEN", "PASSWORD")
_ID_DIGITS = 12
_LARGEST_DIFF_BYTES = 10_000_000
_NO_COMMIT = "(initial)"
"""Git's name for the commit of a repository without commits."""


@dataclass(frozen=True)
class Code:
    """Git state of the working directory; empty if it is not a repository or git is not installed."""

    commit: str | None = None
    has_changes: bool = False
    """Whether files are changed, or untracked."""
    diff: str | None = None
    """Changes since the commit; None if there are none, or they are too large."""


def code_of_the_directory() -> Code:
    """Return the git state of the working directory."""
    status = _git("status", "--porcelain=v2", "--branch")
    if status is None:
        return Code()
    lines = status.splitlines()
    headers = dict(line.removeprefix("# ").split(" ", 1) for line in lines if line.startswith("# "))
    files = [line for line in lines if not line.startswith("# ")]
    commit = headers.get("branch.oid")
    commit = None if commit == _NO_COMMIT else commit
    # A call of git takes milliseconds, and untracked files are not in the diff.
    is_changed = commit is not None and any(not line.startswith("? ") for line in files)
    diff = (_git("diff", "HEAD", "--no-color", "--no-ext-diff") if is_changed else None) or None
    if diff is not None and len(diff.encode(errors="replace")) > _LARGEST_DIFF_BYTES:
        diff = None
    return Code(commit, bool(files), diff)


def experiment_id(config: Mapping[str, Any], code: Code) -> str:
    """Return a short hash of the code and the arguments of a run.

    Args:
        config: the composition and the learner's arguments; ``log_to`` is ignored.
        code: git state of the run.
    """
    arguments = {name: value for name, value in config.items() if name != "log_to"}
    text = json.dumps([[code.commit or VERSION, code.diff], arguments], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_ID_DIGITS]


def provenance(config: Mapping[str, Any], code: Code) -> dict[str, Any]:
    """Return the provenance of a run as plain data."""
    return {
        "experiment": experiment_id(config, code),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        },
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_ENVIRONMENT) and not any(secret in name for secret in _SECRETS)
        },
        "packages": {"pytorchrl": VERSION}
        | {package: _version(package) for package in _PACKAGES}
        | {package: version for package in _PACKAGES_OF_ENVIRONMENTS if (version := _version(package)) is not None},
        "git_commit": code.commit,
        "git_uncommitted_changes": code.has_changes,
    }


def command_of(arguments: Sequence[Any]) -> str:
    """Return the command that began a run as a user types it, from the arguments of its process; "" without any."""
    program, *others = [*map(str, arguments)] or [""]
    if _PARENT in others:
        # A trial of a sweep, whose process has ended.
        position = others.index(_PARENT)
        others = [*others[:position], *others[position + 2 :]]
    if Path(program).parts[-2:] == ("pytorchrl", "__main__.py"):
        return shlex.join(["python", "-m", "pytorchrl", *others])
    return shlex.join([*(["python"] if program.endswith(".py") else []), program, *others]) if program else ""


_PARENT = "--parent-process"


# Cached, because it parses the metadata of a package, and each run records more than ten packages.
@functools.cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """Return the output of git in the working directory; None if the command fails."""
    try:
        finished = subprocess.run(["git", *arguments], capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # As it is: a patch without its last blank lines, or with other line ends, does not apply.
    return finished.stdout.decode(errors="replace")
