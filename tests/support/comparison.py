"""Comparison of nested states."""

from typing import Any

import torch


def assert_equal(one: Any, two: Any, where: str = "") -> None:
    """Assert that two nested states are exactly equal."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_equal(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), where
        for number, (left, right) in enumerate(zip(one, two, strict=True)):
            assert_equal(left, right, f"{where}[{number}]")
    else:
        assert one == two, where
