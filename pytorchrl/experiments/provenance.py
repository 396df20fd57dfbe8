"""Provenance of a run: code, command, machine, packages."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

_PACKAGES = ("pytorchrl", "torch", "gymnasium", "numpy", "numba", "zarr")
_ENVIRONMENT = ("CUDA", "CUBLAS", "MKL", "MUJOCO", "NUMBA", "OMP", "OPENBLAS", "PYTHONHASHSEED", "PYTORCH", "TORCH")
"""What the names of variables begin with that a run may depend on."""
_SECRETS = ("KEY", "SECRET", "TOKEN", "PASSWORD")
_ID_DIGITS = 12
_LARGEST_DIFF_BYTES = 10_000_000


def git_diff() -> str | None:
    """What is changed in the working directory since the last commit; None where nothing is, or there is no git."""
    diff = _git("diff", "HEAD", "--no-color", "--no-ext-diff")
    return diff if diff and len(diff.encode(errors="replace")) <= _LARGEST_DIFF_BYTES else None


def experiment_id(config: Mapping[str, Any], diff: str | None) -> str:
    """A short text that is equal for runs of equal code and equal arguments.

    Args:
        config: the composition and the learner's arguments.
        diff: of the code to its last commit.
    """
    arguments = {name: value for name, value in config.items() if name != "log_to"}
    code = [_git("rev-parse", "HEAD") or _version("pytorchrl"), diff]
    text = json.dumps([code, arguments], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_ID_DIGITS]


def provenance(config: Mapping[str, Any], diff: str | None) -> dict[str, Any]:
    """What a run came of, as plain data."""
    return {
        "experiment": experiment_id(config, diff),
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
        "packages": {package: _version(package) for package in _PACKAGES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_uncommitted_changes": bool(_git("status", "--porcelain")),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """What git says of the working directory; None where it is no repository or git is not there."""
    try:
        finished = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, errors="replace", timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.strip()
