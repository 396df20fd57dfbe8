"""The statistics of rliable, which ours are held to where it is installed."""

from typing import Any

import pytest


def rliable_module(name: str) -> Any:
    """Import a module of rliable, else skip the test."""
    return pytest.importorskip(f"rliable.{name}", reason="rliable is not installed")
