"""What the figures of a benchmark depend on besides the code."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import torch


def machine(*packages: str) -> dict[str, str]:
    """The machine and what it was doing, and the versions of some packages."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "torch threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "load average": load,
        **versions(*packages),
    }


def versions(*packages: str) -> dict[str, str]:
    """Python's version, and those of some packages."""
    return {"Python": platform.python_version(), **dict(_versions(packages))}


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
