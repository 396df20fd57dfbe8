"""The statistics of rliable, as a reference for those of this package, if it is installed."""

from typing import Any

import pytest


def rliable_module(name: str) -> Any:
    """Import a module of rliable, or skip the test."""
    return pytest.importorskip(f"rliable.{name}", reason="rliable is not installed")
