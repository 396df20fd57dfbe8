"""The machine and the versions that the figures of a benchmark depend on."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

import torch


def machine(*packages: str) -> dict[str, str]:
    """Return the machine, its load, and the versions of some packages."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "torch threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "load average": load,
        **versions(*packages),
    }


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"Python": platform.python_version(), **dict(_versions(packages))}


def _versions(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
