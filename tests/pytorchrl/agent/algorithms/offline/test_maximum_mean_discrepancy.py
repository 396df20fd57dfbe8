"""The discrepancy of two sets equals the one by double loops, for both kernels."""

from typing import Any

import pytest
import torch

from pytorchrl.agent.algorithms.offline.bear import maximum_mean_discrepancy

KERNELS = {"gaussian": lambda difference: difference**2, "laplacian": abs}


def sets(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, 2, generator=generator), 1 + torch.randn(4, 5, 2, generator=generator)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_discrepancy_of_equal_sets_is_close_to_0_with_a_finite_gradient(kernel: Any) -> None:
    some, _ = sets()
    same = some.clone().requires_grad_()
    found = maximum_mean_discrepancy(same, some, kernel, 20.0)
    assert (found < 2e-3).all()
    found.sum().backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()
