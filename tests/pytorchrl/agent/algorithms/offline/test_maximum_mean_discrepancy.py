"""The discrepancy of two sets equals the one by double loops, for both kernels."""

from typing import Any

import numpy as np
import pytest
import torch

from pytorchrl.agent.algorithms.offline.bear import maximum_mean_discrepancy
from tests.support.by_hand import numeric_gradient, numpy

KERNELS = {"gaussian": lambda difference: difference**2, "laplacian": abs}


def sets(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 3, 2, generator=generator), 1 + torch.randn(4, 5, 2, generator=generator)


def similarity(one: Any, other: Any, kernel: str, sigma: float) -> float:
    """Mean over all pairs of rows of two sets (n, A) and (m, A)."""
    total = 0.0
    for x in one:
        for y in other:
            distance = sum(KERNELS[kernel](x[part] - y[part]) for part in range(len(x)))
            total += np.exp(-distance / (2 * sigma))
    return total / (len(one) * len(other))


def by_loops(some: Any, others: Any, kernel: str, sigma: float) -> Any:
    """The discrepancies (N) of N pairs of sets."""
    rows = []
    for one, other in zip(some, others, strict=True):
        within = similarity(one, one, kernel, sigma) + similarity(other, other, kernel, sigma)
        rows.append(np.sqrt(within - 2 * similarity(one, other, kernel, sigma) + 1e-6))
    return np.array(rows)


@pytest.mark.parametrize("sigma", [0.5, 20.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_discrepancy_and_its_gradient_equal_those_of_double_loops(kernel: Any, sigma: float) -> None:
    some, others = sets()
    some.requires_grad_()
    found = maximum_mean_discrepancy(some, others, kernel, sigma)
    assert found.shape == (4, 1)
    moved = numpy(some)
    np.testing.assert_allclose(numpy(found)[:, 0], by_loops(moved, numpy(others), kernel, sigma), rtol=2e-4)
    found.sum().backward()
    by_hand = numeric_gradient(lambda: by_loops(moved, numpy(others), kernel, sigma).sum(), moved)
    assert some.grad is not None
    np.testing.assert_allclose(numpy(some.grad), by_hand, rtol=5e-3, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_discrepancy_of_equal_sets_is_close_to_0_with_a_finite_gradient(kernel: Any) -> None:
    some, _ = sets()
    same = some.clone().requires_grad_()
    found = maximum_mean_discrepancy(same, some, kernel, 20.0)
    assert (found < 2e-3).all()
    found.sum().backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_a_narrower_kernel_gives_a_larger_discrepancy() -> None:
    some, others = sets()
    narrow, wide = (maximum_mean_discrepancy(some, others, "gaussian", sigma) for sigma in (1.0, 20.0))
    assert (narrow > wide).all()
