"""Conditions under which a kernel replaces operations of torch, and memory for its results."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def hooks_of(*networks: nn.Module) -> list[Mapping[int, Any]]:
    """Return the hook mappings of all modules of networks, which also show hooks registered later."""
    return [
        hooks
        for network in networks
        for each in network.modules()
        for hooks in (each._forward_hooks, each._forward_pre_hooks, each._backward_hooks, each._backward_pre_hooks)
    ]


def is_recorded() -> bool:
    """Whether torch is tracing, compiling or transforming, and has to see its own operations."""
    is_tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return is_tracing or torch.compiler.is_compiling() or _is_transformed()


def is_acting() -> bool:
    """Whether torch is in inference mode, in which networks act, and records no operations."""
    # The inference mode is asked about last: torch.compile does not compile that.
    return not torch.is_grad_enabled() and not is_recorded() and torch.is_inference_mode_enabled()


def _never() -> bool:
    """Replace torch's function where it is missing."""
    return False


_is_transformed: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", _never)


def plain_address(numbers: Tensor) -> int | None:
    """Return the address of a tensor that is float32, contiguous, and in CPU memory; None of any other."""
    return address_of(numbers) if numbers.dtype is torch.float32 and numbers.is_contiguous() else None


def new_results(shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
    """Return a tensor in CPU memory for a kernel's results, uninitialised; faster than ``torch.empty``."""
    return torch.from_numpy(np.empty(shape, dtype))


def are_for_kernels(*tensors: Tensor) -> bool:
    """Whether single-threaded kernels are faster than torch, and take all of these, as of :func:`plain_address`."""
    return torch.get_num_threads() <= MOST_THREADS and all(plain_address(each) is not None for each in tensors)


def are_ordinary(*tensors: Tensor) -> bool:
    """Whether none of these is a wrapper, as of ``torch.func``, which differentiates torch's own operations alone."""
    try:
        for each in tensors:
            if type(each) not in (Tensor, nn.Parameter):
                return False
            each.data_ptr()
    except RuntimeError:
        return False
    return True


def address_of(numbers: Tensor) -> int | None:
    """Return the address of a tensor in CPU memory; None on a device, or of a wrapper of ``torch.func``."""
    if not (type(numbers) in (Tensor, nn.Parameter) and numbers.is_cpu):
        return None
    try:
        return numbers.data_ptr()
    except RuntimeError:  # of torch.func
        return None


MOST_THREADS = 4
"""Up to so many threads of torch, a single-threaded kernel is faster."""
