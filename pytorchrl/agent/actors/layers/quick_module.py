"""Modules with little call overhead.

In networks as small as those of reinforcement learning, the overhead of torch's modules (looking for hooks in nine
places, looking every submodule up in three dictionaries) takes more time than their operations: 11 of 20 microseconds
where a Q-function of two layers chooses an action.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn


class QuickModule(nn.Module):
    """A module with submodules as plain attributes too, whose ``forward`` is called directly unless it has hooks."""

    statistics: ClassVar[frozenset[str]] = frozenset()
    """Names of its buffers that are computed from data, and kept where networks are initialised anew."""

    def __call__(self, *args: Any) -> Any:
        """Call :meth:`forward`, with hooks if there are any."""
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*args)
        return self.forward(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self.__dict__.pop(name, None)


def hooks_of(*networks: nn.Module) -> list[Mapping[int, Any]]:
    """Return the hook mappings of all modules of networks, which also show hooks registered later."""
    return [
        hooks
        for network in networks
        for each in network.modules()
        for hooks in (each._forward_hooks, each._forward_pre_hooks, each._backward_hooks, each._backward_pre_hooks)
    ]


def is_recorded() -> bool:
    """Whether torch is tracing or compiling, to run the operations later with other data and numbers of rows."""
    is_tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return is_tracing or torch.compiler.is_compiling()


def plain_address(numbers: Tensor) -> int | None:
    """Return the address of a tensor that is float32, contiguous, and in CPU memory; None of any other."""
    return address_of(numbers) if numbers.dtype is torch.float32 and numbers.is_contiguous() else None


def new_results(shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
    """Return a tensor in CPU memory for a kernel's results, uninitialised; in half of the time of ``torch.empty``."""
    return torch.from_numpy(np.empty(shape, dtype))


def are_for_kernels(*tensors: Tensor) -> bool:
    """Whether single-threaded kernels are faster than torch, and take all of these, as of :func:`plain_address`."""
    return torch.get_num_threads() <= MOST_THREADS and all(plain_address(each) is not None for each in tensors)


def address_of(numbers: Tensor) -> int | None:
    """Return the address of a tensor in CPU memory; None on a device, or of a wrapper of ``torch.func``."""
    if not (type(numbers) in (Tensor, nn.Parameter) and numbers.is_cpu):
        return None
    try:
        return numbers.data_ptr()
    except RuntimeError:  # of torch.func
        return None


MOST_THREADS = 4
"""Up to so many threads of torch, a single-threaded kernel is faster: for tanh, one of them takes six times as long."""
